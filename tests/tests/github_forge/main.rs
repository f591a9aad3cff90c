//! The test forge that speaks GitHub's API, by itself: whatever is wrong here would make every test above it worthless.

#![allow(missing_docs)]

mod access;
mod client;
mod faults;
mod graphql;
mod people;
mod rest;
