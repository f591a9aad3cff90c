//! What hub and agent both know.

pub mod ids;
