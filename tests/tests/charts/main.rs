//! The Helm charts: what they render, what a real API server with RBAC makes of it, and that the binaries work with it.

#![expect(clippy::unwrap_used, reason = "a test binary has no outside")]

mod accepted;
mod bed;
mod check;
mod circle;
mod examples;
mod generated;
mod hub_container;
mod image;
mod join;
mod kubectl;
mod lifecycle;
mod migration;
mod network;
mod render;
mod rights;
mod sbom;
mod schema;
mod upstream;
