//! Benchmarks: what a user would feel, measured through public interfaces.
//!
//! [`circle`] goes through a real API server, [`gateway`] talks to the hub as many agents would, [`forge`] counts
//! requests to a real Gitea. Each prints rows of one Markdown table.

#![expect(clippy::print_stdout, reason = "benchmarks print their results")]

mod circle;
mod forge;
mod gateway;
pub mod machine;
mod observer;

use std::time::Duration;

use anyhow::Result;

/// Runs the named parts, or all of them: `circle`, `gateway`, `forge`.
///
/// # Errors
/// If a part of the product does not do what is measured.
pub async fn run(only: &[String]) -> Result<()> {
    let wanted = |part: &str| only.is_empty() || only.iter().any(|name| name == part);
    if wanted("circle") {
        Box::pin(circle::run()).await?;
    }
    if wanted("gateway") {
        Box::pin(gateway::run()).await?;
    }
    if wanted("forge") {
        Box::pin(forge::run()).await?;
    }
    Ok(())
}

fn row(what: &str, figure: &str, goal: &str) {
    println!("| {what} | {figure} | {goal} |");
}

/// p50, p90, p99 and the largest, in milliseconds.
fn percentiles(mut samples: Vec<Duration>) -> String {
    samples.sort();
    let at = |share: f64| {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index into a short list"
        )]
        let index = ((samples.len() as f64 - 1.0) * share).round() as usize;
        samples
            .get(index)
            .copied()
            .unwrap_or_default()
            .as_secs_f64()
            * 1000.0
    };
    format!(
        "p50 {:.1} ms, p90 {:.1} ms, p99 {:.1} ms, max {:.1} ms ({} responses)",
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0),
        samples.len()
    )
}
