//! What the hub's configuration, and the forges and credentials that it names, mean. Pure.

use nabu_proto::admin_v1::{Forge, GetConfigStatusResponse};

use super::found::{Found, Level};

/// The hub's configuration.
pub(super) fn config(status: &GetConfigStatusResponse) -> Vec<Found> {
    const CHECK: &str = "config";
    let mut found = Vec::new();
    for document in &status.documents {
        for finding in &document.findings {
            let level = if finding.severity == "error" {
                Level::Error
            } else {
                Level::Warning
            };
            let message = format!("{} {}: {}", document.id, finding.path, finding.message);
            found.push(Found::bad(CHECK, level, message, correct(&document.origin)));
        }
    }
    if status.routes.is_empty() {
        let remedy = "kubectl apply -f CONFIG.yaml with a GitOpsResponderConfig that has a route (or a file in --config-dir); \
            nabuctl route test --config CONFIG.yaml tries it";
        found.push(Found::error(CHECK, "no route is in force", remedy));
    } else if !status.complete && found.iter().all(|one| one.level != Level::Error) {
        let message =
            "not every document could be read, so that responses that no route takes wait";
        let remedy = "nabuctl config status shows which";
        found.push(Found::warning(CHECK, message, remedy));
    }
    if found.is_empty() {
        let message = format!(
            "{} documents, {} routes",
            status.documents.len(),
            status.routes.len()
        );
        found.push(Found::ok(CHECK, message));
    }
    found
}

/// How a document is corrected: an object of the hub's cluster, or a file.
fn correct(origin: &str) -> String {
    let object = origin
        .strip_prefix("gitopsresponderconfig ")
        .and_then(|object| object.split_once('/'));
    match object {
        Some((namespace, name)) => format!(
            "kubectl -n {namespace} edit gitopsresponderconfig {name}; nabuctl config status shows what is in force"
        ),
        None => format!("correct {origin}; nabuctl config status shows what is in force"),
    }
}

/// Forges and credentials, as the hub sees them.
pub(super) fn forges(forges: &[Forge]) -> Vec<Found> {
    forges.iter().map(forge).collect()
}

fn forge(forge: &Forge) -> Found {
    const CHECK: &str = "forge";
    let mut name = forge.provider.clone();
    if !forge.credential.is_empty() {
        name = format!("{name} {}", forge.credential);
    }
    if !forge.base_url.is_empty() {
        name = format!("{name} at {}", forge.base_url);
    }
    let (level, remedy) = match forge.state.as_str() {
        "CredentialMissing" => (Level::Error, make_secret(forge)),
        "Failing" => (Level::Error, failing(forge)),
        "Limited" | "Careful" => (
            Level::Warning,
            "nothing; the hub goes on by itself, and nabuctl forge list -o wide shows when".to_owned(),
        ),
        _ if forge.parked > 0 => (
            Level::Warning,
            "nabuctl response list --reason RepositoryArchived --reason InstallationSuspended shows what has to be mended there"
                .to_owned(),
        ),
        "Idle" => {
            let message =
                format!("{name}: the hub has asked it nothing yet, so that nobody knows whether it answers");
            let remedy = "the first response that goes there shows it: nabuctl forge list";
            return Found::skipped(CHECK, message, remedy);
        }
        state => return Found::ok(CHECK, format!("{name}: {state}")),
    };
    let mut message = format!("{name}: {}", forge.state);
    if !forge.detail.is_empty() {
        message = format!("{message}, {}", forge.detail);
    }
    if forge.parked > 0 {
        message = format!("{message}; {} responses wait for people", forge.parked);
    }
    Found::bad(CHECK, level, message, remedy)
}

/// The command that gives a Secret other values, and leaves its other keys alone: one of them may be for webhooks.
fn replace_keys(forge: &Forge) -> String {
    let (namespace, name) = forge
        .credential
        .split_once('/')
        .unwrap_or(("NAMESPACE", &forge.credential));
    let keys = match forge.provider.as_str() {
        "github-app" => r#""app-id":"ID","installation-id":"ID","private-key.pem":"KEY""#,
        _ => r#""token":"TOKEN""#,
    };
    format!(
        r#"kubectl -n {namespace} patch secret {name} --type=merge -p '{{"stringData":{{{keys}}}}}' (or the same in the file in --config-dir)"#
    )
}

/// The command that makes the Secret.
fn make_secret(forge: &Forge) -> String {
    let (namespace, name) = forge
        .credential
        .split_once('/')
        .unwrap_or(("NAMESPACE", &forge.credential));
    let keys = match forge.provider.as_str() {
        "github-app" => {
            "--from-literal=app-id=ID --from-literal=installation-id=ID --from-file=private-key.pem=FILE"
        }
        _ => "--from-literal=token=TOKEN",
    };
    format!(
        "kubectl -n {namespace} create secret generic {name} {keys} --dry-run=client -o yaml | kubectl apply -f - (or the same \
        Secret as a file in --config-dir)"
    )
}

fn failing(forge: &Forge) -> String {
    match forge.last_result.as_str() {
        "unauthorized" => format!(
            "give the hub a credential that the forge takes: {}",
            replace_keys(forge)
        ),
        "timeout" | "unavailable" => {
            let whose = match forge.base_url.as_str() {
                "" => "the forge".to_owned(),
                url => url.to_owned(),
            };
            format!(
                "let the hub reach {whose} (address, network policy, authority); kubectl -n nabu-system logs deployment/nabu-hub \
                says how it fails"
            )
        }
        _ => "nabuctl forge list -o wide shows the last answer; nabuctl response list --phase Failed what came of it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use nabu_proto::admin_v1::{ConfigDocument, Finding, RouteInForce};

    use super::*;
    use crate::nabuctl::check::found::tests::assert_remedies;

    fn one(state: &str, last_result: &str) -> Forge {
        Forge {
            state: state.to_owned(),
            provider: "gitlab-token".to_owned(),
            credential: "ns/bot".to_owned(),
            base_url: "https://git.example".to_owned(),
            last_result: last_result.to_owned(),
            ..Forge::default()
        }
    }

    #[test]
    fn a_forge_that_was_not_asked_yet_is_not_said_to_be_well() {
        let all = [
            (one("Ready", "ok"), Level::Ok, ""),
            (one("Idle", ""), Level::Skipped, "nabuctl forge list"),
            (
                one("CredentialMissing", ""),
                Level::Error,
                "kubectl -n ns create secret generic bot --from-literal=token=TOKEN",
            ),
            (
                one("Failing", "unauthorized"),
                Level::Error,
                "kubectl -n ns patch secret bot --type=merge",
            ),
            (
                one("Failing", "unavailable"),
                Level::Error,
                "https://git.example",
            ),
            (
                one("Failing", "broken"),
                Level::Error,
                "nabuctl forge list -o wide",
            ),
            (one("Limited", "ok"), Level::Warning, "by itself"),
            (
                Forge {
                    parked: 2,
                    ..one("Ready", "ok")
                },
                Level::Warning,
                "RepositoryArchived",
            ),
        ];
        for (one, level, words) in all {
            let found = forges(&[one]);
            assert_remedies(&found);
            assert_eq!(found[0].level, level, "{found:?}");
            assert!(found[0].remedy.contains(words), "{found:?}");
            assert!(found[0].message.contains("ns/bot at https://git.example"));
        }
    }

    #[test]
    fn a_document_is_corrected_where_it_stands() {
        let finding = |severity: &str| Finding {
            severity: severity.to_owned(),
            path: "spec.routes[0]".to_owned(),
            message: "no".to_owned(),
            ..Finding::default()
        };
        let document = |origin: &str, severity| ConfigDocument {
            origin: origin.to_owned(),
            findings: vec![finding(severity)],
            ..ConfigDocument::default()
        };
        let status = GetConfigStatusResponse {
            documents: vec![
                document("gitopsresponderconfig ns/default", "error"),
                document("/etc/nabu/a.yaml", "warning"),
            ],
            ..GetConfigStatusResponse::default()
        };
        let found = config(&status);
        assert_remedies(&found);
        let levels: Vec<_> = found.iter().map(|one| one.level).collect();
        assert_eq!(levels, [Level::Error, Level::Warning, Level::Error]);
        assert!(
            found[0]
                .remedy
                .contains("kubectl -n ns edit gitopsresponderconfig default")
        );
        assert!(found[1].remedy.contains("correct /etc/nabu/a.yaml"));
        let unread = GetConfigStatusResponse {
            routes: vec![RouteInForce::default()],
            ..GetConfigStatusResponse::default()
        };
        let found = config(&unread);
        assert_remedies(&found);
        assert_eq!(found[0].level, Level::Warning);
        let well = GetConfigStatusResponse {
            complete: true,
            ..unread
        };
        assert_eq!(config(&well)[0].level, Level::Ok);
    }
}
