//! The hub: takes what agents observe, decides, makes pull requests, and gives results back.
//!
//! Data moves one way round: [`gateway`] takes frames from agents and stores what was observed in [`store`];
//! [`execute`] asks [`plan`] (pure) for the one next step of a response and makes it happen on a [`forge`]; the
//! result goes into the [`store`], and from there through the [`gateway`] back to the agent. [`routes`] turns
//! configuration documents into the table that `plan` consults, [`render`] makes the text of a change out of templates
//! and hostile values, [`edit`] applies patches to files, [`admin`] answers questions of administrators, [`webhooks`] takes
//! hints of forges, [`group`] says which responses share a pull request. Who may speak for which cluster is settled by [`enrolment`] (join tokens) and [`authority`]
//! (certificates).

pub mod admin;
pub mod authority;
pub mod change;
pub mod config;
pub mod credentials;
pub mod door;
pub mod edit;
pub mod enrolment;
pub mod execute;
#[cfg(test)]
mod fixtures;
pub mod follow;
pub mod forge;
pub mod gateway;
pub mod group;
pub mod nabuctl;
pub mod pki;
pub mod plan;
pub mod queue_metrics;
pub mod render;
pub mod response;
pub mod retention;
pub mod routes;
pub mod run;
pub mod store;
pub mod webhooks;
