//! A fleet with a trust domain of its own name.

use anyhow::{Result, ensure};
use nabu_tests::agent::TestAgent;
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::noop_config;

use crate::bed::{eu, unique};
use crate::enrolment::changes;
use crate::identity::{Liar, hello};
use crate::refusals::{certificate_into, uri};

const DOMAIN: &str = "fleet.example.com";

fn options(certifies: bool) -> HubOptions {
    HubOptions {
        environment: vec![("NABU_HUB_TRUST_DOMAIN".to_owned(), DOMAIN.to_owned())],
        certifies,
        ..HubOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_certifies_does_so_for_its_own_trust_domain() -> Result<()> {
    let documents = [("config.yaml", noop_config("o/r"))];
    let hub = TestHub::start(&documents, options(true)).await?;
    let added = hub.add_cluster("prod-us", &[])?;
    ensure!(added["trustDomain"] == DOMAIN, "{added:#}");
    let responder = unique("responder");
    let arguments = [
        "--responder",
        &responder,
        "--leader-elect=false",
        "--trust-domain",
        DOMAIN,
    ];
    let _agent = TestAgent::join(eu().await, "prod-eu", &hub, &arguments).await?;
    changes(&responder, &unique("er")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_from_files_count_in_their_own_trust_domain_and_in_no_other() -> Result<()> {
    let documents = [("config.yaml", noop_config("o/r"))];
    let hub = TestHub::start(&documents, options(false)).await?;
    let responder = unique("responder");
    let arguments = [
        "--responder",
        &responder,
        "--leader-elect=false",
        "--trust-domain",
        DOMAIN,
    ];
    let mut agent = TestAgent::prepare(eu().await, "prod-eu", &hub, &arguments)?;
    // Of the default domain, by the same authority.
    let folder = hub.issue_agent("prod-eu")?;
    ensure!(Liar::connect_with(&hub, &folder, hello("a")).await.is_err());
    ensure!(hub.nabuctl(&["cluster", "list"]).is_err());
    for (folder, name) in [
        (folder, "cluster/prod-eu"),
        (hub.admin_tls(), "admin/tester"),
    ] {
        certificate_into(&hub, &folder, |params| {
            params.subject_alt_names = vec![uri(&format!("spiffe://{DOMAIN}/{name}")).unwrap()];
        })?;
    }
    agent.start_again().await?;
    changes(&responder, &unique("er")).await?;
    let listed = hub.nabuctl(&["-o", "name", "cluster", "list"])?;
    ensure!(listed.contains("prod-eu"), "{listed}");
    Ok(())
}
