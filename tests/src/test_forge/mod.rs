//! A forge of our own for what cannot run here: GitHub's API over real bare git repositories, in this process.
//!
//! [`git`] is the repositories, [`faults`] what fails on purpose, [`log`] what was asked; none of them knows a
//! forge's API. [`github`] speaks one.

pub mod faults;
pub mod git;
pub mod github;
pub mod log;
