//! Who we are to the hub: our certificate, our role, and our clock against the hub's. Pure.

use jiff::{SignedDuration, Timestamp};
use nabu_common::identity::Identity;
use nabu_proto::admin_v1::GetVersionResponse;

use super::found::{Certifier, Found, Level, ends_soon};
use super::versions::UPGRADE_HUB;
use crate::nabuctl::view::text::timestamp;

/// Clocks that are further apart are worth a warning.
const SKEW_WARNING: SignedDuration = SignedDuration::from_secs(5);
/// Clocks that are further apart break certificates and tokens of GitHub Apps.
const SKEW_ERROR: SignedDuration = SignedDuration::from_secs(60);

/// What a certificate says.
#[derive(Clone, Debug)]
pub(super) struct CertificateFacts {
    /// Who it speaks for, or why for nobody.
    pub(super) identity: Result<Identity, String>,
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

/// Our certificate.
pub(super) fn certificate(
    facts: &CertificateFacts,
    folder: &str,
    certifier: Certifier,
    now: Timestamp,
) -> Found {
    const CHECK: &str = "certificate";
    let anew = |name: &str| issue(folder, name, certifier);
    let name = match &facts.identity {
        Ok(Identity::Admin(name)) => name,
        Ok(other) => {
            let message =
                format!("the certificate in {folder} is for {other}, not for an administrator");
            return Found::bad(CHECK, Level::Error, message, anew("NAME"));
        }
        Err(why) => {
            let message = format!("the certificate in {folder} speaks for nobody: {why}");
            return Found::bad(CHECK, Level::Error, message, anew("NAME"));
        }
    };
    let (from, until) = (facts.not_before, facts.not_after);
    if now < from {
        let message = format!("the certificate in {folder} holds only from {from:.0} on");
        let remedy = "set this machine's clock: timedatectl set-ntp true";
        return Found::bad(CHECK, Level::Error, message, remedy);
    }
    if now >= until {
        let message = format!("the certificate in {folder} has ended at {until:.0}");
        return Found::bad(CHECK, Level::Error, message, anew(name));
    }
    if ends_soon(until.duration_since(from), until, now) {
        let message = format!("the certificate in {folder} ends at {until:.0}");
        let remedy = match certifier {
            Certifier::Hub => {
                format!(
                    "nabuctl admin renew, with the role admin; else {}",
                    anew(name)
                )
            }
            _ => anew(name),
        };
        return Found::bad(CHECK, Level::Warning, message, remedy);
    }
    Found::ok(CHECK, format!("for admin/{name} until {until:.0}"))
}

/// How an administrator without a good certificate gets one.
pub(super) fn issue(folder: &str, name: &str, certifier: Certifier) -> String {
    let built_in = format!(
        "nabuctl admin add {name} --out {folder}, by another administrator, or nabu-hub init-admin {name} --out {folder} at the \
        hub"
    );
    let own = format!("nabuctl pki issue --out {folder} admin {name}");
    match certifier {
        Certifier::Hub => built_in,
        Certifier::OwnPki => own,
        Certifier::Unknown => {
            format!("with the built-in authority {built_in}; with your own PKI {own}")
        }
    }
}

/// The hub's clock against ours; `asked` and `answered` are before and after the question.
pub(super) fn clock(hub: &GetVersionResponse, asked: Timestamp, answered: Timestamp) -> Found {
    const CHECK: &str = "clock";
    let Some(theirs) = timestamp(hub.now) else {
        return Found::bad(CHECK, Level::Warning, "the hub tells no time", UPGRADE_HUB);
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
        "timedatectl status, here and at the hub, shows which is wrong; timedatectl set-ntp true mends it",
    )
}

/// Who the hub takes us for.
pub(super) fn role(hub: &GetVersionResponse) -> Found {
    Found::ok(
        "role",
        format!("{} has the role {}", hub.caller, hub.caller_role),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nabuctl::check::found::tests::assert_remedies;

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
        let facts = |identity, until| CertificateFacts {
            identity,
            not_before: at(0),
            not_after: at(until),
        };
        let ada = || Ok(Identity::Admin("ada".to_owned()));
        let day = 86_400;
        for (facts, now, level, words) in [
            (facts(ada(), 365 * day), 1, Level::Ok, ""),
            (
                facts(ada(), 365 * day),
                360 * day,
                Level::Warning,
                "nabuctl pki issue --out /x admin ada",
            ),
            (
                facts(ada(), day),
                2 * day,
                Level::Error,
                "nabuctl pki issue --out /x admin ada",
            ),
            (facts(ada(), day), -5, Level::Error, "timedatectl"),
            (
                facts(Ok(Identity::Hub("h".to_owned())), day),
                1,
                Level::Error,
                "admin NAME",
            ),
            (
                facts(Err("no URI".to_owned()), day),
                1,
                Level::Error,
                "admin NAME",
            ),
        ] {
            let found = certificate(&facts, "/x", Certifier::OwnPki, at(now));
            assert_eq!(found.level, level, "{found:?}");
            assert!(found.remedy.contains(words), "{found:?}");
            assert_remedies(&[found]);
        }
    }

    #[test]
    fn where_the_hub_certifies_it_renews_what_is_good_and_others_replace_what_is_not() {
        let facts = CertificateFacts {
            identity: Ok(Identity::Admin("ada".to_owned())),
            not_before: at(0),
            not_after: at(100),
        };
        let remedy = |certifier, now| certificate(&facts, "/x", certifier, at(now)).remedy;
        assert!(remedy(Certifier::Hub, 95).starts_with("nabuctl admin renew"));
        let ended = remedy(Certifier::Hub, 200);
        assert!(ended.starts_with("nabuctl admin add ada --out /x"));
        assert!(ended.contains("nabu-hub init-admin ada --out /x") && !ended.contains("pki"));
        let unknown = remedy(Certifier::Unknown, 200);
        assert!(unknown.contains("init-admin") && unknown.contains("pki issue"));
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
            let found = clock(&hub, at(4), at(10));
            assert_eq!(found.level, level, "{theirs}");
            assert_remedies(&[found]);
        }
        assert_remedies(&[clock(&GetVersionResponse::default(), at(4), at(10))]);
    }
}
