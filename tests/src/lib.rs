//! The test bed: real parts, started by the tests themselves on loopback and ended with them.
//!
//! [`cluster::TestCluster`] is a real Kubernetes API server, [`forge`] a real Git forge, [`hub::TestHub`] and
//! [`agent::TestAgent`] are the product's own binaries. [`process`] makes sure that nothing outlives its test.

pub mod agent;
pub mod amending;
pub mod bench;
pub mod charts;
pub mod cluster;
pub mod connect_proxy;
pub mod fault_proxy;
pub mod forge;
pub mod hub;
pub mod intents;
pub mod mangle;
pub mod objects;
pub mod process;
pub mod raw;
pub mod repository;
pub mod test_forge;
pub mod wait;
