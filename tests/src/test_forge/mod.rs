//! Forges of our own for what cannot run here: GitHub's and GitLab's APIs over real bare git repositories, in this process.
//!
//! [`git`] and [`bytes`] are the repositories, [`faults`] what fails on purpose, [`log`] what was asked; none of them knows a
//! forge's API. [`github`] and [`gitlab`] speak one each.

pub mod bytes;
pub mod faults;
pub mod git;
pub mod github;
pub mod gitlab;
pub mod log;
