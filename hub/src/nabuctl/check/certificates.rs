//! What is known of the authorities that certify: the hub's own, and those in the administrator's `ca.crt`. Pure.

use jiff::{SignedDuration, Timestamp};
use nabu_proto::admin_v1::Rotation;

use super::addresses::Validity;
use super::found::{Certifier, Found};
use crate::nabuctl::view::text::timestamp;

const CHECK: &str = "authority";
/// An authority has to be replaced everywhere, which takes its time: so long before its end that is worth a warning.
const SOON: SignedDuration = SignedDuration::from_hours(90 * 24);

/// The hub's own authorities, and how far a rotation is.
pub(super) fn authorities(rotation: &Rotation, now: Timestamp) -> Vec<Found> {
    let mut found = Vec::new();
    for authority in &rotation.authorities {
        let Some(until) = timestamp(authority.not_after) else {
            continue;
        };
        // Those from files have no time at which the hub made them.
        let remedy = if authority.created_at.is_some() {
            "nabuctl ca rotate start makes a new one; nabuctl ca rotate status, then nabuctl ca rotate finish".to_owned()
        } else {
            "write a new one to the files of nabu-hub --ca-cert-file and --ca-key-file, beside the old certificate".to_owned()
        };
        let name = format!("the hub's authority {}", authority.pin);
        found.push(ends(&name, until, remedy, now));
    }
    if rotation.state != "Settled" && !rotation.state.is_empty() {
        let waiting = match rotation.waiting_for.as_slice() {
            [] => "nobody depends on the old authority any more".to_owned(),
            waiting => format!(
                "{} still depend on the old authority: {}",
                waiting.len(),
                waiting.join(", ")
            ),
        };
        let message = format!("a rotation is under way ({}); {waiting}", rotation.state);
        let remedy = if rotation.waiting_for.is_empty() {
            "nabuctl ca rotate finish"
        } else {
            "nabuctl ca rotate status shows them, and nabuctl ca rotate finish ends it; administrators among them run nabuctl admin \
            renew"
        };
        found.push(Found::warning(CHECK, message, remedy));
    }
    found
}

/// The authorities in our `ca.crt`.
pub(super) fn trusted(
    folder: &str,
    known: &[Validity],
    certifier: Certifier,
    now: Timestamp,
) -> Option<Found> {
    // As long as one of them is good, a rotation may be what the others are there for.
    let until = known.iter().map(|one| one.until).max()?;
    let own = "nabuctl pki init --dir NEW makes another authority: put both certificates into every ca.crt, issue anew, then take the \
        old one out";
    let built_in =
        "nabuctl admin renew, before it ends; then nabu-hub init-admin NAME --out DIR at the hub";
    let remedy = match certifier {
        Certifier::Hub => format!("{built_in} writes a new {folder}/ca.crt"),
        Certifier::OwnPki => own.to_owned(),
        Certifier::Unknown => {
            format!("with the built-in authority {built_in}; with your own PKI {own}")
        }
    };
    Some(ends(
        &format!("the authority in {folder}/ca.crt"),
        until,
        remedy,
        now,
    ))
}

/// That certificates of agents are known to their own PKI only.
pub(super) fn of_agents_elsewhere() -> Found {
    let message =
        "certificates of agents are of your own PKI, and the hub does not know when they end";
    let remedy = "in each cluster: kubectl -n nabu-system logs deployment/nabu-agent, or your PKI's own list";
    Found::skipped("certificate", message, remedy)
}

fn ends(name: &str, until: Timestamp, remedy: String, now: Timestamp) -> Found {
    if now >= until {
        return Found::error(CHECK, format!("{name} has ended at {until:.0}"), remedy);
    }
    if until.duration_since(now) < SOON {
        return Found::warning(CHECK, format!("{name} ends at {until:.0}"), remedy);
    }
    Found::ok(CHECK, format!("{name} is good until {until:.0}"))
}

#[cfg(test)]
mod tests {
    use nabu_proto::admin_v1::Authority;

    use super::*;
    use crate::nabuctl::check::found::Level;
    use crate::nabuctl::check::found::tests::assert_remedies;

    const NOW: i64 = 1_800_000_000;
    const DAY: i64 = 86_400;

    fn now() -> Timestamp {
        Timestamp::from_second(NOW).unwrap()
    }

    fn at(days: i64) -> prost_types::Timestamp {
        prost_types::Timestamp {
            seconds: NOW + days * DAY,
            nanos: 0,
        }
    }

    fn authority(days: i64, stored: bool) -> Authority {
        Authority {
            pin: "sha256:aa".to_owned(),
            created_at: stored.then(|| at(-1)),
            not_after: Some(at(days)),
            ..Authority::default()
        }
    }

    #[test]
    fn an_authority_is_replaced_in_time_and_where_it_comes_from() {
        for (days, stored, level, words) in [
            (100, true, Level::Ok, ""),
            (80, true, Level::Warning, "nabuctl ca rotate start"),
            (-1, true, Level::Error, "nabuctl ca rotate start"),
            (80, false, Level::Warning, "--ca-cert-file"),
        ] {
            let rotation = Rotation {
                state: "Settled".to_owned(),
                authorities: vec![authority(days, stored)],
                ..Rotation::default()
            };
            let found = authorities(&rotation, now());
            // What is well needs no command, though there is one.
            assert_eq!(found[0].level, level, "{found:?}");
            assert!(found[0].remedy.contains(words), "{found:?}");
            assert_remedies(&found);
        }
    }

    #[test]
    fn a_rotation_under_way_says_for_whom_it_waits() {
        let rotating = |waiting: &[&str]| Rotation {
            state: "Rotating".to_owned(),
            authorities: vec![authority(1000, true), authority(1000, true)],
            waiting_for: waiting.iter().map(|one| (*one).to_owned()).collect(),
        };
        let waits = authorities(&rotating(&["cluster/prod-eu"]), now());
        assert!(waits[2].message.contains("cluster/prod-eu"), "{waits:?}");
        let done = authorities(&rotating(&[]), now());
        assert_eq!(done[2].remedy, "nabuctl ca rotate finish");
        assert_remedies(&waits);
        assert_remedies(&done);
    }

    #[test]
    fn one_good_authority_in_ca_crt_is_enough() {
        let validity = |days: i64| Validity {
            from: now(),
            until: Timestamp::from_second(NOW + days * DAY).unwrap(),
        };
        let judge = |days: &[i64], certifier| {
            let known: Vec<_> = days.iter().map(|days| validity(*days)).collect();
            let found = trusted("/x", &known, certifier, now());
            assert_remedies(found.as_slice());
            found.map(|found| (found.level, found.remedy))
        };
        assert_eq!(judge(&[], Certifier::Hub), None);
        let good = judge(&[-5, 500], Certifier::Hub).unwrap();
        assert_eq!(good, (Level::Ok, String::new()));
        let (level, remedy) = judge(&[-5], Certifier::OwnPki).unwrap();
        assert_eq!(level, Level::Error);
        assert!(remedy.starts_with("nabuctl pki init"), "{remedy}");
        let (level, remedy) = judge(&[10], Certifier::Unknown).unwrap();
        assert_eq!(level, Level::Warning);
        assert!(remedy.contains("init-admin") && remedy.contains("pki init"));
        assert_remedies(&[of_agents_elsewhere()]);
    }
}
