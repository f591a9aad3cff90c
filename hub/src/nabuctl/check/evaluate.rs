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
    certifier: Certifier,
    now: Timestamp,
) -> Found {
    const CHECK: &str = "certificate";
    let anew = |name: &str| match &facts.named {
        Named::Other(uri) => format!(
            "get another one for {uri} from the PKI that made it, then nabuctl context set NAME --tls-dir {folder}"
        ),
        _ => issue(folder, name, certifier),
    };
    let said = caller.and_then(|caller| caller.strip_prefix("admin/"));
    let name = match (said, &facts.named) {
        (Some(name), _) => name,
        (None, Named::Own(Identity::Admin(name))) => name.as_str(),
        (None, Named::Own(other)) => {
            let message =
                format!("the certificate in {folder} is for {other}, not for an administrator");
            return Found::bad(CHECK, Level::Error, message, anew("NAME"));
        }
        (None, Named::Other(_)) => "NAME",
        (None, Named::Nobody(why)) => {
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
    match &facts.named {
        Named::Other(uri) if said.is_none() => Found::bad(
            CHECK,
            Level::Warning,
            format!(
                "the certificate in {folder} names {uri}, which only a hub with a fitting --admin-san knows"
            ),
            "nabuctl check again when the hub can be reached, and it goes by what that says; else compare with nabu-hub --admin-san",
        ),
        _ => Found::ok(CHECK, format!("for admin/{name} until {until:.0}")),
    }
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
        let facts = |named, until| CertificateFacts {
            named,
            not_before: at(0),
            not_after: at(until),
        };
        let ada = || Named::Own(Identity::Admin("ada".to_owned()));
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
            let found = certificate(&facts, None, "/x", Certifier::OwnPki, at(now));
            assert_eq!(found.level, level, "{found:?}");
            assert!(found.remedy.contains(words), "{found:?}");
            assert_remedies(&[found]);
        }
    }

    #[test]
    fn where_the_hub_certifies_it_renews_what_is_good_and_others_replace_what_is_not() {
        let facts = CertificateFacts {
            named: Named::Own(Identity::Admin("ada".to_owned())),
            not_before: at(0),
            not_after: at(100),
        };
        let remedy = |certifier, now| certificate(&facts, None, "/x", certifier, at(now)).remedy;
        assert!(remedy(Certifier::Hub, 95).starts_with("nabuctl admin renew"));
        let ended = remedy(Certifier::Hub, 200);
        assert!(ended.starts_with("nabuctl admin add ada --out /x"));
        assert!(ended.contains("nabu-hub init-admin ada --out /x") && !ended.contains("pki"));
        let unknown = remedy(Certifier::Unknown, 200);
        assert!(unknown.contains("init-admin") && unknown.contains("pki issue"));
    }

    #[test]
    fn a_certificate_of_another_pki_is_for_whom_the_hub_says() {
        let facts = |until| CertificateFacts {
            named: Named::Other("https://sso.example/ada".to_owned()),
            not_before: at(0),
            not_after: at(until),
        };
        let month = 30 * 86_400;
        let found = certificate(
            &facts(month),
            Some("admin/ada"),
            "/x",
            Certifier::OwnPki,
            at(1),
        );
        assert_eq!(found.level, Level::Ok, "{found:?}");
        assert!(found.message.contains("admin/ada"), "{found:?}");
        let found = certificate(&facts(month), None, "/x", Certifier::OwnPki, at(1));
        assert_eq!(found.level, Level::Warning, "{found:?}");
        assert!(
            found.message.contains("https://sso.example/ada"),
            "{found:?}"
        );
        for caller in [Some("admin/ada"), None] {
            let found = certificate(&facts(10), caller, "/x", Certifier::OwnPki, at(11));
            assert_eq!(found.level, Level::Error, "{found:?}");
            assert!(found.remedy.contains("the PKI that made it"), "{found:?}");
        }
        // A name that means something else here and is let in there.
        let named = Named::Own(Identity::Hub("ada".to_owned()));
        let facts = CertificateFacts {
            named,
            ..facts(month)
        };
        let found = certificate(&facts, Some("admin/ada"), "/x", Certifier::OwnPki, at(1));
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
            let found = clock(&hub, at(4), at(10));
            assert_eq!(found.level, level, "{theirs}");
            assert_remedies(&[found]);
        }
        assert_remedies(&[clock(&GetVersionResponse::default(), at(4), at(10))]);
    }
}
