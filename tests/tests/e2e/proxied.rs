//! An agent whose hub is beyond an HTTP proxy: enrolment and session go through it, sealed.

use anyhow::{Context as _, Result};
use nabu_tests::agent::TestAgent;
use nabu_tests::connect_proxy::ConnectProxy;
use nabu_tests::wait::eventually;

use crate::bed::{LIMIT, eu, unique};
use crate::enrolment::{changes, hub};

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_enrols_and_works_through_a_proxy_that_asks_for_a_password() -> Result<()> {
    let hub = hub(&[]).await?;
    // The example of RFC 7617.
    let proxy = ConnectProxy::start("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==").await?;
    let way = |password: &str| format!("http://Aladdin:{password}@127.0.0.1:{}", proxy.port());
    let responder = unique("responder");
    let plain = ["--responder", &responder, "--leader-elect=false"];

    let wrong = way("closed-sesame");
    let arguments = [&plain[..], &["--hub-proxy", &wrong]].concat();
    let mut agent = TestAgent::prepare_join(eu().await, "prod-eu", &hub, None, &arguments)?;
    agent.launch()?;
    eventually("the agent says what the proxy wants", LIMIT, || async {
        let log = agent.log();
        let said = format!("the proxy http://127.0.0.1:{}", proxy.port());
        (log.contains(&said) && log.contains("authorization required")).then_some(())
    })
    .await?;
    assert!(!agent.log().contains("closed-sesame"), "{}", agent.log());
    assert_eq!(proxy.targets(), [""; 0]);
    agent.kill()?;

    let right = way("open%20sesame");
    let arguments = [&plain[..], &["--hub-proxy", &right]].concat();
    let agent = TestAgent::join(eu().await, "prod-eu", &hub, &arguments).await?;
    changes(&responder, &unique("er")).await?;
    let targets = proxy.targets();
    let address = hub.agents_url();
    let address = address.strip_prefix("https://").context("no https")?;
    let address = address.trim_end_matches('/').to_owned();
    assert!(targets.len() >= 2, "enrolment and session: {targets:?}");
    assert!(
        targets.iter().all(|target| *target == address),
        "{targets:?} is not {address}"
    );
    assert!(!agent.log().contains("sesame"));
    Ok(())
}
