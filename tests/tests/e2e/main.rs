//! The whole circle on real parts: API servers, agents, a hub and a forge, each a process of its own.
//!
//! Tests run beside each other on shared servers; each has a hub, agents and a responder name of its own.

#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::large_futures,
    reason = "a test binary has no outside"
)]

mod authority;
mod bed;
mod binaries;
mod both_doors;
mod clocks;
mod closing;
mod comes_again;
mod crash;
mod doors;
mod enrolment;
mod failures;
mod follow;
mod frames;
mod github;
mod gitlab;
mod groups;
mod hostile;
mod identity;
mod left_out;
mod objects;
mod outages;
mod own_pki;
mod proxied;
mod refusals;
mod removal;
mod retention;
mod routes;
mod successor;
mod tokens;
mod trust_domain;
mod under_load;
mod updating;
mod watched_config;
mod webhooks;
