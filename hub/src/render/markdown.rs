//! Takes the power out of hostile text that goes into Markdown, titles and commit messages.
//!
//! A value is written where the template's author put it: in a paragraph, a list item, a code span, a table cell. What is
//! done to it must hold in all of those, and must read naturally in all of those, so nothing is backslash-escaped (a
//! code span would show the backslash). A character that could act is followed by a zero-width space, which ends the
//! token that a forge looks for; the few characters that act alone are replaced by ones that look alike.

use super::text::{self, ZERO_WIDTH_SPACE};

/// Words that close or reopen an issue whose reference follows them, on GitHub, GitLab or Forgejo.
const CLOSING_WORDS: [&str; 20] = [
    "close",
    "closes",
    "closed",
    "closing",
    "fix",
    "fixes",
    "fixed",
    "fixing",
    "resolve",
    "resolves",
    "resolved",
    "resolving",
    "implement",
    "implements",
    "implemented",
    "implementing",
    "reopen",
    "reopens",
    "reopened",
    "reopening",
];

/// Schemes that make a link without `//`.
const BARE_SCHEMES: [&str; 14] = [
    "mailto",
    "xmpp",
    "javascript",
    "vbscript",
    "data",
    "tel",
    "sms",
    "magnet",
    "bitcoin",
    "cid",
    "mid",
    "file",
    "news",
    "sip",
];

/// One line of inert text: it mentions nobody, refers to and closes nothing, links nowhere, and is no markup.
///
/// Applied twice it gives the same text as applied once.
pub fn neutralise(value: &str) -> String {
    let mut chars: Vec<char> = text::one_line(value).map(look_alike).collect();
    // A space at the end would keep the template's own `**` from closing, and two would break the line.
    while chars.last() == Some(&' ') {
        chars.pop();
    }
    let mut out = String::with_capacity(value.len() + 8);
    if opens_a_block(&chars) && !acts_on_what_is_before(&chars, 0) {
        out.push(ZERO_WIDTH_SPACE);
    }
    for (at, &c) in chars.iter().enumerate() {
        if acts_on_what_is_before(&chars, at) {
            out.push(ZERO_WIDTH_SPACE);
        }
        out.push(c);
        if acts_on_what_follows(&chars, at) {
            out.push(ZERO_WIDTH_SPACE);
        }
    }
    out
}

/// Several lines, each [`neutralise`]d, each after `prefix`.
pub(super) fn neutralise_lines(value: &str, prefix: &str) -> String {
    let mut out = String::with_capacity(value.len() + 8);
    for (number, line) in text::lines(value.trim_end()).enumerate() {
        if number > 0 {
            out.push('\n');
        }
        out.push_str(prefix);
        out.push_str(&neutralise(line));
    }
    out
}

/// Several lines as a quotation.
pub(super) fn quote(value: &str) -> String {
    neutralise_lines(value, "> ")
}

/// The content of a fenced code block: as it is, but without hidden characters, and without what a forge might take
/// for a mention, a reference or the end of a comment should it look into code.
pub(super) fn verbatim(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 8);
    for (number, line) in text::lines(value).enumerate() {
        if number > 0 {
            out.push('\n');
        }
        let chars: Vec<char> = line
            .chars()
            .filter(|c| *c == '\t' || !text::is_hidden(*c))
            .collect();
        for (at, &c) in chars.iter().enumerate() {
            let before = |back: usize| at.checked_sub(back).map(|at| chars[at]);
            if c == '>'
                && (before(1) == Some('-') || (before(1) == Some('!') && before(2) == Some('-')))
            {
                out.push(ZERO_WIDTH_SPACE);
            }
            out.push(c);
            let next = chars.get(at + 1).copied();
            let acts = match c {
                '@' => next.is_some_and(char::is_alphanumeric),
                '#' => next.is_some_and(|next| next.is_ascii_digit()),
                '!' => next.is_some_and(|next| next.is_ascii_digit()),
                '<' => next == Some('!'),
                '-' => refers_to_an_issue(&chars, at),
                _ => false,
            };
            if acts {
                out.push(ZERO_WIDTH_SPACE);
            }
        }
    }
    out
}

/// Characters that act alone, or in pairs of themselves, wherever they stand.
fn look_alike(c: char) -> char {
    match c {
        '`' => '\u{2cb}',
        '*' => '\u{2217}',
        '~' => '\u{223c}',
        '|' => '\u{2223}',
        // A template may put a value into an HTML attribute.
        '"' => '\u{201d}',
        '\'' => '\u{2019}',
        other => other,
    }
}

/// Whether the text would begin a heading, list, quotation, rule, code block, reference definition, or a command to the
/// forge (GitLab's `/merge`), should it stand at the start of a line.
fn opens_a_block(chars: &[char]) -> bool {
    let Some(first) = chars.first() else {
        return false;
    };
    if first.is_ascii_digit() {
        let after = chars.iter().find(|c| !c.is_ascii_digit());
        return matches!(after, Some('.' | ')'));
    }
    first.is_ascii() && !first.is_ascii_alphanumeric()
}

fn acts_on_what_is_before(chars: &[char], at: usize) -> bool {
    match chars[at] {
        '>' => true,
        '_' => !inside_word(chars, at),
        _ => false,
    }
}

fn acts_on_what_follows(chars: &[char], at: usize) -> bool {
    match chars[at] {
        '@' | '#' | '!' | '&' | '$' | '%' | '[' | ']' | '<' | '\\' | '^' => true,
        '_' => !inside_word(chars, at),
        ':' => {
            chars.get(at + 1) == Some(&'/') && chars.get(at + 2) == Some(&'/')
                || after_bare_scheme(chars, at)
        }
        '.' => word_before(chars, at).eq_ignore_ascii_case("www"),
        '-' => refers_to_an_issue(chars, at),
        c if c.is_ascii_alphabetic() => begins_closing_word(chars, at),
        _ => false,
    }
}

/// An underscore between letters or digits is no emphasis; identifiers stay as they are.
fn inside_word(chars: &[char], at: usize) -> bool {
    let alphanumeric = |c: Option<&char>| c.is_some_and(char::is_ascii_alphanumeric);
    at > 0 && alphanumeric(chars.get(at - 1)) && alphanumeric(chars.get(at + 1))
}

/// The letters and digits right before a place; an underscore ends a word, as it does before an autolink.
fn word_before(chars: &[char], at: usize) -> String {
    let start = chars[..at]
        .iter()
        .rposition(|c| !c.is_ascii_alphanumeric())
        .map_or(0, |before| before + 1);
    chars[start..at].iter().collect()
}

fn after_bare_scheme(chars: &[char], at: usize) -> bool {
    let word = word_before(chars, at).to_ascii_lowercase();
    BARE_SCHEMES.contains(&word.as_str())
}

/// `GH-12` in any case, and `KEY-12` of other trackers; CVE numbers refer to nothing.
fn refers_to_an_issue(chars: &[char], at: usize) -> bool {
    if !chars.get(at + 1).is_some_and(char::is_ascii_digit) {
        return false;
    }
    let word = word_before(chars, at);
    let key = word.starts_with(|c: char| c.is_ascii_uppercase())
        && word
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    word.eq_ignore_ascii_case("gh") || (key && word != "CVE")
}

fn begins_closing_word(chars: &[char], at: usize) -> bool {
    if at > 0 && chars[at - 1].is_ascii_alphabetic() {
        return false;
    }
    let rest = &chars[at..];
    let length = rest
        .iter()
        .position(|c| !c.is_ascii_alphanumeric())
        .unwrap_or(rest.len());
    if !matches!(rest.get(length), None | Some(' ' | ':')) || length > "implementing".len() {
        return false;
    }
    let word: String = rest[..length]
        .iter()
        .map(char::to_ascii_lowercase)
        .collect();
    CLOSING_WORDS.contains(&word.as_str())
}

#[cfg(test)]
#[path = "markdown_tests.rs"]
mod tests;
