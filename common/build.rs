//! Tells the programs what they are built from: the commit, as `NABU_COMMIT` says it, and the compiler.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=NABU_COMMIT");
    let commit = std::env::var("NABU_COMMIT").unwrap_or_default();
    let commit = if commit.is_empty() {
        "unknown"
    } else {
        &commit
    };
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = Command::new(rustc).arg("--version").output();
    let said = said
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok());
    // "rustc 1.95.0 (59807616e 2026-04-14)"
    let rustc = said
        .as_deref()
        .and_then(|said| said.split_whitespace().nth(1))
        .unwrap_or("unknown");
    println!("cargo::rustc-env=NABU_BUILD_COMMIT={commit}");
    println!("cargo::rustc-env=NABU_BUILD_RUSTC={rustc}");
}
