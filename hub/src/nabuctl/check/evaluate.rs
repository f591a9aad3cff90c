//! What facts mean: each function looks at one thing and says whether it is well, and what mends it. Pure.

use jiff::{SignedDuration, Timestamp};
use nabu_common::identity::Identity;
use nabu_proto::admin_v1::{Cluster, Forge, GetConfigStatusResponse, GetVersionResponse};

use crate::nabuctl::view::text::{age, timestamp};

/// A certificate that ends sooner is worth a warning.
const SOON: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Clocks that are further apart are worth a warning.
const SKEW_WARNING: SignedDuration = SignedDuration::from_secs(5);
/// Clocks that are further apart break certificates and tokens of GitHub Apps.
const SKEW_ERROR: SignedDuration = SignedDuration::from_secs(60);

/// How well something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Ok,
    Warning,
    Error,
}

impl Level {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// What was found about one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// What was looked at, as a word for programs.
    pub(super) check: &'static str,
    pub(super) level: Level,
    pub(super) message: String,
    /// What mends it; empty if nothing has to be.
    pub(super) remedy: String,
}

impl Found {
    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Ok,
            message: message.into(),
            remedy: String::new(),
        }
    }

    pub(super) fn bad(
        check: &'static str,
        level: Level,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            check,
            level,
            message: message.into(),
            remedy: remedy.into(),
        }
    }
}

/// Who a certificate speaks for, as far as that can be seen here.
#[derive(Clone, Debug)]
pub(super) enum Named {
    /// In the form of our own, in whatever trust domain.
    Own(Identity),
    /// This one URI of another form: what it means, the hub knows by its `--admin-san`.
    Other(String),
    /// Nobody, and why.
    Nobody(String),
}

/// What a certificate says.
#[derive(Clone, Debug)]
pub(super) struct CertificateFacts {
    pub(super) named: Named,
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

/// Our certificate. `caller` is who the hub takes us for, if it has said so: it goes by its own rules for names.
pub(super) fn certificate(
    facts: &CertificateFacts,
    caller: Option<&str>,
    folder: &str,
    now: Timestamp,
) -> Found {
    const CHECK: &str = "certificate";
    let issue = |name: &str| match facts.named {
        Named::Other(_) => "get another one from the PKI that made it".to_owned(),
        _ => format!("nabuctl pki issue --out {folder} admin {name}"),
    };
    let said = caller.and_then(|caller| caller.strip_prefix("admin/"));
    let name = match (said, &facts.named) {
        (Some(name), _) => name,
        (None, Named::Own(Identity::Admin(name))) => name.as_str(),
        (None, Named::Own(other)) => {
            let message =
                format!("the certificate in {folder} is for {other}, not for an administrator");
            return Found::bad(CHECK, Level::Error, message, issue("NAME"));
        }
        (None, Named::Other(_)) => "NAME",
        (None, Named::Nobody(why)) => {
            let message = format!("the certificate in {folder} speaks for nobody: {why}");
            return Found::bad(CHECK, Level::Error, message, issue("NAME"));
        }
    };
    let (from, until) = (facts.not_before, facts.not_after);
    if now < from {
        let message = format!("the certificate in {folder} holds only from {from:.0} on");
        return Found::bad(CHECK, Level::Error, message, "set this machine's clock");
    }
    if now >= until {
        let message = format!("the certificate in {folder} has ended at {until:.0}");
        return Found::bad(CHECK, Level::Error, message, issue(name));
    }
    if until.duration_since(now) < SOON {
        let message = format!("the certificate in {folder} ends at {until:.0}");
        return Found::bad(CHECK, Level::Warning, message, issue(name));
    }
    match &facts.named {
        Named::Other(uri) if said.is_none() => Found::bad(
            CHECK,
            Level::Warning,
            format!(
                "the certificate in {folder} names {uri}, which only a hub with a fitting --admin-san knows"
            ),
            "compare it with --admin-san of nabu-hub; with a hub that can be reached, this check goes by what that says",
        ),
        _ => Found::ok(CHECK, format!("for admin/{name} until {until:.0}")),
    }
}

/// The hub's clock against ours; `asked` and `answered` are before and after the question.
pub(super) fn clock(hub: &GetVersionResponse, asked: Timestamp, answered: Timestamp) -> Found {
    const CHECK: &str = "clock";
    let Some(theirs) = timestamp(hub.now) else {
        return Found::bad(
            CHECK,
            Level::Warning,
            "the hub tells no time",
            "upgrade the hub",
        );
    };
    // As long as it lies between question and answer nothing is known to be wrong.
    let skew = if theirs < asked {
        asked.duration_since(theirs)
    } else if theirs > answered {
        theirs.duration_since(answered)
    } else {
        SignedDuration::ZERO
    };
    let level = match skew {
        skew if skew > SKEW_ERROR => Level::Error,
        skew if skew > SKEW_WARNING => Level::Warning,
        _ => {
            return Found::ok(CHECK, "the hub's clock agrees with this machine's");
        }
    };
    Found::bad(
        CHECK,
        level,
        format!(
            "the hub's clock is {} s away from this machine's",
            skew.as_secs()
        ),
        "compare both with a time server: timedatectl status",
    )
}

/// The hub's version against ours: the same but for the last part.
pub(super) fn version(hub: &GetVersionResponse, own: &str) -> Found {
    const CHECK: &str = "version";
    if line_of(&hub.version) == line_of(own) {
        let message = format!("hub {}, nabuctl {own}", hub.version);
        return Found::ok(CHECK, message);
    }
    Found::bad(
        CHECK,
        Level::Warning,
        format!("the hub is {}, this nabuctl is {own}", hub.version),
        "use the nabuctl of the hub's version",
    )
}

fn line_of(version: &str) -> String {
    version.splitn(3, '.').take(2).collect::<Vec<_>>().join(".")
}

/// Who the hub takes us for.
pub(super) fn role(hub: &GetVersionResponse) -> Found {
    Found::ok(
        "role",
        format!("{} has the role {}", hub.caller, hub.caller_role),
    )
}

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
            let remedy = format!(
                "correct {}; nabuctl config status shows what is in force",
                document.origin
            );
            found.push(Found::bad(CHECK, level, message, remedy));
        }
    }
    if status.routes.is_empty() {
        let remedy = "write a GitOpsResponderConfig with a route for the hub";
        found.push(Found::bad(
            CHECK,
            Level::Error,
            "no route is in force",
            remedy,
        ));
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

/// Forges and credentials.
pub(super) fn forges(forges: &[Forge]) -> Vec<Found> {
    let judge = |forge: &Forge| {
        let name = if forge.credential.is_empty() {
            forge.provider.clone()
        } else {
            format!("{} {}", forge.provider, forge.credential)
        };
        let (level, remedy) = match forge.state.as_str() {
            "CredentialMissing" => (
                Level::Error,
                format!("make the Secret {} with the keys that {} needs", forge.credential, forge.provider),
            ),
            "Failing" => (
                Level::Error,
                "nabuctl forge list -o wide shows the last answer; nabuctl response list --phase Failed what came of it".to_owned(),
            ),
            "Limited" | "Careful" => (
                Level::Warning,
                "nothing; the hub goes on by itself".to_owned(),
            ),
            _ if forge.parked > 0 => (
                Level::Warning,
                "nabuctl response list --reason RepositoryArchived --reason InstallationSuspended".to_owned(),
            ),
            state => {
                let message = format!("{name}: {state}");
                return Found::ok("forge", message);
            }
        };
        let parked = match forge.parked {
            0 => String::new(),
            parked => format!(", {parked} responses wait for people"),
        };
        let message = format!("{name}: {} {}{parked}", forge.state, forge.detail);
        Found::bad("forge", level, message, remedy)
    };
    forges.iter().map(judge).collect()
}

/// The clusters.
pub(super) fn clusters(clusters: &[Cluster], hub_version: &str, now: Timestamp) -> Vec<Found> {
    const CHECK: &str = "cluster";
    let mut found = Vec::new();
    for cluster in clusters {
        let id = &cluster.cluster_id;
        if !cluster.connected {
            let message = format!(
                "{id} has no session; last seen {} ago",
                age(cluster.last_seen_at, now)
            );
            let remedy =
                format!("look at the log of the agent of {id}, and at its /readyz?verbose");
            found.push(Found::bad(CHECK, Level::Error, message, remedy));
        } else if line_of(&cluster.agent_version) != line_of(hub_version) {
            let message = format!(
                "{id} runs agent {}, the hub is {hub_version}",
                cluster.agent_version
            );
            found.push(Found::bad(
                CHECK,
                Level::Warning,
                message,
                format!("upgrade the agent of {id}"),
            ));
        } else {
            found.push(Found::ok(
                CHECK,
                format!("{id} is connected, {} unfinished", cluster.unfinished),
            ));
        }
    }
    if found.is_empty() {
        let remedy = "install an agent in a cluster";
        found.push(Found::bad(
            CHECK,
            Level::Warning,
            "the hub knows no cluster yet",
            remedy,
        ));
    }
    found
}

/// Something that a Kubernetes cluster has to have.
pub(super) fn crd(name: &str, there: bool) -> Found {
    const CHECK: &str = "crd";
    if there {
        return Found::ok(CHECK, format!("{name} is served"));
    }
    let remedy = "kubectl apply -f charts/crds/ (EventResponse and SecurityEvent come with ugallu)";
    Found::bad(CHECK, Level::Error, format!("{name} is not served"), remedy)
}

/// A right that a service account needs.
pub(super) fn right(account: &str, verb: &str, resource: &str, allowed: bool) -> Found {
    const CHECK: &str = "rbac";
    if allowed {
        return Found::ok(CHECK, format!("{account} may {verb} {resource}"));
    }
    Found::bad(
        CHECK,
        Level::Error,
        format!("{account} may not {verb} {resource}"),
        format!(
            "give its ClusterRole the verb {verb} on {resource}; kubectl auth can-i {verb} {resource} --as {account} shows it"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn wire(second: i64) -> prost_types::Timestamp {
        prost_types::Timestamp {
            seconds: 1_800_000_000 + second,
            nanos: 0,
        }
    }

    #[test]
    fn a_certificate_that_has_ended_or_is_for_somebody_else_is_an_error_with_the_command_that_mends_it()
     {
        let facts = |named, until| CertificateFacts {
            named,
            not_before: at(0),
            not_after: at(until),
        };
        let ada = || Named::Own(Identity::Admin("ada".to_owned()));
        let day = 86_400;
        for (facts, now, level, words) in [
            (facts(ada(), 30 * day), 1, Level::Ok, ""),
            (
                facts(ada(), 3 * day),
                1,
                Level::Warning,
                "nabuctl pki issue --out /x admin ada",
            ),
            (
                facts(ada(), day),
                2 * day,
                Level::Error,
                "nabuctl pki issue --out /x admin ada",
            ),
            (facts(ada(), day), -5, Level::Error, "clock"),
            (
                facts(Named::Own(Identity::Hub("h".to_owned())), day),
                1,
                Level::Error,
                "admin NAME",
            ),
            (
                facts(Named::Nobody("no URI".to_owned()), day),
                1,
                Level::Error,
                "admin NAME",
            ),
        ] {
            let found = certificate(&facts, None, "/x", at(now));
            assert_eq!(found.level, level, "{found:?}");
            assert!(found.remedy.contains(words), "{found:?}");
        }
    }

    #[test]
    fn a_certificate_of_another_pki_is_for_whom_the_hub_says() {
        let facts = |until| CertificateFacts {
            named: Named::Other("https://sso.example/ada".to_owned()),
            not_before: at(0),
            not_after: at(until),
        };
        let month = 30 * 86_400;
        let found = certificate(&facts(month), Some("admin/ada"), "/x", at(1));
        assert_eq!(found.level, Level::Ok, "{found:?}");
        assert!(found.message.contains("admin/ada"), "{found:?}");
        let found = certificate(&facts(month), None, "/x", at(1));
        assert_eq!(found.level, Level::Warning, "{found:?}");
        assert!(
            found.message.contains("https://sso.example/ada"),
            "{found:?}"
        );
        for caller in [Some("admin/ada"), None] {
            let found = certificate(&facts(10), caller, "/x", at(11));
            assert_eq!(found.level, Level::Error, "{found:?}");
            assert!(found.remedy.contains("the PKI that made it"), "{found:?}");
        }
        // A name that means something else here and is let in there.
        let named = Named::Own(Identity::Hub("ada".to_owned()));
        let facts = CertificateFacts {
            named,
            ..facts(month)
        };
        let found = certificate(&facts, Some("admin/ada"), "/x", at(1));
        assert_eq!(found.level, Level::Ok, "{found:?}");
    }

    #[test]
    fn clocks_agree_if_the_hubs_lies_between_question_and_answer() {
        for (theirs, level) in [
            (5, Level::Ok),
            (14, Level::Ok),
            (30, Level::Warning),
            (-3, Level::Warning),
            (500, Level::Error),
        ] {
            let hub = GetVersionResponse {
                now: Some(wire(theirs)),
                ..GetVersionResponse::default()
            };
            assert_eq!(clock(&hub, at(4), at(10)).level, level, "{theirs}");
        }
    }

    #[test]
    fn versions_may_differ_in_their_last_part_only() {
        let hub = |version: &str| GetVersionResponse {
            version: version.to_owned(),
            ..GetVersionResponse::default()
        };
        assert_eq!(version(&hub("0.1.9"), "0.1.0").level, Level::Ok);
        assert_eq!(version(&hub("0.2.0"), "0.1.0").level, Level::Warning);
    }

    #[test]
    fn every_bad_thing_has_a_remedy() {
        let forge = |state: &str| Forge {
            state: state.to_owned(),
            provider: "gitlab-token".to_owned(),
            credential: "ns/bot".to_owned(),
            ..Forge::default()
        };
        let away = Cluster {
            cluster_id: "prod-eu".to_owned(),
            ..Cluster::default()
        };
        let mut all =
            forges(&["CredentialMissing", "Failing", "Limited", "Ready", "Idle"].map(forge));
        all.extend(clusters(&[away], "0.1.0", at(0)));
        all.extend(clusters(&[], "0.1.0", at(0)));
        all.extend(config(&GetConfigStatusResponse::default()));
        all.push(crd("x", false));
        all.push(right("a", "get", "x", false));
        for found in &all {
            assert_eq!(
                found.level == Level::Ok,
                found.remedy.is_empty(),
                "{found:?}"
            );
        }
        assert_eq!(
            all.iter().filter(|found| found.level == Level::Ok).count(),
            2
        );
    }
}
