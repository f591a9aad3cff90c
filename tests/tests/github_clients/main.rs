//! Clients of other people on the test forge: what it answers is what they expect of GitHub, or they would stumble.

#[cfg(test)]
mod clients;
