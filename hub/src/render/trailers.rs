//! The commit message: subject, body, and a last paragraph of trailers that is ours alone.

use nabu_common::ids::ResponseKey;

use super::text::{self, ZERO_WIDTH_SPACE};

const MAX_SUBJECT: usize = 200;
const MAX_BODY: usize = 20_000;
const MAX_NAME: usize = 253;

/// Trailers that tools look for outside the last paragraph too, in lower case; and everything that ends with `-by`.
const WATCHED: [&str; 6] = [
    "skip-checks",
    "request-checks",
    "change-id",
    "cc",
    "fixes",
    "closes",
];

/// The whole message. Subject and body are neutralised already, but for what acts only at the start of a line.
pub(super) fn message(
    subject: &str,
    body: &str,
    key: &ResponseKey,
    security_event: Option<&str>,
) -> String {
    let mut message = text::clip(&text::squeeze(subject), MAX_SUBJECT);
    let body = defuse(body);
    if !body.is_empty() {
        message.push_str("\n\n");
        message.push_str(&body);
    }
    message.push_str("\n\nNabu-Cluster: ");
    message.push_str(key.cluster.as_str());
    message.push_str("\nNabu-Response: ");
    message.push_str(key.uid.as_str());
    if let Some(name) = security_event.map(sanitise).filter(|name| !name.is_empty()) {
        message.push_str("\nNabu-Security-Event: ");
        message.push_str(&name);
    }
    message.push('\n');
    message
}

/// The name of an object as a trailer's value.
fn sanitise(name: &str) -> String {
    let keep = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':') {
            c
        } else {
            '-'
        }
    };
    name.chars().take(MAX_NAME).map(keep).collect()
}

/// The body, cut to size, without lines that Git or a forge would take for trailers or for the end of the message.
fn defuse(body: &str) -> String {
    let body = text::clip(body.trim(), MAX_BODY);
    let lines: Vec<&str> = text::lines(&body).map(str::trim_end).collect();
    let last_paragraph = lines
        .iter()
        .rposition(|line| line.is_empty())
        .map_or(0, |blank| blank + 1);
    let mut out = String::with_capacity(body.len());
    for (number, line) in lines.iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        let token = token(line);
        let acts = token.is_some_and(|token| number >= last_paragraph || is_watched(token));
        // Git takes a line of three dashes for the end of the message, and the paragraph before it for the trailers.
        if acts || line.starts_with("---") {
            out.push(ZERO_WIDTH_SPACE);
        }
        out.push_str(line);
    }
    text::clip(&out, MAX_BODY)
}

/// What is before the `:` of a line that has the form of a trailer.
fn token(line: &str) -> Option<&str> {
    let (token, _) = line.split_once([':', '=', '#'])?;
    let token = token.trim();
    let valid = !token.is_empty() && token.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    (valid || token.starts_with("(cherry picked from")).then_some(token)
}

fn is_watched(token: &str) -> bool {
    let token = token.to_ascii_lowercase();
    token.starts_with("nabu-") || token.ends_with("-by") || WATCHED.contains(&token.as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> ResponseKey {
        ResponseKey {
            cluster: "prod-eu".parse().unwrap(),
            uid: "u-1".parse().unwrap(),
        }
    }

    const OURS: &str = "Nabu-Cluster: prod-eu\nNabu-Response: u-1\nNabu-Security-Event: se-1\n";

    #[test]
    fn a_message_has_subject_body_and_trailers() {
        let whole = message("Revoke  it\nnow", "Because.\n", &key(), Some("se-1"));
        assert_eq!(whole, format!("Revoke it now\n\nBecause.\n\n{OURS}"));
        assert_eq!(
            message("S", " ", &key(), None),
            "S\n\nNabu-Cluster: prod-eu\nNabu-Response: u-1\n"
        );
        let hostile = message("S", "", &key(), Some("a\nSigned-off-by: x"));
        assert!(
            hostile.ends_with("Nabu-Security-Event: a-Signed-off-by:-x\n"),
            "{hostile}"
        );
    }

    #[test]
    fn a_forged_trailer_is_no_trailer() {
        let body = "Signed-off-by: a\n\nNabu-Cluster: x\n---\n\nReviewed-by : b\nAny: c";
        let whole = message("S", body, &key(), Some("se-1"));
        for line in [
            "Signed-off-by",
            "Nabu-Cluster: x",
            "---",
            "Reviewed-by",
            "Any",
        ] {
            assert!(
                whole.contains(&format!("\n{ZERO_WIDTH_SPACE}{line}")),
                "{line} in {whole}"
            );
        }
    }

    #[test]
    fn git_itself_reads_our_trailers_only() {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        for body in [
            "Signed-off-by: a",
            "x\n---\ny",
            "(cherry picked from commit abc)\nA: b",
            "A: b\n\n",
        ] {
            let git = Command::new("git")
                .args(["interpret-trailers", "--parse"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn();
            let Ok(mut git) = git else { return };
            git.stdin
                .take()
                .unwrap()
                .write_all(message("S", body, &key(), Some("se-1")).as_bytes())
                .unwrap();
            let output = git.wait_with_output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), OURS, "{body}");
        }
    }

    proptest! {
        #[test]
        fn the_last_paragraph_is_always_ours(
            subject in any::<String>(),
            body in prop_oneof![any::<String>(), "((Nabu-Cluster|Signed-off-by|A): ?|---|\\n|\\r| |x){0,12}"],
        ) {
            let whole = message(&subject, &body, &key(), Some("se-1"));
            let (before, last) = whole.rsplit_once("\n\n").unwrap();
            prop_assert_eq!(last, OURS);
            for line in before.lines() {
                prop_assert!(!line.starts_with("Nabu-") || before.lines().next() == Some(line));
                prop_assert!(!line.starts_with("---") || before.lines().next() == Some(line));
            }
            prop_assert!(whole.lines().next().unwrap().chars().count() <= MAX_SUBJECT);
        }
    }
}
