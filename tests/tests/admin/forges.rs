//! What the hub tells of its forges: what they still allow, who waits for people, and never a credential.

use anyhow::{Context as _, Result, ensure};
use nabu_proto::admin_v1::operations_service_client::OperationsServiceClient;
use nabu_proto::admin_v1::response_service_client::ResponseServiceClient;
use nabu_proto::admin_v1::{
    ExplainResponseRequest, Forge, GetConfigStatusRequest, ListForgesRequest,
};
use nabu_proto::agent_v1::Phase;
use nabu_tests::hub::TestHub;
use nabu_tests::objects::{forge_config, token_secret, write_file};
use nabu_tests::test_forge::github::TestGithub;
use nabu_tests::wait::eventually;

use crate::bed::{Agent, LIMIT, hub};

async fn forge(hub: &TestHub) -> Result<Forge> {
    let mut client = OperationsServiceClient::new(hub.admin_channel().await?);
    let forges = client.list_forges(ListForgesRequest {}).await?.into_inner();
    let mut forges = forges.forges.into_iter();
    forges
        .find(|one| one.provider == "github-token")
        .context("no such forge")
}

async fn until(hub: &TestHub, wanted: impl Fn(&Forge) -> bool) -> Result<Forge> {
    eventually("the hub tells what is wanted", LIMIT, || async {
        forge(hub).await.ok().filter(&wanted)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forge_shows_what_it_allows_and_who_waits_for_people_and_never_its_token() -> Result<()> {
    let github = TestGithub::start().await?;
    let repository = github.create_repository("ninsun-labs/gitops").await?;
    let config = forge_config("github-token", github.url(), "ninsun-labs/gitops");
    let secret = token_secret("bot", github.token());
    let hub = hub(format!("{config}\n---\n{secret}"), &[]).await?;
    let mut agent = Agent::connect(&hub, "prod-eu").await?;
    let file = |name: &str| write_file("revoke-clusterrolebinding", name, "a: 1\n");
    let uid = agent.observe(1, file("a.yaml")).await?;
    agent
        .status(&uid, |status| status.phase() == Phase::Succeeded)
        .await?;
    let shown = until(&hub, |forge| !forge.limits.is_empty()).await?;
    let left =
        |limit: &nabu_proto::admin_v1::RateLimit| limit.limit > 0 && limit.remaining <= limit.limit;
    ensure!(shown.limits.iter().all(left), "{shown:?}");
    ensure!(shown.last_answer_at.is_some(), "{shown:?}");
    ensure!(shown.parked == 0, "{shown:?}");

    repository.archive(true)?;
    agent.observe(2, file("b.yaml")).await?;
    let shown = until(&hub, |forge| forge.parked == 1).await?;

    // Whatever is asked, the token is in no answer.
    let mut operations = OperationsServiceClient::new(hub.admin_channel().await?);
    let status = operations
        .get_config_status(GetConfigStatusRequest::default())
        .await?;
    let mut responses = ResponseServiceClient::new(hub.admin_channel().await?);
    let mut answers = vec![format!("{shown:?}"), format!("{status:?}"), hub.log()];
    for name in ["er-1", "er-2"] {
        let request = ExplainResponseRequest {
            cluster_id: "prod-eu".to_owned(),
            uid_or_name: name.to_owned(),
        };
        answers.push(format!("{:?}", responses.explain_response(request).await?));
    }
    for command in [["forge", "list"], ["config", "status"], ["audit", "list"]] {
        answers.push(hub.nabuctl(&command)?);
        answers.push(hub.nabuctl(&[&["-o", "json"], &command[..]].concat())?);
    }
    ensure!(github.token().len() > 10);
    for answer in &answers {
        ensure!(!answer.contains(github.token()), "{answer}");
    }
    ensure!(answers[0].contains("ugallu-system/bot"), "{}", answers[0]);
    Ok(())
}
