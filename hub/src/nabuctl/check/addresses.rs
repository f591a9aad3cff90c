//! What came of dialling the hub's doors: the address, and the certificate that is shown there. Pure.

use jiff::Timestamp;

use super::found::{Certifier, Found, ends_soon};
use super::handshake::{Address, Fault};
use super::versions::UPGRADE_HUB;

/// One of the hub's doors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    Admin,
    Agents,
}

impl Door {
    pub(super) const fn check(self) -> &'static str {
        match self {
            Self::Admin => "hub",
            Self::Agents => "agents",
        }
    }

    const fn whose(self) -> &'static str {
        match self {
            Self::Admin => "administrators",
            Self::Agents => "agents",
        }
    }

    /// How to come to it where it has no address outside of its cluster.
    fn forward(self, to: &Address) -> String {
        let port = to.port;
        match self {
            Self::Admin => format!(
                "kubectl -n nabu-system port-forward service/nabu-hub-admin {port}, then nabuctl --hub https://localhost:{port} \
                --server-name {} check",
                to.host
            ),
            Self::Agents => format!(
                "kubectl -n nabu-system port-forward service/nabu-hub-agents {port}, then nabuctl check --agents-url \
                https://localhost:{port} --agents-server-name {}",
                to.host
            ),
        }
    }
}

/// When a certificate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

/// That a door can be dialled, and shows a certificate that we take.
pub(super) fn open(door: Door, url: &str) -> Found {
    let message = format!("{url} answers, with a certificate of the authority that is known here");
    Found::ok(door.check(), message)
}

/// That there is somebody at the address of the agents, and nothing to hold the certificate against.
pub(super) fn unproven(url: &str) -> Found {
    let message =
        format!("{url} takes connections; its certificate cannot be judged without an authority");
    let remedy = "nabuctl check --agents-ca-pin sha256:… (the pin that nabuctl cluster add prints), or --tls-dir DIR";
    Found::skipped(Door::Agents.check(), message, remedy)
}

/// That the address of the agents is not known.
pub(super) fn not_told(asked: bool) -> Found {
    let message = if asked {
        "the hub was not told the address that agents dial"
    } else {
        "the address that agents dial is not known without the hub"
    };
    let remedy = "nabuctl check --agents-url https://HOST:8443 tries one; nabu-hub --agents-url tells it the hub";
    Found::skipped(Door::Agents.check(), message, remedy)
}

/// Why a door cannot be used.
pub(super) fn shut(door: Door, url: &str, fault: &Fault, certifier: Certifier) -> Found {
    let (check, whose) = (door.check(), door.whose());
    let Ok(to) = Address::parse(url) else {
        let remedy = match door {
            Door::Admin => "nabuctl context set NAME --hub https://HOST:8444 --tls-dir DIR",
            Door::Agents => "nabu-hub --agents-url https://HOST:8443",
        };
        let message = format!("{url:?} is no address that {whose} can dial");
        return Found::error(check, message, remedy);
    };
    let Address { host, port, .. } = &to;
    match fault {
        Fault::NoAddress(why) => Found::error(check, why, "nabuctl context list"),
        Fault::Unresolved(why) => {
            let message = format!("nobody knows where {host} is: {why}");
            let remedy = door.forward(&to);
            if to.is_inside_a_cluster() {
                let message = format!("{host} can be dialled from pods of the hub's cluster only");
                return if door == Door::Agents {
                    Found::skipped(check, message, remedy)
                } else {
                    Found::error(check, message, remedy)
                };
            }
            let remedy = format!("give the name an address in your DNS; until then: {remedy}");
            Found::error(check, message, remedy)
        }
        Fault::Unreachable(why) => {
            let message = format!("nothing takes connections at {url}: {why}");
            let remedy = format!(
                "kubectl -n nabu-system get pods,services shows whether the hub runs and what leads to it; without a way from \
                here: {}",
                door.forward(&to)
            );
            Found::error(check, message, remedy)
        }
        Fault::Ended(until) => {
            let at = until.map(|at| format!(" at {at:.0}")).unwrap_or_default();
            let message = format!("the certificate that the hub shows to {whose} has ended{at}");
            Found::error(check, message, renew(&to, certifier))
        }
        Fault::NotYet => {
            let message = format!(
                "the certificate that the hub shows to {whose} is not valid yet: one of the two clocks is wrong"
            );
            Found::error(
                check,
                message,
                "timedatectl status, here and at the hub; timedatectl set-ntp true mends it",
            )
        }
        Fault::UnknownAuthority => {
            let message = format!(
                "what answers at {url} is certified by an authority that is not in ca.crt, or not the one of the pin"
            );
            let remedy = format!(
                "openssl s_client -connect {host}:{port} -showcerts shows who answers; {}",
                learn_authority(certifier)
            );
            Found::error(check, message, remedy)
        }
        Fault::OtherName { wanted, has } => {
            let names = match has.as_slice() {
                [] => String::new(),
                names => format!(", but for {}", names.join(", ")),
            };
            let message =
                format!("the certificate that the hub shows to {whose} is not for {wanted}{names}");
            Found::error(check, message, rename(door, wanted, has, certifier))
        }
        Fault::Tls(why) => {
            let message = format!("there is no TLS with {url}: {why}");
            let remedy = format!(
                "openssl s_client -connect {host}:{port} shows what answers; what is in front of the hub must pass TLS through"
            );
            Found::error(check, message, remedy)
        }
    }
}

/// The certificate that a door shows.
pub(super) fn serving(
    door: Door,
    to: &Address,
    shown: Validity,
    certifier: Certifier,
    now: Timestamp,
) -> Found {
    const CHECK: &str = "certificate";
    let (whose, until) = (door.whose(), shown.until);
    if !ends_soon(until.duration_since(shown.from), until, now) {
        let message = format!("the hub's, for {whose}, until {until:.0}");
        return Found::ok(CHECK, message);
    }
    let message = format!("the certificate that the hub shows to {whose} ends at {until:.0}");
    Found::warning(CHECK, message, renew(to, certifier))
}

fn renew(to: &Address, certifier: Certifier) -> String {
    let built_in = "the hub renews its own by itself, and says in its log why it could not: kubectl -n nabu-system logs \
        deployment/nabu-hub";
    let own = issue(&to.host);
    match certifier {
        Certifier::Hub => built_in.to_owned(),
        Certifier::OwnPki => own,
        Certifier::Unknown => {
            format!("with the built-in authority {built_in}; with your own PKI {own}")
        }
    }
}

/// What to do when a door has another name. Through a tunnel the hub is called by a name of this machine: then it is enough to say
/// which of its names is meant, and no name may get lost when one is added.
fn rename(door: Door, host: &str, has: &[String], certifier: Certifier) -> String {
    let flag = match door {
        Door::Admin => "--server-name",
        Door::Agents => "--agents-server-name",
    };
    let call = has
        .first()
        .map(|name| format!("through a tunnel or proxy: nabuctl check {flag} {name}; else "));
    let call = call.unwrap_or_default();
    let every: Vec<_> = has.iter().map(String::as_str).chain([host]).collect();
    let built_in = format!(
        "{UPGRADE_HUB} --set 'tls.builtin.serverNames={{{}}}', or nabu-hub with --server-name {host} as well",
        every.join(",")
    );
    let named = match certifier {
        Certifier::Hub => built_in,
        Certifier::OwnPki => issue(host),
        Certifier::Unknown => format!(
            "with the built-in authority {built_in}; with your own PKI {}",
            issue(host)
        ),
    };
    format!("{call}{named}")
}

fn issue(host: &str) -> String {
    let kind = match host.parse::<std::net::IpAddr>() {
        Ok(_) => "ip",
        Err(_) => "dns",
    };
    format!(
        "nabuctl pki issue --ca pki --out hub hub --{kind} {host} (with every other name), and its files in place of the present \
        ones"
    )
}

fn learn_authority(certifier: Certifier) -> &'static str {
    match certifier {
        Certifier::OwnPki => {
            "nabuctl pki issue --ca pki --out DIR admin NAME writes the ca.crt of your PKI"
        }
        _ => {
            "nabuctl admin add NAME --out DIR, by another administrator, or nabu-hub init-admin NAME --out DIR at the hub, writes \
            the ca.crt of the hub's authority"
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::nabuctl::check::found::Level;
    use crate::nabuctl::check::found::tests::assert_remedies;

    const URL: &str = "https://hub.example:8443";
    const INSIDE: &str = "https://nabu-hub-agents.nabu-system.svc:8443";

    fn other_name(has: &[&str]) -> Fault {
        Fault::OtherName {
            wanted: "hub.example".to_owned(),
            has: has.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn every_way_to_fail_at_a_door_has_a_command_that_mends_it() {
        let faults = [
            Fault::NoAddress("x".to_owned()),
            Fault::Unresolved("no such host".to_owned()),
            Fault::Unreachable("refused".to_owned()),
            Fault::Ended(None),
            Fault::Ended(Some(Timestamp::UNIX_EPOCH)),
            Fault::NotYet,
            Fault::UnknownAuthority,
            other_name(&[]),
            other_name(&["other.example"]),
            Fault::Tls("odd".to_owned()),
        ];
        for fault in &faults {
            for door in [Door::Admin, Door::Agents] {
                for certifier in [Certifier::Hub, Certifier::OwnPki, Certifier::Unknown] {
                    for url in [URL, "nonsense"] {
                        let found = shut(door, url, fault, certifier);
                        assert_eq!(found.level, Level::Error, "{found:?}");
                        assert_remedies(&[found]);
                    }
                }
            }
        }
        assert_remedies(&[
            open(Door::Agents, URL),
            unproven(URL),
            not_told(true),
            not_told(false),
        ]);
    }

    #[test]
    fn an_address_of_a_cluster_is_no_mistake_where_it_cannot_be_resolved() {
        let fault = Fault::Unresolved("no such host".to_owned());
        let found = shut(Door::Agents, INSIDE, &fault, Certifier::Hub);
        assert_eq!(found.level, Level::Skipped);
        let words = "port-forward service/nabu-hub-agents 8443, then nabuctl check --agents-url https://localhost:8443 \
            --agents-server-name nabu-hub-agents.nabu-system.svc";
        assert!(found.remedy.contains(words), "{found:?}");
        let admin = shut(Door::Admin, INSIDE, &fault, Certifier::Hub);
        assert_eq!(admin.level, Level::Error, "nothing else can be looked at");
    }

    #[test]
    fn what_mends_a_certificate_depends_on_who_makes_it() {
        let fault = other_name(&[]);
        let remedy = |certifier| shut(Door::Agents, URL, &fault, certifier).remedy;
        assert!(remedy(Certifier::Hub).contains("--server-name hub.example"));
        assert!(!remedy(Certifier::Hub).contains("pki issue"));
        assert!(remedy(Certifier::OwnPki).starts_with("nabuctl pki issue"));
        let both = remedy(Certifier::Unknown);
        assert!(
            both.contains("pki issue") && both.contains("nabu-hub with --server-name hub.example")
        );
    }

    #[test]
    fn a_name_that_is_missing_is_added_to_those_that_are_there_and_a_tunnel_needs_none() {
        let fault = other_name(&["outside.example", "inside.svc"]);
        let found = shut(Door::Agents, URL, &fault, Certifier::Hub);
        let (first, second) = (
            "nabuctl check --agents-server-name outside.example",
            "serverNames={outside.example,inside.svc,hub.example}",
        );
        assert!(
            found.remedy.contains(first) && found.remedy.contains(second),
            "{found:?}"
        );
    }

    #[test]
    fn a_hub_that_did_not_renew_its_certificate_is_worth_a_warning() {
        let from = Timestamp::from_second(1_800_000_000).unwrap();
        let hour = SignedDuration::from_hours(1);
        let shown = Validity {
            from,
            until: from + hour * (7 * 24 + 2),
        };
        let to = Address::parse(URL).unwrap();
        let judge = |now| serving(Door::Admin, &to, shown, Certifier::Hub, now);
        // It renews at two thirds of its seven days.
        assert_eq!(judge(from + hour * 114).level, Level::Ok);
        let late = judge(from + hour * 150);
        assert_eq!(late.level, Level::Warning);
        assert_remedies(&[late, judge(from)]);
    }
}
