//! Forges whose answers are spoiled on the way: whatever the hub reads, it neither falls over nor does harm, and its
//! next attempt ends with one pull request.
//!
//! `FUZZ_ROUNDS` makes more rounds than a test run has time for, `FUZZ_SEED` begins with another seed.

#[cfg(test)]
mod bed;
#[cfg(test)]
mod rounds;
