//! The admin API and nabuctl against a real hub; agents are played by the tests themselves.

#![expect(
    clippy::unwrap_used,
    clippy::large_futures,
    reason = "a test binary has no outside"
)]

mod access;
mod bed;
mod grpcurl;
mod nabuctl;
mod operations;
mod responses;
