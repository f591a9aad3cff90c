//! The test forge that speaks GitHub's API, by itself: whatever is wrong here would make every test above it worthless.

#[cfg(test)]
mod access;
#[cfg(test)]
mod client;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod graphql;
#[cfg(test)]
mod people;
#[cfg(test)]
mod rest;
