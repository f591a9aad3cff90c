//! The stories, in groups. Each takes a bed on a fresh repository and asserts what holds on every forge.

pub(crate) mod adopt;
pub(crate) mod bytes;
pub(crate) mod closing;
pub(crate) mod contents;
pub(crate) mod follow;
pub(crate) mod patches;
pub(crate) mod races;
pub(crate) mod refusals;
pub(crate) mod whose;
