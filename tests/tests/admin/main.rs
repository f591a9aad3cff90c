//! The admin API and nabuctl against a real hub; agents are played by the tests themselves.

mod access;
mod bed;
mod grpcurl;
mod nabuctl;
mod operations;
mod responses;
mod revoked;
