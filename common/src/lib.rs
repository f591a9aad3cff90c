//! What hub and agent both know: the objects, names, who a certificate speaks for, logs, health and metrics.
//!
//! Nothing here decides anything about responses; that is the hub's, and how they are watched and written is the
//! agent's.

pub mod build;
pub mod canonical;
pub mod cli;
pub mod crd;
pub mod identity;
pub mod ids;
pub mod ops;
pub mod san;
pub mod shutdown;
pub mod telemetry;
pub mod tls;
