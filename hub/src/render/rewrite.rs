//! Rewrites Go-style field paths of a template (`{{ .Source.SE.Type }}`) to calls that Handlebars knows, line by line
//! the same, so that a message's line number is that of the template as it was written.
//!
//! `.A.B` and `$.A.B` become `lookup_path "A" "B"`, as do `Source.…`, `Cluster.…`, `Route.…` and `Change.…`, so that all
//! of them resolve alike; `this.A` becomes `lookup_this "A"`; `.` becomes `this`; `{{-` and `-}}` become `{{~` and `~}}`.

use std::fmt::Write as _;

/// The names at the root of a template's context.
const ROOTS: [&str; 4] = ["Source", "Cluster", "Route", "Change"];

/// Why a template is none, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) message: String,
}

/// The template with its paths rewritten.
pub(super) fn rewrite(template: &str) -> Result<String, Fault> {
    let mut out = String::with_capacity(template.len() + 64);
    let mut rest = template;
    while let Some(at) = rest.find("{{") {
        let (text, tag) = rest.split_at(at);
        out.push_str(text);
        let backslashes = text.len() - text.trim_end_matches('\\').len();
        if backslashes == 1 {
            out.push_str("{{");
            rest = &tag[2..];
            continue;
        }
        let line = 1 + template[..template.len() - tag.len()].matches('\n').count();
        let length = tag_length(tag).map_err(|message| Fault {
            line,
            message: message.to_owned(),
        })?;
        rewrite_tag(&tag[..length], &mut out);
        rest = &tag[length..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The bytes of a tag that a text begins with, braces included.
fn tag_length(tag: &str) -> Result<usize, &'static str> {
    if tag.starts_with("{{{{") {
        return Err("raw blocks ({{{{…}}}}) are not available");
    }
    if tag.starts_with("{{!--") {
        return tag
            .find("--}}")
            .map(|end| end + 4)
            .ok_or("the comment is not closed by --}}");
    }
    if tag.starts_with("{{!") {
        return tag
            .find("}}")
            .map(|end| end + 2)
            .ok_or("the comment is not closed by }}");
    }
    let mut at = 2;
    while at < tag.len() {
        let rest = &tag[at..];
        if rest.starts_with("}}") {
            let closing = if rest.starts_with("}}}") { 3 } else { 2 };
            return Ok(at + closing);
        }
        at += token(rest).len();
    }
    Err("{{ is not closed by }}")
}

fn rewrite_tag(tag: &str, out: &mut String) {
    if tag.starts_with("{{!") {
        out.push_str(tag);
        return;
    }
    let closing = if tag.ends_with("}}}") { "}}}" } else { "}}" };
    let mut inner = &tag[2..tag.len() - closing.len()];
    out.push_str("{{");
    if let Some(go_trim) = inner.strip_prefix("- ") {
        out.push_str("~ ");
        inner = go_trim;
    }
    let go_trim_end = inner.strip_suffix(" -");
    let mut rest = go_trim_end.unwrap_or(inner);
    // Raw output is not available, however it is asked for: `{{&x}}` is `{{x}}`, and `template` sees to `{{{x}}}`.
    let mut first = true;
    while !rest.is_empty() {
        let token = token(rest);
        rest = &rest[token.len()..];
        match token {
            "&" if first => {}
            _ if token.trim().is_empty() || matches!(token, "~" | "{") => out.push_str(token),
            _ => {
                let alone = first
                    && rest
                        .trim_matches(|c: char| c.is_whitespace() || matches!(c, '~' | '}'))
                        .is_empty();
                match call(token) {
                    Some(call) if alone => out.push_str(&call),
                    Some(call) => {
                        let _ = write!(out, "({call})");
                    }
                    None => out.push_str(token),
                }
                first = false;
            }
        }
    }
    if go_trim_end.is_some() {
        out.push_str(" ~");
    }
    out.push_str(closing);
}

/// The next token inside a tag: white space, a string, a path or word, or a single other character.
fn token(rest: &str) -> &str {
    let mut chars = rest.char_indices();
    let Some((_, first)) = chars.next() else {
        return rest;
    };
    let end = match first {
        '"' | '\'' => end_of_string(rest, first),
        c if c.is_whitespace() => rest
            .find(|c: char| !c.is_whitespace())
            .unwrap_or(rest.len()),
        c if in_path(c) => end_of_path(rest),
        c => c.len_utf8(),
    };
    &rest[..end]
}

fn end_of_string(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

fn in_path(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '$' | '@' | '/' | ':' | '[')
}

/// A path goes on through `[any key]`; at its start a `[` is a list.
fn end_of_path(rest: &str) -> usize {
    let mut at = 0;
    while let Some(c) = rest[at..].chars().next() {
        if c == '[' {
            if at > 0 && !rest[..at].ends_with('.') {
                return at;
            }
            at += rest[at..].find(']').map_or(rest.len() - at, |end| end + 1);
        } else if in_path(c) {
            at += c.len_utf8();
        } else {
            break;
        }
    }
    at
}

/// The helper call that a path stands for, without parentheses; nothing if Handlebars is to see the token as it is.
fn call(token: &str) -> Option<String> {
    if token == "." || token == "$" {
        return Some(
            if token == "." {
                "lookup_this"
            } else {
                "lookup_root"
            }
            .to_owned()
                + " \"\"",
        );
    }
    let go = token
        .strip_prefix("$.")
        .or_else(|| token.strip_prefix('.'))
        .or_else(|| token.strip_prefix("@root."));
    let (helper, path) = match (go, token.strip_prefix("this.")) {
        (Some(path), _) if token.starts_with('.') => ("lookup_path", path),
        (Some(path), _) => ("lookup_root", path),
        (None, Some(path)) => ("lookup_this", path),
        (None, None) => {
            let root = token.split('.').next().unwrap_or_default();
            ("lookup_root", ROOTS.contains(&root).then_some(token)?)
        }
    };
    let segments = segments(path)?;
    let mut call = helper.to_owned();
    for segment in segments {
        call.push(' ');
        call.push_str(&serde_json::Value::from(segment).to_string());
    }
    Some(call)
}

/// The names of a path; nothing if it is none (`../x`, `./x` and the like are left to Handlebars).
fn segments(path: &str) -> Option<Vec<&str>> {
    let mut segments = Vec::new();
    let mut rest = path;
    loop {
        let (segment, after) = if let Some(bracket) = rest.strip_prefix('[') {
            bracket.split_once(']')?
        } else {
            rest.split_at(rest.find('.').unwrap_or(rest.len()))
        };
        if segment.is_empty() || (!rest.starts_with('[') && segment.contains(['/', '@', ':', '[']))
        {
            return None;
        }
        segments.push(segment);
        match after.strip_prefix('.') {
            Some(next) => rest = next,
            None => return after.is_empty().then_some(segments),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_calls_wherever_they_stand() {
        for (template, rewritten) in [
            (
                "a {{ .Source.SE.Type }} b",
                "a {{ lookup_path \"Source\" \"SE\" \"Type\" }} b",
            ),
            ("{{.X}}", "{{lookup_path \"X\"}}"),
            ("{{{.X}}}", "{{{lookup_path \"X\"}}}"),
            ("{{&.X}}", "{{lookup_path \"X\"}}"),
            ("{{~ .X ~}}", "{{~ lookup_path \"X\" ~}}"),
            ("{{- .X -}}", "{{~ lookup_path \"X\" ~}}"),
            (
                "{{#if .X}}{{else if $.Y}}{{/if}}",
                "{{#if (lookup_path \"X\")}}{{else if (lookup_root \"Y\")}}{{/if}}",
            ),
            (
                "{{default .X.Y \".Z\"}}",
                "{{default (lookup_path \"X\" \"Y\") \".Z\"}}",
            ),
            (
                "{{eq (len .X) 1.5}}",
                "{{eq (len (lookup_path \"X\")) 1.5}}",
            ),
            ("{{h k=.X}}", "{{h k=(lookup_path \"X\")}}"),
            ("{{.L.[a.b/c]}}", "{{lookup_path \"L\" \"a.b/c\"}}"),
            (
                "{{Source.SE.type}}",
                "{{lookup_root \"Source\" \"SE\" \"type\"}}",
            ),
            (
                "{{this.A}} {{this}} {{@key}} {{../x}} {{./x}}",
                "{{lookup_this \"A\"}} {{this}} {{@key}} {{../x}} {{./x}}",
            ),
            ("{{.}}", "{{lookup_this \"\"}}"),
            ("{{! .X }}{{!-- }} .Y --}}", "{{! .X }}{{!-- }} .Y --}}"),
            (
                "\\{{ .X }} \\\\{{.Y}}",
                "\\{{ .X }} \\\\{{lookup_path \"Y\"}}",
            ),
            (
                "{{default .X \"}}\"}}",
                "{{default (lookup_path \"X\") \"}}\"}}",
            ),
            ("no tag .X }", "no tag .X }"),
        ] {
            assert_eq!(rewrite(template).unwrap(), rewritten, "{template}");
        }
    }

    #[test]
    fn an_open_tag_is_a_fault_with_its_line() {
        for (template, line) in [
            ("a\n{{ .X", 2),
            ("{{! x", 1),
            ("\n\n{{!-- }}", 3),
            ("{{{{raw}}}}", 1),
        ] {
            assert_eq!(rewrite(template).unwrap_err().line, line, "{template}");
        }
    }
}
