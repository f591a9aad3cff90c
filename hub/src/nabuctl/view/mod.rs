//! What people see of answers.

mod clusters;
mod identities;
pub(super) mod json;
mod operations;
mod responses;
mod story;
pub(super) mod text;

pub(super) use clusters::{cluster, clusters};
pub(super) use identities::{RotationStep, administrators, rotation, tokens};
pub(super) use operations::{audit, config, forges, version};
pub(super) use responses::{list, response};
pub(super) use story::{story, trial};
pub(super) use text::time;

use super::table::Tone;

/// How a phase is meant.
pub(super) fn phase_tone(phase: &str) -> Tone {
    match phase {
        "Succeeded" => Tone::Good,
        "Failed" => Tone::Bad,
        "Running" | "Pending" => Tone::Warning,
        _ => Tone::Plain,
    }
}
