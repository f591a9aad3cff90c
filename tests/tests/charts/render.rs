//! What the templates make of the matrix of values.

use anyhow::Result;
use nabu_tests::charts::{Case, folder, helm, object, objects, path};
use nabu_tests::process::workspace_binary;
use serde_json::Value;

#[test]
fn every_case_passes_the_strict_lint() -> Result<()> {
    for case in Case::all()? {
        let chart = folder(&case.chart);
        helm(&[
            "lint",
            "--strict",
            path(&chart)?,
            "--values",
            path(&case.values)?,
        ])?;
    }
    Ok(())
}

/// Flags of a program, as `--help` has them.
fn flags(program: &str) -> Result<Vec<String>> {
    let help = std::process::Command::new(workspace_binary(program)?)
        .arg("--help")
        .output()?;
    let help = String::from_utf8(help.stdout)?;
    let words = help
        .split_whitespace()
        .filter(|word| word.starts_with("--"));
    Ok(words
        .map(|word| word.trim_end_matches(['.', ',', ';']).to_owned())
        .collect())
}

/// Flags of enrolment: a program has all of its own or, built without enrolment, none.
const ENROLMENT: [&str; 6] = [
    "--ca-encryption-key-file",
    "--server-name",
    "--agents-url",
    "--identity-secret",
    "--join-token-file",
    "--hub-ca-pin",
];

#[test]
fn every_argument_is_a_flag_of_the_program() -> Result<()> {
    for case in Case::all()? {
        let mut flags = flags(&case.chart)?;
        if !flags.iter().any(|flag| ENROLMENT.contains(&flag.as_str())) {
            flags.extend(ENROLMENT.map(str::to_owned));
        }
        let objects = objects(&case.render()?)?;
        let container =
            &object(&objects, "Deployment")?["spec"]["template"]["spec"]["containers"][0];
        let arguments = container["args"].as_array().unwrap();
        assert!(arguments.len() > 8, "{container}");
        for argument in arguments {
            let flag = argument
                .as_str()
                .unwrap()
                .split('=')
                .next()
                .unwrap()
                .to_owned();
            assert!(
                flags.contains(&flag),
                "{}: {flag} is no flag of {}",
                case.name,
                case.chart
            );
        }
    }
    Ok(())
}

#[test]
fn every_object_has_the_recommended_labels_and_the_common_ones() -> Result<()> {
    for case in Case::all()? {
        for object in objects(&case.render()?)? {
            let labels = &object["metadata"]["labels"];
            for label in ["name", "instance"] {
                assert!(
                    labels[format!("app.kubernetes.io/{label}")].is_string(),
                    "{object}"
                );
            }
            if case.name == "conventions" {
                assert_eq!(labels["team"], "platform", "{object}");
                let annotations = &object["metadata"]["annotations"];
                let hook = annotations["helm.sh/hook"].is_string();
                assert!(
                    hook || annotations["example.com/owner"] == "platform",
                    "{object}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn names_of_another_pki_reach_both_programs_and_cert_manager() -> Result<()> {
    let mut seen = 0;
    for case in Case::all()? {
        if case.name != "own-names" {
            continue;
        }
        let objects = objects(&case.render()?)?;
        let pod = &object(&objects, "Deployment")?["spec"]["template"]["spec"];
        let arguments = pod["containers"][0]["args"].as_array().unwrap();
        let has = |argument: &str| arguments.iter().any(|one| one == argument);
        assert!(has("--cluster-san=spiffe://{trust_domain}/ns/nabu/sa/{id}"));
        assert!(has("--trust-domain=corp.example"));
        if case.chart == "nabu-hub" {
            assert!(has("--admin-san=https://sso.example/{name}?team=nabu"));
        } else {
            let uris = &object(&objects, "Certificate")?["spec"]["uris"];
            assert_eq!(uris[0], "spiffe://corp.example/ns/nabu/sa/prod-eu");
        }
        seen += 1;
    }
    assert_eq!(seen, 2);
    Ok(())
}

/// The pod template with more values.
fn pod_template(chart: &str, more: &[&str]) -> Result<Value> {
    let values = nabu_tests::process::repository_root().join("tests/fixtures/charts");
    let values = values.join(chart).join(if chart == "nabu-hub" {
        "folder.yaml"
    } else {
        "default.yaml"
    });
    let chart = folder(chart);
    let mut arguments = vec!["template", "r", path(&chart)?, "--values", path(&values)?];
    arguments.extend(more);
    let objects = objects(&helm(&arguments)?)?;
    Ok(object(&objects, "Deployment")?["spec"]["template"].clone())
}

#[test]
fn only_a_setting_that_is_not_read_live_rolls_the_pods() -> Result<()> {
    let live = "config.documents.default.routes[0].provider.repository=o/other";
    assert_eq!(
        pod_template("nabu-hub", &[])?,
        pod_template("nabu-hub", &["--set", live])?
    );
    for (chart, setting) in [
        ("nabu-hub", "maxAttempts=3"),
        ("nabu-hub", "log.level=debug"),
        ("nabu-hub", "clusterLabels.prod-eu.env=prod"),
        ("nabu-hub", "tls.trustDomain=other"),
        ("nabu-agent", "hub.url=https://other"),
        ("nabu-agent", "responders={other}"),
        ("nabu-agent", "log.format=text"),
    ] {
        let changed = pod_template(chart, &["--set", setting])?;
        assert_ne!(pod_template(chart, &[])?, changed, "{chart} {setting}");
    }
    Ok(())
}

#[test]
fn alerts_speak_of_metrics_that_there_are() -> Result<()> {
    let operating = nabu_tests::process::repository_root().join("docs/src/operating.md");
    let operating = std::fs::read_to_string(operating)?;
    let cases = Case::all()?;
    let case = cases.iter().find(|case| case.name == "monitoring").unwrap();
    let objects = objects(&case.render()?)?;
    let rules = object(&objects, "PrometheusRule")?["spec"]["groups"][0]["rules"].clone();
    let rules = rules.as_array().unwrap();
    assert!(rules.len() >= 6, "{rules:?}");
    for rule in rules {
        let expression = rule["expr"].as_str().unwrap();
        let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let metric = words
            .into_iter()
            .find(|word| word.starts_with("nabu_") || word.starts_with("ugallu_"))
            .unwrap();
        assert!(
            operating.contains(&format!("`{metric}`")),
            "{metric} is no metric"
        );
    }
    Ok(())
}
