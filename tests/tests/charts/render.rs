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
const ENROLMENT: [&str; 9] = [
    "--ca-encryption-key-file",
    "--ca-cert-file",
    "--ca-key-file",
    "--agent-certificate-lifetime",
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
            for label in [
                "name",
                "instance",
                "version",
                "component",
                "part-of",
                "managed-by",
            ] {
                assert!(
                    labels[format!("app.kubernetes.io/{label}")].is_string(),
                    "{object}"
                );
            }
            if case.name == "conventions" {
                assert_eq!(labels["team"], "platform", "{object}");
                let annotations = &object["metadata"]["annotations"];
                assert_eq!(annotations["example.com/owner"], "platform", "{object}");
            }
        }
    }
    Ok(())
}

#[test]
fn the_pod_of_helm_test_runs_where_the_program_may_and_no_service_selects_it() -> Result<()> {
    let cases = Case::all()?;
    for case in cases.iter().filter(|case| case.name == "conventions") {
        let objects = objects(&case.render()?)?;
        let (deployment, pod) = (object(&objects, "Deployment")?, object(&objects, "Pod")?);
        let program = &deployment["spec"]["template"]["spec"];
        for field in [
            "nodeSelector",
            "tolerations",
            "affinity",
            "imagePullSecrets",
            "securityContext",
        ] {
            assert!(!program[field].is_null(), "{} has no {field}", case.chart);
            assert_eq!(pod["spec"][field], program[field], "{field}");
        }
        let selected = deployment["spec"]["selector"]["matchLabels"].clone();
        let labels = pod["metadata"]["labels"].as_object().unwrap();
        let selected = selected.as_object().unwrap();
        assert!(selected.iter().any(|(key, value)| labels[key] != *value));
    }
    Ok(())
}

/// What helm says to a release of this name.
fn release_called(chart: &str, release: &str, set: &str) -> Result<String> {
    let values = nabu_tests::process::repository_root().join("tests/fixtures/charts");
    let values = values.join(chart).join("default.yaml");
    let chart = folder(chart);
    helm(&[
        "template",
        release,
        path(&chart)?,
        "--values",
        path(&values)?,
        "--set",
        set,
    ])
}

#[test]
fn a_release_of_any_name_has_services_that_kubernetes_takes() -> Result<()> {
    let long = "a.very.long.name.of.a.release.with.a.dot-at.place5";
    for chart in nabu_tests::charts::CHARTS {
        for release in ["team.prod", "team.nabu-hub.nabu-agent", long] {
            for object in objects(&release_called(chart, release, "log.level=info")?)? {
                let name = object["metadata"]["name"].as_str().unwrap();
                let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                if object["kind"] == "Service" {
                    assert!(name.chars().all(allowed), "{name}");
                    assert!(!name.contains("--"), "{name}");
                    assert!(name.len() <= 63, "{name}");
                }
            }
        }
        for (release, set, part) in [
            ("7th", "log.level=info", "set fullnameOverride"),
            ("r", "fullnameOverride=a.b", "'/fullnameOverride'"),
            ("r", "nameOverride=a.b", "'/nameOverride'"),
        ] {
            let refused = release_called(chart, release, set).unwrap_err().to_string();
            assert!(refused.contains(part), "{chart} {release} {set}: {refused}");
        }
        assert!(release_called(chart, "7th", "fullnameOverride=nabu").is_ok());
    }
    Ok(())
}

#[test]
fn a_label_that_is_given_twice_is_rendered_once_and_the_nearer_one_counts() -> Result<()> {
    for chart in nabu_tests::charts::CHARTS {
        let set = "commonLabels.team=platform,commonLabels.tier=all,podLabels.tier=control,podLabels.app\\.kubernetes\\.io/name=x,\
            commonLabels.app\\.kubernetes\\.io/part-of=fleet";
        let labels = pod_template(chart, &["--set", set])?["metadata"]["labels"].clone();
        assert_eq!(labels["team"], "platform", "{chart}: {labels}");
        assert_eq!(labels["tier"], "control", "{chart}: {labels}");
        assert_eq!(labels["app.kubernetes.io/part-of"], "fleet", "{labels}");
        assert_eq!(
            labels["app.kubernetes.io/name"], chart,
            "selectors go by it: {labels}"
        );
        // The reader of YAML refuses a key that is there twice.
        assert!(serde_saphyr::from_str::<Value>("a: 1\na: 2\n").is_err());
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
