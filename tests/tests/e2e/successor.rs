//! A renewed certificate that does not work, and the one before it, which the agent has kept.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nabu_hub::pki::{Authority, Subject};
use nabu_tests::agent::TestAgent;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use crate::bed::{eu, unique};
use crate::enrolment::{changes, hub};

/// A key and certificate of an authority that the hub has never heard of, as the agent would keep them.
fn of_nobody(folder: &Path, like: &Value) -> Result<Value> {
    let out = folder.join("out");
    let authority = Authority::create(&folder.join("pki"), "nabu")?;
    authority.issue_into(&Subject::cluster(&"prod-eu".parse()?), &out)?;
    let mut certified = like.clone();
    let chain = CertificateDer::from_pem_file(out.join("tls.crt"))?;
    let key = PrivateKeyDer::from_pem_file(out.join("tls.key"))?;
    certified["chain"] = json!([STANDARD.encode(chain)]);
    certified["key"] = json!(STANDARD.encode(key.secret_der()));
    Ok(certified)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_that_the_hub_refuses_gives_way_to_the_one_before_it() -> Result<()> {
    let hub = hub(&[]).await?;
    let responder = unique("responder");
    let arguments = ["--responder", &responder, "--leader-elect=false"];
    let mut agent = TestAgent::join(eu().await, "prod-eu", &hub, &arguments).await?;
    let place = agent.state_dir().join("identity.json");
    let read = || anyhow::Ok(serde_json::from_slice::<Value>(&std::fs::read(&place)?)?);
    agent.stop()?;
    let before = read()?;
    ensure!(before["candidate"].is_null(), "{before:#}");
    let folder = tempfile::tempdir()?;
    let mut kept = before.clone();
    kept["candidate"] = of_nobody(folder.path(), &before["current"])?;
    std::fs::write(&place, kept.to_string())?;

    agent.start_again().await?;
    changes(&responder, &unique("er")).await?;
    let log = agent.log();
    ensure!(log.contains("the other one is tried"), "{log}");
    ensure!(!log.contains("needs a join token"), "{log}");
    let needed = agent.metric("nabu_agent_join_token_needed").await?;
    ensure!(needed.abs() < f64::EPSILON);
    let after = read()?;
    ensure!(after["candidate"].is_null(), "it is tried again");
    ensure!(after["current"] == before["current"]);
    let chain = after["current"]["chain"][0].as_str();
    chain.context("the old certificate is gone")?;

    // What is kept is good for the next process too.
    agent.stop()?;
    agent.start_again().await
}
