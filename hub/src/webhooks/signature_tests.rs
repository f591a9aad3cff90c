//! Every scheme, good and bad, with the values that forges publish.

use http::HeaderName;
use proptest::prelude::*;

use super::super::tests::{STANDARD_SECRET, github_signature, standard_signature, tag};
use super::*;

const SIGNED: i64 = 1_614_265_330;

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        let name: HeaderName = name.parse().unwrap();
        (name, value.parse().unwrap())
    };
    pairs.iter().map(pair).collect()
}

fn holds_at(
    seconds: i64,
    forge: ForgeKind,
    pairs: &[(&str, &str)],
    body: &[u8],
    secrets: &[&str],
) -> bool {
    let secrets: Vec<_> = secrets
        .iter()
        .map(|secret| SecretString::from(*secret))
        .collect();
    let now = Timestamp::from_second(seconds).unwrap();
    Proof::from_headers(forge, &headers(pairs))
        .is_some_and(|proof| proof.holds(body, &secrets, now))
}

fn holds(forge: ForgeKind, pairs: &[(&str, &str)], body: &[u8], secrets: &[&str]) -> bool {
    holds_at(SIGNED, forge, pairs, body, secrets)
}

#[test]
fn the_example_of_githubs_documentation_holds() {
    let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let pairs = [("x-hub-signature-256", signature)];
    let secret = "It's a Secret to Everybody";
    assert!(holds(
        ForgeKind::GitHub,
        &pairs,
        b"Hello, World!",
        &[secret]
    ));
    assert!(!holds(
        ForgeKind::GitHub,
        &pairs,
        b"Hello, World?",
        &[secret]
    ));
}

#[test]
fn the_example_of_standard_webhooks_holds() {
    let pairs = [
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", "1614265330"),
        (
            "webhook-signature",
            "v1a,YWJj v1,bm9wZQ== v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
    ];
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let body = br#"{"test": 2432232314}"#;
    assert!(holds(ForgeKind::GitLab, &pairs, body, &["other", secret]));
    assert!(!holds(ForgeKind::GitLab, &pairs, b"{}", &[secret]));
    for other in [
        STANDARD_SECRET,
        "whsec_",
        "whsec_?",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    ] {
        assert!(!holds(ForgeKind::GitLab, &pairs, body, &[other]), "{other}");
    }
}

#[test]
fn a_signed_time_counts_for_five_minutes_in_both_directions() {
    let (signature, at) = (standard_signature("id", SIGNED, b"x"), SIGNED.to_string());
    let pairs = [
        ("webhook-id", "id"),
        ("webhook-timestamp", &*at),
        ("webhook-signature", &*signature),
    ];
    for (age, expected) in [(-301, false), (-300, true), (300, true), (301, false)] {
        let held = holds_at(
            SIGNED + age,
            ForgeKind::GitLab,
            &pairs,
            b"x",
            &[STANDARD_SECRET],
        );
        assert_eq!(held, expected, "{age} s");
    }
}

#[test]
fn malformed_standard_webhooks_are_refused() {
    let good = standard_signature("id", SIGNED, b"x");
    let at = SIGNED.to_string();
    let cases = [
        ("", &*at, &*good),
        ("i.d", &at, &good),
        ("id", "", &good),
        ("id", "-5", &good),
        ("id", "+1614265330", &good),
        ("id", "1614265330.0", &good),
        ("id", "99999999999999999999", &good),
        ("id", "999999999999999", &good),
        ("id", &at, ""),
        ("id", &at, "v1,"),
        ("id", &at, &good[3..]),
        ("id2", &at, &good),
    ];
    for (id, at, signature) in cases {
        let pairs = [
            ("webhook-id", id),
            ("webhook-timestamp", at),
            ("webhook-signature", signature),
            ("x-gitlab-token", "token"),
        ];
        let held = holds(ForgeKind::GitLab, &pairs, b"x", &[STANDARD_SECRET, "token"]);
        assert!(!held, "{id:?} {at:?} {signature:?}");
    }
}

#[test]
fn the_token_of_gitlab_must_be_equal_and_is_never_a_signing_key() {
    let token = |sent, secret| {
        holds(
            ForgeKind::GitLab,
            &[("x-gitlab-token", sent)],
            b"",
            &[secret],
        )
    };
    assert!(token("secret", "secret"));
    for sent in ["", "secre", "secret2", "Secret"] {
        assert!(!token(sent, "secret"), "{sent}");
    }
    assert!(!token("", ""));
    assert!(!token(STANDARD_SECRET, STANDARD_SECRET));
}

#[test]
fn forgejos_own_header_is_not_made_good_for_by_another() {
    let good = hex::encode(tag(b"secret", &[b"body"]));
    let github = github_signature("secret", b"body");
    let held = |pairs: &[(&str, &str)]| holds(ForgeKind::Forgejo, pairs, b"body", &["secret"]);
    assert!(held(&[("x-forgejo-signature", &good)]));
    assert!(held(&[("x-gitea-signature", &good)]));
    assert!(held(&[("x-hub-signature-256", &github)]));
    assert!(!held(&[("x-gitea-signature", &github)]));
    assert!(!held(&[
        ("x-gitea-signature", ""),
        ("x-hub-signature-256", &github)
    ]));
    assert!(!held(&[
        ("x-forgejo-signature", &"0".repeat(64)),
        ("x-gitea-signature", &good)
    ]));
}

#[test]
fn any_of_several_secrets_holds_and_an_empty_one_never_does() {
    for forge in [ForgeKind::GitHub, ForgeKind::Forgejo] {
        for (secret, expected) in [("a", true), ("c", true), ("d", false), ("", false)] {
            let signature = github_signature(secret, b"body");
            let pairs = [("x-hub-signature-256", &*signature)];
            assert_eq!(holds(forge, &pairs, b"body", &["a", "", "c"]), expected);
            assert!(!holds(forge, &pairs, b"body", &[]));
        }
    }
}

#[test]
fn a_header_that_is_there_twice_is_refused() {
    let signature = github_signature("secret", b"");
    let pairs = [("x-hub-signature-256", &*signature)];
    let mut headers = headers(&pairs);
    assert!(Proof::from_headers(ForgeKind::GitHub, &headers).is_some());
    headers.append("x-hub-signature-256", signature.parse().unwrap());
    assert_eq!(Proof::from_headers(ForgeKind::GitHub, &headers), None);
}

fn any_value() -> impl Strategy<Value = Vec<u8>> {
    let shaped = prop_oneof![
        "sha256=[0-9a-fA-F]{64}",
        "[0-9a-f]{64}",
        "(v1,[A-Za-z0-9+/]{43}= ?){1,10}",
        "[0-9]{1,20}",
        "whsec_[A-Za-z0-9+/]{0,44}",
    ];
    prop_oneof![
        shaped.prop_map(String::into_bytes),
        prop::collection::vec(prop_oneof![Just(b'\t'), 32..=126u8, 128..=255u8], 0..100),
    ]
}

proptest! {
    #[test]
    fn random_headers_never_panic_and_never_hold(
        values in prop::collection::vec((0..7usize, any_value()), 0..10),
        body in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let names = [
            "x-hub-signature-256", "x-forgejo-signature", "x-gitea-signature", "x-gitlab-token",
            "webhook-id", "webhook-timestamp", "webhook-signature",
        ];
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            headers.append(names[name], http::HeaderValue::from_bytes(&value).unwrap());
        }
        let secrets = [SecretString::from("a secret nobody guesses"), SecretString::from(STANDARD_SECRET)];
        let now = Timestamp::from_second(SIGNED).unwrap();
        for forge in [ForgeKind::GitHub, ForgeKind::GitLab, ForgeKind::Forgejo] {
            if let Some(proof) = Proof::from_headers(forge, &headers) {
                prop_assert!(!proof.holds(&body, &secrets, now));
            }
        }
    }
}
