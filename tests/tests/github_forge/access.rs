//! Who may come in, and how far.

use jiff::{Timestamp, ToSpan as _};
use nabu_tests::test_forge::github::{App, BOT, Options, Protection, Rule, TestGithub};
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{OPEN, graphql, lookup, open_variables, rest, rest_as, send};

async fn app(github: &TestGithub, jwt: &str) -> (u16, Value) {
    rest_as(github, jwt, Method::GET, "/app", None).await
}

fn jwt(app: &App, issuer: &Value, from: i64, until: i64) -> String {
    let now = Timestamp::now();
    app.jwt(issuer, now + from.seconds(), now + until.seconds())
        .expect("a JWT")
}

#[tokio::test]
async fn an_app_comes_in_with_its_id_or_its_client_id_and_a_jwt_of_at_most_ten_minutes() {
    let github = TestGithub::start().await.expect("a forge");
    let own = github.app();
    assert!(
        own.private_key
            .starts_with("-----BEGIN RSA PRIVATE KEY-----\n")
    );
    for issuer in [
        json!(own.id),
        json!(own.id.to_string()),
        json!(own.client_id),
    ] {
        let (status, body) = app(&github, &jwt(own, &issuer, -60, 540)).await;
        assert_eq!((status, &body["id"]), (200, &json!(own.id)));
    }
    let other = App::generate(own.id, "other", 1).expect("an App");
    let refused = [
        (
            jwt(&other, &json!(own.id), -60, 540),
            "could not be decoded",
        ),
        (jwt(own, &json!(own.id), -120, -60), "'exp'"),
        (jwt(own, &json!(own.id), 0, 700), "too far in the future"),
        (jwt(own, &json!(own.id), 60, 540), "'iat'"),
        (jwt(own, &json!(7), -60, 540), "'iss'"),
    ];
    for (token, reason) in refused {
        let (status, body) = app(&github, &token).await;
        let message = body["message"].as_str().unwrap_or_default();
        assert!(
            status == 401 && message.contains(reason),
            "{status} {message} for {reason}"
        );
    }
    let (status, _) = app(&github, github.token()).await;
    assert_eq!(status, 401);
}

#[tokio::test]
async fn an_installation_has_tokens_of_an_hour_and_acts_as_the_bot_of_the_app() {
    let github = TestGithub::start().await.expect("a forge");
    let repository = github
        .create_repository("ninsun-labs/gitops")
        .await
        .expect("a repository");
    let token = jwt(github.app(), &json!(github.app().client_id), -60, 540);
    let path = "/repos/ninsun-labs/gitops/installation";
    let (status, found) = rest_as(&github, &token, Method::GET, path, None).await;
    assert_eq!(
        (status, found["id"].as_u64()),
        (200, Some(github.app().installation_id))
    );
    let path = format!(
        "/app/installations/{}/access_tokens",
        github.app().installation_id
    );
    let (status, short) = rest_as(&github, &token, Method::POST, &path, None).await;
    assert_eq!(status, 201);
    let short = short["token"].as_str().expect("a token").to_owned();
    assert_eq!((&short[..4], short.len()), ("ghs_", 40));
    github.set_long_tokens(true);
    let (_, long) = rest_as(&github, &token, Method::POST, &path, None).await;
    assert_eq!(long["token"].as_str().map(str::len), Some(504));
    assert_eq!(github.minted_tokens(), 2);

    let variables = open_variables(&lookup(&github, "b").await, "b");
    let body = json!({ "query": OPEN, "variables": variables });
    let answer = send(&github, &short, Method::POST, "/api/graphql", Some(body)).await;
    let answer: Value = answer.expect("an answer").json().await.expect("JSON");
    assert_eq!(answer.get("errors"), None, "{answer:#}");
    assert_eq!(
        repository.commit("b").expect("a commit").author.name,
        "nabu[bot]"
    );
    assert_eq!(
        repository.pulls().expect("pull requests")[0].author,
        "nabu[bot]"
    );
    let found = lookup(&github, "b").await;
    let pull = &found["data"]["repository"]["pullRequests"]["nodes"][0];
    assert_eq!(pull["author"]["login"], "nabu");

    github.expire_installation_tokens();
    let (status, _) = rest_as(&github, &short, Method::GET, "/rate_limit", None).await;
    assert_eq!(status, 401);
}

#[tokio::test]
async fn a_token_that_is_not_known_is_a_bad_credential() {
    let github = TestGithub::start().await.expect("a forge");
    github.revoke(github.token());
    let answer = send(&github, github.token(), Method::GET, "/api/v3/user", None).await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), 401);
    assert_eq!(
        answer.headers()["content-type"],
        "application/json; charset=utf-8"
    );
    let body: Value = answer.json().await.expect("JSON");
    assert_eq!(
        (&body["message"], &body["status"]),
        (&json!("Bad credentials"), &json!("401"))
    );
}

#[tokio::test]
async fn who_may_not_read_finds_nothing_and_who_may_not_write_is_told_so() {
    let github = TestGithub::start().await.expect("a forge");
    let repository = github
        .create_repository("ninsun-labs/gitops")
        .await
        .expect("a repository");
    let variables = open_variables(&lookup(&github, "b").await, "b");
    repository
        .set_permission(BOT, Some("read"))
        .expect("a permission");
    let answer = graphql(&github, OPEN, variables.clone()).await;
    assert_eq!(answer["errors"][0]["type"], "FORBIDDEN");
    assert_eq!(
        answer["errors"][0]["message"],
        "Resource not accessible by personal access token"
    );
    repository.set_permission(BOT, None).expect("a permission");
    let answer = lookup(&github, "b").await;
    assert_eq!(answer["data"]["repository"], json!(null));
    assert_eq!(answer["errors"][0]["type"], "NOT_FOUND");
    assert_eq!(
        answer["errors"][0]["message"],
        "Could not resolve to a Repository with the name 'ninsun-labs/gitops'."
    );
    let (status, _) = rest(&github, Method::GET, "/repos/ninsun-labs/gitops", None).await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn rules_and_archives_refuse_changes() {
    let github = TestGithub::start().await.expect("a forge");
    let repository = github
        .create_repository("ninsun-labs/gitops")
        .await
        .expect("a repository");
    let variables = open_variables(&lookup(&github, "nabu/b").await, "nabu/b");
    repository
        .protect(Rule {
            branches: "nabu/*".to_owned(),
            protection: Protection::Ruleset,
            message: "Changes must be made through a pull request.".to_owned(),
        })
        .expect("a rule");
    let answer = graphql(&github, OPEN, variables.clone()).await;
    let message = answer["errors"][0]["message"].as_str().expect("a message");
    assert!(
        message.starts_with("Repository rule violations found"),
        "{message}"
    );
    repository.archive(true).expect("an archive");
    let answer = graphql(&github, OPEN, variables).await;
    assert_eq!(answer["errors"][0]["type"], "UNPROCESSABLE");
    assert_eq!(
        answer["errors"][0]["message"],
        "Repository was archived so is read-only"
    );
    assert_eq!(repository.branches().expect("git"), ["main"]);
}

#[tokio::test]
async fn a_forge_that_is_stopped_refuses_connections_until_it_starts_again() {
    let mut github = TestGithub::start().await.expect("a forge");
    let ask = async |github: &TestGithub| {
        send(github, github.token(), Method::GET, "/api/v3/user", None).await
    };
    assert_eq!(ask(&github).await.expect("an answer").status(), 200);
    github.stop();
    assert!(ask(&github).await.expect_err("no answer").is_connect());
    github.restart().await.expect("a forge again");
    assert_eq!(ask(&github).await.expect("an answer").status(), 200);
}

#[tokio::test]
async fn the_paths_of_the_public_github_are_there_if_they_are_wanted() {
    let options = Options {
        public_paths: true,
        ..Options::default()
    };
    for (options, status) in [(Options::default(), 404), (options, 200)] {
        let github = TestGithub::start_with(options).await.expect("a forge");
        let answer = send(&github, github.token(), Method::GET, "/user", None).await;
        assert_eq!(answer.expect("an answer").status(), status);
        let body = Some(json!({ "query": "{ viewer { login } }" }));
        let answer = send(&github, github.token(), Method::POST, "/graphql", body).await;
        assert_eq!(answer.expect("an answer").status(), status);
    }
}
