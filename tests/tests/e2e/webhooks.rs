//! Webhooks as GitHub publishes them, sent to the real listener: all are answered, and those about a branch of the
//! repository itself are hints.

use anyhow::{Context as _, Result};
use aws_lc_rs::hmac;
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::mangle::mangle;
use nabu_tests::objects::config;
use nabu_tests::process::{free_port, npm_path};
use reqwest::StatusCode;
use serde_json::Value;

const SECRET: &str = "loopback-only-3";
const CONFIG: &str = "  routes:
    - provider:
        kind: github-token
        repository: octocat/hello-world
        credentialsRef: { name: bot }
";
const CREDENTIAL: &str = "apiVersion: v1
kind: Secret
metadata: { name: bot, namespace: ugallu-system }
stringData: { token: unused, webhook-secret: loopback-only-3 }
";

struct Listener {
    hub: TestHub,
    url: String,
    http: reqwest::Client,
}

impl Listener {
    async fn start() -> Result<Self> {
        let address = format!("127.0.0.1:{}", free_port()?);
        let arguments = ["--follow-seconds", "0", "--listen-webhooks", &address];
        let options = HubOptions {
            arguments: arguments.map(str::to_owned).to_vec(),
            ..HubOptions::default()
        };
        let documents = [
            ("config.yaml", config(CONFIG)),
            ("secret.yaml", CREDENTIAL.to_owned()),
        ];
        Ok(Self {
            hub: TestHub::start(&documents, options).await?,
            url: format!("http://{address}/webhooks/github"),
            http: reqwest::Client::new(),
        })
    }

    async fn deliver(&self, id: &str, event: &str, body: Vec<u8>) -> Result<StatusCode> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
        let tag = hmac::sign(&key, &body);
        let digits = hex::encode(tag.as_ref());
        let request = self
            .http
            .post(&self.url)
            .header("content-type", "application/json")
            .header("x-github-event", event)
            .header("x-github-delivery", id)
            .header("x-hub-signature-256", format!("sha256={digits}"))
            .body(body);
        Ok(request.send().await?.status())
    }

    async fn counted(&self, result: &str) -> Result<f64> {
        let series = format!("nabu_hub_webhooks_total{{forge=\"github\",result=\"{result}\"}}");
        self.hub.metric(&series).await
    }
}

/// Name and body of each example.
fn examples() -> Result<Vec<(String, Value)>> {
    let path = npm_path("@octokit/webhooks-examples/api.github.com/index.json")?;
    let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let events: Vec<Value> = serde_json::from_slice(&text)?;
    let mut all = Vec::new();
    for event in events {
        let name = event["name"].as_str().context("no name")?;
        for example in event["examples"].as_array().into_iter().flatten() {
            all.push((name.to_owned(), example.clone()));
        }
    }
    Ok(all)
}

/// Whether an example is about a branch of the repository itself.
fn is_ours(event: &str, body: &Value) -> bool {
    let head = &body["pull_request"]["head"]["repo"]["full_name"];
    event == "pull_request" && *head == body["repository"]["full_name"]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_webhook_that_github_publishes_is_read() -> Result<()> {
    let listener = Listener::start().await?;
    let examples = examples()?;
    let mut hints = 0.0;
    for (number, (event, body)) in examples.iter().enumerate() {
        let id = format!("delivery-{number}");
        let answer = listener.deliver(&id, event, body.to_string().into_bytes());
        let answer = answer.await?;
        assert!(answer.is_success(), "{event} {number}: {answer}");
        hints += f64::from(u8::from(is_ours(event, body)));
    }
    assert!(hints >= 20.0, "{hints} of {} are hints", examples.len());
    assert!((listener.counted("accepted").await? - hints).abs() < f64::EPSILON);
    assert!(listener.counted("invalid").await?.abs() < f64::EPSILON);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_webhooks_that_are_spoiled_are_answered_and_do_no_harm() -> Result<()> {
    let listener = Listener::start().await?;
    let ours: Vec<_> = (examples()?.into_iter())
        .filter(|(event, body)| is_ours(event, body))
        .collect();
    for seed in 0..600 {
        let index = usize::try_from(seed)? % ours.len();
        let body = mangle(ours[index].1.to_string().as_bytes(), seed);
        let id = format!("delivery-{seed}");
        let answer = listener.deliver(&id, "pull_request", body).await?;
        let expected = [StatusCode::ACCEPTED, StatusCode::BAD_REQUEST];
        assert!(expected.contains(&answer), "seed {seed}: {answer}");
    }
    assert!(listener.counted("invalid").await? > 10.0);
    assert!(listener.counted("accepted").await? > 10.0);
    let whole = ours[0].1.to_string().into_bytes();
    let answer = listener.deliver("delivery-last", "pull_request", whole);
    assert_eq!(answer.await?, StatusCode::ACCEPTED);
    Ok(())
}
