//! Which responses a list has: every filter, page by page.

use anyhow::Result;
use nabu_proto::admin_v1::admin_service_client::AdminServiceClient;
use nabu_proto::admin_v1::{ListResponsesRequest, ResponseFilter};
use nabu_tests::hub::TestHub;
use nabu_tests::objects::{config, token_secret, write_file};
use nabu_tests::wait::eventually;
use tonic::Code;
use tonic::transport::Channel;

use crate::bed::{Agent, LIMIT, hub};

/// The names of all responses that fit, newest first, asked for one by one.
async fn names(
    client: &mut AdminServiceClient<Channel>,
    filter: ResponseFilter,
) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut request = ListResponsesRequest {
        page_size: 1,
        filter: Some(filter),
        ..ListResponsesRequest::default()
    };
    loop {
        let page = client.list_responses(request.clone()).await?.into_inner();
        assert!(page.responses.len() <= 1);
        let page_names = page.responses.into_iter();
        names.extend(page_names.map(|one| format!("{}/{}", one.cluster_id, one.name)));
        if page.next_page_token.is_empty() {
            return Ok(names);
        }
        request.page_token = page.next_page_token;
    }
}

/// A hub with the responses `prod-eu/er-1` (succeeded), `prod-eu/er-2` (waits for a forge that is down), `prod-us/er-3`
/// (no route), `prod-us/er-4` (succeeded elsewhere).
async fn fleet() -> Result<(TestHub, [Agent; 2])> {
    let port = nabu_tests::process::free_port()?;
    let routes = config(&format!(
        "  routes:\n    - name: one\n      match: {{ actionRef: one }}\n      provider: {{ kind: noop, repository: o/one }}\n    \
        - name: two\n      match: {{ actionRef: two }}\n      provider: {{ kind: noop, repository: p/two }}\n    \
        - name: down\n      match: {{ actionRef: down }}\n      provider: {{ kind: forgejo-token, baseURL: \"http://127.0.0.1:{port}\", \
        repository: o/down, credentialsRef: {{ name: bot }} }}\n"
    ));
    let documents = format!("{routes}\n---\n{}", token_secret("bot", "t0ken"));
    let hub = hub(documents, &["--cluster-label", "prod-us:env=prod"]).await?;
    let mut eu = Agent::connect(&hub, "prod-eu").await?;
    let mut us = Agent::connect(&hub, "prod-us").await?;
    for (number, action) in [(1, "one"), (2, "down"), (3, "none"), (4, "two")] {
        let agent = if number < 3 { &mut eu } else { &mut us };
        let parameters = write_file(action, "a.yaml", "a: 1\n");
        let uid = agent.observe(number, parameters).await?;
        let stands = |status: &nabu_proto::agent_v1::Status| {
            status.completed_at.is_some() || status.next_attempt_at.is_some()
        };
        agent.status(&uid, stands).await?;
    }
    Ok((hub, [eu, us]))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_filter_selects_what_it_says_and_pages_through_all_of_it() -> Result<()> {
    let (hub, _agents) = fleet().await?;
    let mut client = AdminServiceClient::new(hub.admin_channel().await?);
    let all = [
        "prod-us/er-4",
        "prod-us/er-3",
        "prod-eu/er-2",
        "prod-eu/er-1",
    ];
    assert_eq!(names(&mut client, ResponseFilter::default()).await?, all);
    let list = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let filter = ResponseFilter::default;
    let middle = {
        let request = ListResponsesRequest::default();
        let found = client.list_responses(request).await?.into_inner().responses;
        found[1].observed_at
    };
    for (filter, expected) in [
        (
            ResponseFilter {
                cluster_ids: list(&["prod-eu"]),
                ..filter()
            },
            &all[2..],
        ),
        (
            ResponseFilter {
                cluster_labels: [("env".to_owned(), "prod".to_owned())].into(),
                ..filter()
            },
            &all[..2],
        ),
        (
            ResponseFilter {
                phases: list(&["Succeeded"]),
                ..filter()
            },
            &[all[0], all[3]],
        ),
        (
            ResponseFilter {
                phases: list(&["Succeeded", "Failed"]),
                ..filter()
            },
            &[all[0], all[1], all[3]],
        ),
        (
            ResponseFilter {
                since: middle,
                ..filter()
            },
            &all[..2],
        ),
        (
            ResponseFilter {
                routes: list(&["*/default/one"]),
                ..filter()
            },
            &all[3..],
        ),
        (
            ResponseFilter {
                routes: list(&["*/default/one", "*/down"]),
                ..filter()
            },
            &all[2..],
        ),
        (
            ResponseFilter {
                providers: list(&["forgejo-token"]),
                ..filter()
            },
            &all[2..3],
        ),
        (
            ResponseFilter {
                providers: list(&["noop"]),
                ..filter()
            },
            &[all[0], all[3]],
        ),
        (
            ResponseFilter {
                repositories: list(&["o/*"]),
                ..filter()
            },
            &all[2..],
        ),
        (
            ResponseFilter {
                error_types: list(&["Transient"]),
                ..filter()
            },
            &all[2..3],
        ),
        (
            ResponseFilter {
                error_types: list(&["Permanent"]),
                ..filter()
            },
            &all[1..2],
        ),
        (
            ResponseFilter {
                error_reasons: list(&["NoMatchingRoute"]),
                ..filter()
            },
            &all[1..2],
        ),
        (
            ResponseFilter {
                cluster_ids: list(&["prod-eu"]),
                phases: list(&["Succeeded"]),
                ..filter()
            },
            &all[3..],
        ),
        (
            ResponseFilter {
                cluster_ids: list(&["prod-eu"]),
                error_types: list(&["Permanent"]),
                ..filter()
            },
            &[],
        ),
    ] {
        assert_eq!(
            names(&mut client, filter.clone()).await?,
            expected,
            "{filter:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_are_under_way_neither_repeat_nor_skip_when_a_newer_response_comes() -> Result<()>
{
    let (hub, [eu, _us]) = fleet().await?;
    let mut client = AdminServiceClient::new(hub.admin_channel().await?);
    let request = |page_token: String| ListResponsesRequest {
        page_size: 2,
        page_token,
        ..ListResponsesRequest::default()
    };
    let first = client
        .list_responses(request(String::new()))
        .await?
        .into_inner();
    eu.observe(5, write_file("one", "b.yaml", "b: 1\n")).await?;
    eventually("the newer one is listed", LIMIT, || {
        let mut client = client.clone();
        async move {
            let all = names(&mut client, ResponseFilter::default()).await.ok()?;
            (all.len() == 5).then_some(())
        }
    })
    .await?;
    let second = client
        .list_responses(request(first.next_page_token))
        .await?
        .into_inner();
    let rest: Vec<_> = second
        .responses
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(rest, ["er-2", "er-1"]);
    assert_eq!(second.next_page_token, "");
    let made_up = client.list_responses(request("nonsense".to_owned())).await;
    assert_eq!(made_up.unwrap_err().code(), Code::InvalidArgument);
    Ok(())
}
