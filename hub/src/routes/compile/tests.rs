use serde_json::json;

use super::*;

/// The document of the design, as people write it.
const EXAMPLE: &str = include_str!("../../../../tests/fixtures/example-config.yaml");

fn compile_yaml(text: &str) -> Result<Compiled, Vec<Problem>> {
    let object: Value = serde_saphyr::from_str(text).unwrap();
    compile("ugallu-system", "default", &object)
}

fn paths(result: Result<Compiled, Vec<Problem>>) -> Vec<String> {
    result
        .unwrap_err()
        .into_iter()
        .map(|problem| problem.path)
        .collect()
}

#[test]
fn the_example_of_the_design_is_taken_as_it_stands() {
    let compiled = compile_yaml(EXAMPLE).unwrap();
    assert_eq!(compiled.unsupported, []);
    let [route] = compiled.routes.as_slice() else {
        panic!("{:?}", compiled.routes)
    };
    assert_eq!(route.id, "ugallu-system/default/0");
    assert_eq!(route.target.kind, ProviderKind::GithubApp);
    assert_eq!(route.target.repository, "ninsun-labs/ugallu-gitops");
    assert_eq!(route.target.installation_id, Some(12345));
    assert_eq!(route.base_branch.as_deref(), Some("main"));
    let credential = route.target.credential.as_ref().unwrap();
    assert_eq!(
        (&*credential.namespace, &*credential.name),
        ("ugallu-system", "gitops-responder-github-app")
    );
    assert_eq!(route.branch_prefix, "nabu/");
}

type Change = fn(&mut Value);

fn own(change: impl FnOnce(&mut Value)) -> Result<Compiled, Vec<Problem>> {
    let mut route = json!({
        "match": {"actionRef": "x"},
        "provider": {"kind": "forgejo-token", "repository": "o/r", "baseURL": "https://git.example.org/",
            "credentialsRef": {"name": "bot"}},
    });
    change(&mut route);
    compile(
        "ns",
        "c",
        &json!({"metadata": {"name": "c"}, "spec": {"routes": [route]}}),
    )
}

#[test]
fn a_field_that_cannot_be_used_is_named() {
    let compiled = own(|_| {}).unwrap();
    assert_eq!(
        compiled.routes[0].target.base_url.as_deref(),
        Some("https://git.example.org")
    );
    let cases: [(Change, &str); 9] = [
        (
            |r| r["provider"]["repository"] = json!("o"),
            "spec.routes[0].provider.repository",
        ),
        (
            |r| r["provider"]["repository"] = json!("o/../x"),
            "spec.routes[0].provider.repository",
        ),
        (
            |r| r["provider"]["baseURL"] = json!("https://u:p@git"),
            "spec.routes[0].provider.baseURL",
        ),
        (
            |r| r["provider"]["baseURL"] = json!(null),
            "spec.routes[0].provider.baseURL",
        ),
        (
            |r| r["provider"]["credentialsRef"] = json!(null),
            "spec.routes[0].provider.credentialsRef",
        ),
        (
            |r| r["provider"]["baseBranch"] = json!("a..b"),
            "spec.routes[0].provider.baseBranch",
        ),
        (
            |r| r["prTemplate"] = json!("{{#if x}}"),
            "spec.routes[0].prTemplate",
        ),
        (
            |r| r["labels"] = json!(["a\nb"]),
            "spec.routes[0].labels[0]",
        ),
        (
            |r| r["branchPrefix"] = json!("a b/"),
            "spec.routes[0].branchPrefix",
        ),
    ];
    for (change, path) in cases {
        assert_eq!(paths(own(change)), [path]);
    }
}

#[test]
fn every_problem_of_a_document_is_reported_at_once() {
    let result = own(|route| {
        route["provider"]["repository"] = json!("o");
        route["titleTemplate"] = json!("{{");
    });
    assert_eq!(
        paths(result),
        [
            "spec.routes[0].provider.repository",
            "spec.routes[0].titleTemplate"
        ]
    );
}

#[test]
fn two_routes_of_one_name_are_refused() {
    let route = json!({"name": "a", "provider": {"kind": "noop", "repository": "o/r"}});
    let result = compile("ns", "c", &json!({"spec": {"routes": [route, route]}}));
    assert_eq!(paths(result), ["spec.routes"]);
}

fn upstream() -> Value {
    json!({
        "providers": [
            {"name": "gh", "type": "github", "host": "github.com",
             "auth": {"mode": "github-app", "secretRef": {"name": "app"}}},
            {"name": "fj", "type": "forgejo", "host": "git.example.org",
             "auth": {"mode": "app-token", "secretRef": {"name": "bot"}}},
            {"name": "key", "type": "github", "host": "", "auth": {"mode": "ssh-deploy-key", "secretRef": {"name": "k"}}},
        ],
        "defaultProvider": "gh",
        "defaultRepo": {"provider": "", "owner": "o", "repo": "rest", "branch": "main"},
        "bot": {"name": "Bot", "email": "bot@example.org"},
        "changeDefaults": {"draft": true, "labels": ["security"], "requireReviewers": ["ada"]},
        "branchStrategy": {"namingTemplate": "ugallu/{{ .Source.ER.Metadata.UID }}", "deleteAfterMerge": true},
        "conflictBehavior": "abort",
        "routing": [{"matchLabels": {"team": "payments"}, "matchNamespacePattern": "pay*",
            "repo": {"provider": "fj", "owner": "o", "repo": "payments"}}],
    })
}

#[test]
fn the_form_of_ugallu_gives_routing_rules_first_and_the_default_last() {
    let mut spec = upstream();
    spec["routes"] =
        json!([{"name": "own", "provider": {"kind": "noop", "repository": "o/first"}}]);
    let compiled = compile("ns", "c", &json!({ "spec": spec })).unwrap();
    let facts: Vec<_> = compiled
        .routes
        .iter()
        .map(|route| {
            (
                route.id.as_str(),
                route.target.repository.as_str(),
                route.target.kind.as_str(),
            )
        })
        .collect();
    assert_eq!(
        facts,
        [
            ("ns/c/own", "o/first", "noop"),
            ("ns/c/routing-0", "o/payments", "forgejo-token"),
            ("ns/c/default-repo", "o/rest", "github-app"),
        ]
    );
    let rule = &compiled.routes[1];
    assert_eq!(
        rule.target.base_url.as_deref(),
        Some("https://git.example.org")
    );
    assert_eq!((rule.branch_prefix.as_str(), rule.draft), ("ugallu/", true));
    assert!(rule.options.delete_branch_after_merge);
    assert_eq!(
        (&rule.labels[..], &rule.reviewers[..]),
        (&["security".to_owned()][..], &["ada".to_owned()][..])
    );
    assert_eq!(
        rule.author.as_ref().map(|author| author.email.as_str()),
        Some("bot@example.org")
    );
    assert_eq!(
        compiled.routes[2].target.base_url, None,
        "github.com is the public service"
    );
}

#[test]
fn what_is_not_served_is_reported_and_the_rest_works() {
    let mut spec = upstream();
    spec["conflictBehavior"] = json!("force");
    spec["routing"][0]["repo"]["provider"] = json!("key");
    let compiled = compile("ns", "c", &json!({ "spec": spec })).unwrap();
    let unsupported: Vec<_> = compiled
        .unsupported
        .iter()
        .map(|problem| problem.path.as_str())
        .collect();
    assert_eq!(
        unsupported,
        [
            "spec.conflictBehavior",
            "spec.providers[2].auth.mode",
            "spec.bot"
        ]
    );
    assert_eq!(
        compiled.routes.len(),
        1,
        "the rule with the deploy key is left out"
    );
}

#[test]
fn a_provider_that_does_not_exist_is_named() {
    let mut spec = upstream();
    spec["routing"][0]["repo"]["provider"] = json!("nobody");
    assert_eq!(
        paths(compile("ns", "c", &json!({ "spec": spec }))),
        ["spec.routing[0].repo.provider"]
    );
}

#[test]
fn teams_are_for_forges_that_have_them() {
    let compiled = own(|route| {
        route["provider"]["kind"] = json!("gitlab-token");
        route["teamReviewers"] = json!(["platform"]);
    });
    let unsupported = compiled.unwrap().unsupported;
    let [problem] = unsupported.as_slice() else {
        panic!("{unsupported:?}")
    };
    assert!(problem.message.starts_with("teamReviewers"), "{problem}");
}
