//! What neutralised text may not contain, checked by rules written down apart from those that make it.

use proptest::prelude::*;

use super::*;

const Z: char = ZERO_WIDTH_SPACE;

/// The first rule that a neutralised text breaks.
fn violation(text: &str) -> Option<String> {
    let chars: Vec<char> = text.chars().collect();
    for (at, &c) in chars.iter().enumerate() {
        let next = chars.get(at + 1).copied();
        let previous = at.checked_sub(1).map(|at| chars[at]);
        let bad = match c {
            '`' | '*' | '~' | '|' | '"' | '\'' => true,
            '@' | '#' | '!' | '&' | '$' | '%' | '[' | ']' | '<' | '\\' => next != Some(Z),
            '>' => previous != Some(Z),
            Z => false,
            c => c.is_control() || text::is_hidden(c) || matches!(c, '\u{2028}' | '\u{2029}'),
        };
        if bad {
            return Some(format!("{c:?} at {at}"));
        }
    }
    let lower = text.to_ascii_lowercase();
    for forbidden in ["://", "-->", "<!--", "]("] {
        if lower.contains(forbidden) {
            return Some(format!("{forbidden} in it"));
        }
    }
    for forbidden in [
        "mailto:x",
        "javascript:x",
        "www.x",
        "fixes #",
        "closes:",
        "gh-1",
    ] {
        let word = |at: usize| lower[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        if lower.match_indices(forbidden).any(|(at, _)| !word(at)) {
            return Some(format!("{forbidden} in it"));
        }
    }
    match chars.first() {
        Some(first) if *first == ' ' || first.is_ascii_punctuation() => {
            Some("opens a block".to_owned())
        }
        _ => None,
    }
}

fn adversarial() -> impl Strategy<Value = String> {
    let parts = [
        "@",
        "#",
        "!",
        "[",
        "]",
        "(",
        ")",
        "<",
        ">",
        "`",
        "\n",
        "\r",
        "\u{202e}",
        ":",
        "/",
        "//",
        "-",
        "--",
        "_",
        "*",
        "~",
        "|",
        "&",
        ";",
        "#64;",
        "\\",
        "1",
        "1.",
        "www.",
        "http://x",
        "mailto:x",
        "javascript:x",
        "GH-1",
        "fixes ",
        "closes:",
        "evil",
        "<!--",
        "-->",
        " ",
        "\t",
        "\u{200b}",
        "\u{2028}",
        "$",
        "%",
        "=",
        "+",
        "script",
        "\"",
        "'",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 0..24)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn no_text_keeps_a_trigger(text in prop_oneof![any::<String>(), adversarial()]) {
        let out = neutralise(&text);
        prop_assert_eq!(violation(&out), None, "{:?} became {:?}", text, out);
    }

    #[test]
    fn a_neutralised_text_stays_as_it_is(text in prop_oneof![any::<String>(), adversarial()]) {
        let once = neutralise(&text);
        prop_assert_eq!(neutralise(&once), once);
    }

    #[test]
    fn every_line_of_a_quotation_is_a_quotation(text in adversarial()) {
        for line in quote(&text).split('\n') {
            let line = line.strip_prefix("> ");
            prop_assert!(line.is_some_and(|line| violation(line).is_none()), "{:?}", line);
        }
    }

    #[test]
    fn code_never_mentions_or_holds_a_comment(text in adversarial()) {
        let out = verbatim(&text);
        let chars: Vec<char> = out.chars().collect();
        for pair in chars.windows(2) {
            prop_assert!(!(pair[0] == '@' && pair[1].is_alphanumeric()));
            prop_assert!(!(pair[0] == '#' && pair[1].is_ascii_digit()));
        }
        prop_assert!(!out.contains("-->") && !out.contains("<!--") && !out.contains('\r'));
    }
}

#[test]
fn names_of_kubernetes_objects_stay_as_they_are() {
    for name in [
        "evil-binding",
        "kube_proxy.v1",
        "system:serviceaccount:ns:name",
        "rbac.authorization.k8s.io/v1",
        "web-0",
        "ClusterAdminGranted",
        "10.0.0.7",
        "2026-01-02T03:04:05Z",
        "CVE-2026-1234",
        "fix-dns",
        "node(s)",
    ] {
        let shown = neutralise(name);
        assert_eq!(
            shown.trim_start_matches(Z),
            name,
            "only a leading guard is allowed"
        );
    }
    assert_eq!(neutralise("evil-binding"), "evil-binding");
}

#[test]
fn what_acts_is_broken() {
    for (text, shown) in [
        ("@team", "|@|team"),
        ("fixes #12", "f|ixes #|12"),
        ("Closes: GH-7", "C|loses: GH-|7"),
        ("see group/project!123", "see group/project!|123"),
        ("[a](https://evil)", "|[|a]|(https:|//evil)"),
        ("![x](y)", "|!|[|x]|(y)"),
        ("<script>", "|<|script|>"),
        ("www.evil.example", "www.|evil.example"),
        ("mailto:a@b.example", "mailto:|a@|b.example"),
        ("# heading", "|#| heading"),
        ("1. item", "|1. item"),
        ("- item", "|- item"),
        ("/merge", "|/merge"),
        ("&#64;you", "|&|#|64;you"),
        (
            "*a* `b` ~c~",
            "\u{2217}a\u{2217} \u{2cb}b\u{2cb} \u{223c}c\u{223c}",
        ),
        ("_a_ a_b", "|_|a|_| a_b"),
        ("[skip ci]", "|[|skip ci]|"),
        ("two\r\nlines", "two  lines"),
        (" led and trailed  ", "| led and trailed"),
    ] {
        assert_eq!(neutralise(text).replace(Z, "|"), shown, "{text}");
    }
}

#[test]
fn code_keeps_its_text() {
    let yaml = "a: b\n  # comment\n\tc: \"x|y\" `z`\n";
    assert_eq!(verbatim(yaml), yaml);
}
