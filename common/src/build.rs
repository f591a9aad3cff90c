//! What the programs are built from, as `--version`, the log, metrics and the admin API tell it.

/// The version of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, in hex, with `-dirty` behind it if the sources differed from it; `unknown` where the build was not told:
/// the variable `NABU_COMMIT` tells it, as the targets of the Makefile do that make what is shipped.
pub const COMMIT: &str = env!("NABU_BUILD_COMMIT");

/// The version of the compiler.
pub const RUSTC: &str = env!("NABU_BUILD_RUSTC");

/// `debug` or `release`.
pub const PROFILE: &str = if cfg!(debug_assertions) {
    "debug"
} else {
    "release"
};

/// What `--version` prints behind the name of a program.
pub const FACTS: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("NABU_BUILD_COMMIT"),
    ", rustc ",
    env!("NABU_BUILD_RUSTC"),
    ")"
);
