//! Measures the product from outside and prints a table; run it with `make bench`.
//!
//! Everything runs on loopback on this machine: API servers, agents, hub and forge share its processors.

#![expect(clippy::print_stdout, reason = "it prints its results")]

use anyhow::Result;
use nabu_tests::bench;

#[tokio::main]
async fn main() -> Result<()> {
    nabu_common::tls::install_crypto_provider();
    let only: Vec<String> = std::env::args().skip(1).collect();
    println!("{}", bench::machine::facts());
    println!("\n| measured | figure | goal |\n| --- | --- | --- |");
    Box::pin(bench::run(&only)).await
}
