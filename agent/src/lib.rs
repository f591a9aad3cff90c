//! The agent of one cluster: [`watch`] → [`inventory`] → [`session`] → hub → [`session`] → [`status`].
//!
//! What happens is turned into events for two synchronous deciders, [`inventory`] and the queue of [`status`], by a thin
//! loop in [`serve`]; [`run`] is the process around it. The API server is the log: the agent holds no sole copy of anything.

pub mod config;
pub mod events;
pub mod identity;
pub mod inventory;
pub mod leader;
pub mod metrics;
pub mod object;
pub mod read;
pub mod run;
pub mod schema;
pub mod security_event;
pub mod serve;
pub mod session;
pub mod status;
pub mod watch;

pub use run::run;
