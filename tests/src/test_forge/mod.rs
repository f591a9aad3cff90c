//! A forge of our own for what cannot run here: GitLab's API over real bare git repositories, in this process.
//!
//! [`git`] is the repositories, [`faults`] what fails on purpose, [`log`] what was asked; none of them knows a
//! forge's API. [`gitlab`] speaks one.

pub mod faults;
pub mod git;
pub mod gitlab;
pub mod log;
