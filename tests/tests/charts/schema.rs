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
        ("nabu-hub", "replicas=2", ["at most 1", "PostgreSQL"]),
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
            "tls.mode=files,tls.builtin.encryptionKeySecret=",
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
            "identity.mode=files,joinToken=,hub.caPin=",
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
        (
            "nabu-hub",
            "tls.builtin.authoritySecret=company-ca",
            ["exclude each other", "give one"],
        ),
        (
            "nabu-hub",
            "admin.roles={root:ada}",
            ["'/admin/roles/0'", "operator"],
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
fn values_of_the_mode_that_is_not_chosen_are_refused_and_not_ignored() -> Result<()> {
    for (chart, set, parts) in [
        (
            "nabu-hub",
            "tls.secretName=nabu-hub-tls",
            ["tls.secretName", "set tls.mode=files"],
        ),
        (
            "nabu-hub",
            "tls.certManager.enabled=true",
            ["tls.certManager", "set tls.mode=files"],
        ),
        (
            "nabu-hub",
            "tls.mode=files,tls.secretName=nabu-hub-tls",
            ["tls.builtin", "leave out"],
        ),
        (
            "nabu-hub",
            "config.existingSecrets[0].name=bot,config.existingSecrets[0].keys={token}",
            ["config.existingSecrets", "config.source=folder"],
        ),
        (
            "nabu-agent",
            "identity.secretName=nabu-agent-tls",
            ["identity.secretName", "set identity.mode=files"],
        ),
        (
            "nabu-agent",
            "identity.ca.configMapName=bundle",
            ["identity.ca", "set identity.mode=files"],
        ),
        (
            "nabu-agent",
            "identity.mode=files,identity.secretName=x,joinToken=,hub.caPin=,identity.ca.configMapName=bundle,identity.ca.secretName=bundle",
            ["identity.ca.secretName", "exclude each other"],
        ),
        (
            "nabu-agent",
            "identity.certManager.enabled=true",
            ["identity.certManager", "set identity.mode=files"],
        ),
        (
            "nabu-agent",
            "identity.mode=files,identity.secretName=nabu-agent-tls,hub.caPin=",
            ["joinToken", "leave them out"],
        ),
        (
            "nabu-agent",
            "identity.mode=files,identity.secretName=nabu-agent-tls,joinToken=",
            ["hub.caPin", "leave them out"],
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
