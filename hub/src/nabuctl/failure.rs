//! What nabuctl ends with.

use std::fmt;

/// An error with the exit code that tells scripts its kind.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// Anything else.
    pub const FAILED: u8 = 1;
    /// The command line is wrong; clap ends with the same.
    pub const USAGE: u8 = 2;
    /// The hub does not allow it.
    pub const NOT_ALLOWED: u8 = 3;
    /// There is nothing of that name.
    pub const NOT_FOUND: u8 = 4;
    /// It cannot be done as things stand.
    pub const REFUSED: u8 = 5;
    /// The hub does not answer.
    pub const UNREACHABLE: u8 = 6;

    pub(super) fn new(code: u8, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }

    #[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
    pub(super) fn unreachable(error: anyhow::Error) -> anyhow::Error {
        anyhow::Error::new(Self::new(Self::UNREACHABLE, format!("{error:#}")))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The exit code of an error.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    let failure = error.downcast_ref::<Failure>();
    failure.map_or(Failure::FAILED, |failure| failure.code)
}
