//! `values.schema.json` refuses what is wrong in words that help.

use anyhow::Result;
use nabu_tests::charts::tables::values;
use nabu_tests::charts::{CHARTS, Case, folder, helm, path};
use serde_json::Value;

/// What helm says of the default case with one more value.
fn refusal(chart: &str, set: &str) -> Result<String> {
    let cases = Case::all()?;
    let case = cases
        .iter()
        .find(|case| case.chart == chart && case.name == "default")
        .unwrap();
    let folder = folder(chart);
    let arguments = [
        "template",
        "r",
        path(&folder)?,
        "--values",
        path(&case.values)?,
        "--set",
        set,
    ];
    match helm(&arguments) {
        Ok(_) => anyhow::bail!("{chart} takes {set}"),
        Err(error) => Ok(error.to_string()),
    }
}

#[test]
fn a_wrong_value_is_refused_with_its_place_and_what_is_expected() -> Result<()> {
    for (chart, set, parts) in [
        (
            "nabu-hub",
            "tls.secretNam=x",
            ["'/tls'", "'secretNam' not allowed"],
        ),
        ("nabu-hub", "replicas=2", ["'replicas'", "not allowed"]),
        (
            "nabu-hub",
            "maxAttempts=many",
            ["'/maxAttempts'", "want integer"],
        ),
        (
            "nabu-hub",
            "metrics.containerPort=99999",
            ["'/metrics/containerPort'", "maximum"],
        ),
        (
            "nabu-hub",
            "config.source=git",
            ["'/config/source'", "'objects', 'folder'"],
        ),
        (
            "nabu-hub",
            "image.digest=latest",
            ["'/image/digest'", "sha256"],
        ),
        (
            "nabu-hub",
            "livenessProbe.httpGet.path=/x",
            ["'/livenessProbe'", "'httpGet' not allowed"],
        ),
        (
            "nabu-hub",
            "tls.mode=files",
            ["nabu-hub needs its certificates", "tls.secretName"],
        ),
        (
            "nabu-hub",
            "agents.tlsRoute.enabled=true",
            ["agents.tlsRoute.", "Gateway"],
        ),
        (
            "nabu-agent",
            "clusterId=Prod_EU",
            ["'/clusterId'", "pattern"],
        ),
        (
            "nabu-agent",
            "clusterId=",
            ["clusterId is required", "prod-eu"],
        ),
        (
            "nabu-agent",
            "hub.url=http://hub",
            ["'/hub/url'", "https://"],
        ),
        (
            "nabu-agent",
            "hub.url=",
            ["hub.url is required", "https://"],
        ),
        ("nabu-agent", "responders=x", ["'/responders'", "array"]),
        (
            "nabu-agent",
            "identity.mode=files",
            ["needs its identity", "identity.secretName"],
        ),
        (
            "nabu-agent",
            "hub.caPin=",
            ["a join token needs hub.caPin", "nabuctl cluster add"],
        ),
        (
            "nabu-agent",
            "identity.joinTokenSecret=x",
            ["exclude each other", "give one"],
        ),
        (
            "nabu-hub",
            "tls.builtin.encryptionKeySecret=",
            ["kubectl create secret generic", "tls.mode=files"],
        ),
    ] {
        let said = refusal(chart, set)?;
        for part in parts {
            assert!(said.contains(part), "{chart} {set}: {part}: {said}");
        }
    }
    Ok(())
}

#[test]
fn names_of_another_pki_need_a_place_and_certificates_from_files() -> Result<()> {
    for (chart, set, parts) in [
        (
            "nabu-hub",
            "tls.clusterSan=spiffe://corp.example/agents",
            ["'/tls/clusterSan'", "pattern"],
        ),
        (
            "nabu-hub",
            "tls.adminSan=spiffe://corp.example/people/{name}",
            ["tls.adminSan", "tls.mode=files"],
        ),
        (
            "nabu-agent",
            "hub.clusterSan=spiffe://corp.example/agents/{id}",
            ["hub.clusterSan", "identity.mode=files"],
        ),
    ] {
        let said = refusal(chart, set)?;
        for part in parts {
            assert!(said.contains(part), "{chart} {set}: {part}: {said}");
        }
    }
    Ok(())
}

/// Paths that a schema allows, down to what is no object of known keys.
fn allowed(schema: &Value, root: &Value, path: &str, found: &mut Vec<String>) {
    let target = schema["$ref"]
        .as_str()
        .map(|target| target.trim_start_matches('#'));
    let schema = target
        .and_then(|target| root.pointer(target))
        .unwrap_or(schema);
    match schema["properties"].as_object() {
        Some(properties) => {
            for (key, inner) in properties {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                allowed(inner, root, &path, found);
            }
        }
        None => found.push(path.to_owned()),
    }
}

#[test]
fn the_schema_knows_the_values_of_the_chart_and_no_others() -> Result<()> {
    for chart in CHARTS {
        let schema = std::fs::read_to_string(folder(chart).join("values.schema.json"))?;
        let schema: Value = serde_json::from_str(&schema)?;
        let mut paths = Vec::new();
        allowed(&schema, &schema, "", &mut paths);
        let values = values(&std::fs::read_to_string(folder(chart).join("values.yaml"))?)?;
        // Helm itself puts this one there.
        paths.retain(|path| path != "global");
        for path in &paths {
            let known = |value: &&str| path == value || path.starts_with(&format!("{value}."));
            let known = values.iter().any(|entry| known(&entry.path.as_str()));
            assert!(
                known,
                "{chart}: the schema has {path}, and values.yaml has not"
            );
        }
        for entry in values {
            let below = format!("{}.", entry.path);
            let known = paths
                .iter()
                .any(|path| *path == entry.path || path.starts_with(&below));
            assert!(
                known,
                "{chart}: values.yaml has {}, and the schema has not",
                entry.path
            );
        }
    }
    Ok(())
}
