//! Texts of forges made fit for a status or a log: one short line without control characters and without the token.

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

/// How much of a forge's text is shown.
const SHOWN_CHARACTERS: usize = 300;

/// One line of at most 300 characters; control characters and runs of white space become one space.
pub(super) fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
    {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    match line.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// What an answer says of an error: `message` of a JSON object, else nothing. HTML pages of proxies tell nobody anything.
pub(super) fn error_message(body: &[u8], token: &SecretString) -> String {
    let Ok(Value::Object(object)) = serde_json::from_slice::<Value>(body) else {
        return String::new();
    };
    let message = ["message", "error_description", "error"]
        .into_iter()
        .filter_map(|key| object.get(key))
        .map(words)
        .find(|words| !words.is_empty())
        .unwrap_or_default();
    one_line(&without(&message, token))
}

/// The texts in a value. GitLab says most things in a list, and what is wrong with a field under its name.
fn words(value: &Value) -> String {
    let join = |parts: Vec<String>| {
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join("; ")
    };
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => join(values.iter().map(words).collect()),
        Value::Object(fields) => join(
            fields
                .iter()
                .map(|(name, value)| format!("{name}: {}", words(value)))
                .collect(),
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

/// The text without the token, should a forge send it back.
pub(super) fn without(text: &str, token: &SecretString) -> String {
    let token = token.expose_secret();
    if token.is_empty() {
        text.to_owned()
    } else {
        text.replace(token, "***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forges_text_becomes_one_short_line() {
        assert_eq!(one_line(" a\r\n\tb\u{1b}[31m  c \u{0}"), "a b [31m c");
        let long = one_line(&"ä".repeat(1000));
        assert_eq!(long.chars().count(), SHOWN_CHARACTERS + 1);
    }

    #[test]
    fn a_token_that_a_forge_sends_back_is_not_shown() {
        let token = SecretString::from("s3cret");
        let body = br#"{"message":"no user for s3cret\nhere"}"#;
        assert_eq!(error_message(body, &token), "no user for *** here");
        assert_eq!(error_message(b"<html>s3cret</html>", &token), "");
        for (body, expected) in [
            (r#"{"message":["one","two s3cret"]}"#, "one; two ***"),
            (r#"{"message":{"base":["no"]}}"#, "base: no"),
            (
                r#"{"error":"invalid_token","error_description":"Token was revoked."}"#,
                "Token was revoked.",
            ),
            (
                r#"{"message":null,"error":"404 Not Found"}"#,
                "404 Not Found",
            ),
        ] {
            assert_eq!(error_message(body.as_bytes(), &token), expected);
        }
        assert_eq!(
            error_message(br#"{"message":"x"}"#, &SecretString::from("")),
            "x"
        );
    }
}
