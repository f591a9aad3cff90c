//! Which versions go with each other: hub, nabuctl, agents and Kubernetes. Pure.

use nabu_proto::admin_v1::GetVersionResponse;

use super::found::Found;

const CHECK: &str = "version";
/// The oldest Kubernetes that the charts are for; both say so as `kubeVersion`.
const OLDEST_KUBERNETES: (u64, u64) = (1, 29);

/// The command that brings the hub to the version of its chart.
pub(super) const UPGRADE_HUB: &str =
    "helm upgrade nabu-hub charts/nabu-hub --namespace nabu-system --reset-then-reuse-values";
/// The command that brings an agent to the version of its chart.
pub(super) const UPGRADE_AGENT: &str =
    "helm upgrade nabu-agent charts/nabu-agent --namespace nabu-system --reset-then-reuse-values";

/// The first two numbers: what may differ behind them does not matter. `None` for what is no version.
fn line_of(version: &str) -> Option<(u64, u64)> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let mut parts = version.split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The hub's version against ours: the same but for the last part.
pub(super) fn nabuctl(hub: &GetVersionResponse, own: &str) -> Found {
    let theirs = &hub.version;
    let message = format!("the hub is {theirs}, this nabuctl is {own}");
    match (line_of(theirs), line_of(own)) {
        (Some(hub), Some(nabuctl)) if hub == nabuctl => {
            Found::ok(CHECK, format!("hub {theirs}, nabuctl {own}"))
        }
        (Some(hub), Some(nabuctl)) if hub < nabuctl => Found::warning(CHECK, message, UPGRADE_HUB),
        _ => {
            let remedy = format!("install nabuctl {theirs}; nabuctl version shows both");
            Found::warning(CHECK, message, remedy)
        }
    }
}

/// An agent's version against the hub's, if they do not go together. The hub is upgraded first.
pub(super) fn agent(cluster: &str, agent: &str, hub: &str) -> Option<Found> {
    let (theirs, ours) = (line_of(agent), line_of(hub));
    if theirs == ours && theirs.is_some() {
        return None;
    }
    let message = format!("{cluster} runs agent {agent}, the hub is {hub}");
    let remedy = match (theirs, ours) {
        (Some(agent), Some(hub)) if agent > hub => {
            format!("{UPGRADE_HUB}; the hub goes before its agents")
        }
        _ => format!("in {cluster}: {UPGRADE_AGENT}"),
    };
    Some(Found::warning(CHECK, message, remedy))
}

/// A version of Kubernetes that is too old; `of` says whose.
pub(super) fn kubernetes(of: &str, version: &str) -> Option<Found> {
    let line = line_of(version)?;
    if line >= OLDEST_KUBERNETES {
        return None;
    }
    let (major, minor) = OLDEST_KUBERNETES;
    let message =
        format!("{of} runs Kubernetes {version}; {major}.{minor} is the oldest that is served");
    let remedy = "upgrade that cluster; kubectl version shows what it runs";
    Some(Found::error(CHECK, message, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nabuctl::check::found::Level;
    use crate::nabuctl::check::found::tests::assert_remedies;

    fn hub(version: &str) -> GetVersionResponse {
        GetVersionResponse {
            version: version.to_owned(),
            ..GetVersionResponse::default()
        }
    }

    #[test]
    fn versions_may_differ_in_their_last_part_only_and_the_older_side_is_to_be_upgraded() {
        assert_eq!(nabuctl(&hub("0.1.9"), "0.1.0").level, Level::Ok);
        let newer = nabuctl(&hub("0.2.0"), "0.1.0");
        assert!(newer.remedy.contains("install nabuctl 0.2.0"), "{newer:?}");
        let older = nabuctl(&hub("0.1.0"), "0.2.0");
        assert!(older.remedy.contains("helm upgrade nabu-hub"), "{older:?}");
        assert_eq!(agent("a", "0.1.0-test", "0.1.4"), None);
        let old = agent("a", "0.1.0", "0.10.0").unwrap();
        assert!(old.remedy.contains("helm upgrade nabu-agent"), "{old:?}");
        let new = agent("a", "0.10.0", "0.9.0").unwrap();
        assert!(new.remedy.contains("helm upgrade nabu-hub"), "{new:?}");
        let none = agent("a", "", "0.9.0").unwrap();
        assert_remedies(&[newer, older, old, new, none]);
    }

    #[test]
    fn kubernetes_is_too_old_below_what_the_charts_say() {
        assert_eq!(kubernetes("a", "v1.35.4"), None);
        assert_eq!(kubernetes("a", "v1.29.0-eks-1"), None);
        assert_eq!(kubernetes("a", ""), None, "nobody has said");
        let old = kubernetes("a", "v1.28.15+k3s1").unwrap();
        assert_eq!(old.level, Level::Error);
        assert_remedies(&[old]);
        for chart in ["nabu-hub", "nabu-agent"] {
            let path = format!(
                "{}/../charts/{chart}/Chart.yaml",
                env!("CARGO_MANIFEST_DIR")
            );
            let text = std::fs::read_to_string(path).unwrap();
            let (major, minor) = OLDEST_KUBERNETES;
            let said = format!("kubeVersion: \">={major}.{minor}.0-0\"");
            assert!(text.contains(&said), "{chart} does not say {said}");
        }
    }
}
