//! From an EventResponse to a pull request and back.

use anyhow::Result;
use nabu_tests::objects::{event_response, noop_config, security_event, write_file};

use crate::bed::{Bed, LIMIT, condition, eu, unique};

#[tokio::test(flavor = "multi_thread")]
async fn a_response_on_noop_succeeds_and_shows_the_pull_request_that_would_be() -> Result<()> {
    let bed = Bed::start(&[("config.yaml", noop_config("ninsun-labs/gitops"))]).await?;
    let (event, name) = (unique("se"), unique("er"));
    eu().await
        .create_security_event(&event, security_event("ClusterAdminGranted", "evil"))
        .await?;
    let parameters = write_file("revoke", "rbac/evil.yaml", "gone: true\n");
    let uid = eu()
        .await
        .create_event_response(&name, event_response(&event, &bed.responder, parameters))
        .await?;
    let status = eu().await.finished(&name, LIMIT).await?;
    assert_eq!(status["phase"], "Succeeded", "{status}");
    let url = format!("https://noop.invalid/ninsun-labs/gitops/pulls/prod-eu/{uid}");
    assert_eq!(status["providerRef"], url.as_str(), "{status}");
    assert!(
        condition(&status, "PullRequest", "True").is_some(),
        "{status}"
    );
    let explained = bed.hub.nabuctl(&["response", "get", "prod-eu", &name])?;
    assert!(
        explained.contains(&url) && explained.contains("rbac/evil.yaml"),
        "{explained}"
    );
    Ok(())
}
