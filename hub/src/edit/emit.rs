//! Writes values as text that looks like its surroundings and that every YAML reader, of 1.1 or 1.2, takes for the same.

use granit_parser::ScalarStyle;
use indexmap::IndexMap;

use super::plain::Plain;

/// What a file does where YAML and JSON leave a choice.
#[derive(Clone, Debug)]
pub(super) struct Style {
    /// JSON: everything is quoted, nothing is block style.
    pub(super) json: bool,
    /// How line breaks are written.
    pub(super) line_break: &'static str,
    /// What a level is indented by; a tab or some spaces.
    pub(super) indent: String,
    /// What the dashes of a list are indented by below their key; YAML only.
    pub(super) dash_indent: usize,
    /// Whether what is inserted into an empty collection may take several lines; JSON only.
    pub(super) multi_line: bool,
}

/// A value in block style: what stands behind the colon or dash, and the lines below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) inline: String,
    pub(super) lines: Vec<String>,
}

impl Style {
    /// A value behind the key or dash at a column; what goes below a key may be indented by `body` columns instead of
    /// the usual.
    pub(super) fn block(
        &self,
        value: &Plain,
        column: usize,
        is_item: bool,
        body: Option<usize>,
    ) -> Block {
        let step = if is_item { 2 } else { self.indent.len() };
        match value {
            Plain::Map(map) if !map.is_empty() => {
                let mut lines = self.entries(map, column + step);
                if is_item {
                    let first = lines.remove(0);
                    Block {
                        inline: first.trim_start().to_owned(),
                        lines,
                    }
                } else {
                    Block {
                        inline: String::new(),
                        lines,
                    }
                }
            }
            Plain::List(items) if !items.is_empty() => {
                let indent = if is_item { 2 } else { self.dash_indent };
                let mut lines = self.items(items, column + indent);
                if is_item {
                    let first = lines.remove(0);
                    Block {
                        inline: first.trim_start().to_owned(),
                        lines,
                    }
                } else {
                    Block {
                        inline: String::new(),
                        lines,
                    }
                }
            }
            Plain::Text(text) if is_readable_block(text) => {
                let indent = " ".repeat(body.unwrap_or(column + step));
                let (text, header) = match text.strip_suffix('\n') {
                    Some(text) => (text, "|"),
                    None => (text.as_str(), "|-"),
                };
                let line = |line: &str| {
                    if line.is_empty() {
                        String::new()
                    } else {
                        format!("{indent}{line}")
                    }
                };
                Block {
                    inline: header.to_owned(),
                    lines: text.split('\n').map(line).collect(),
                }
            }
            _ => Block {
                inline: self.flow(value),
                lines: Vec::new(),
            },
        }
    }

    /// The lines of a mapping whose keys stand at a column.
    pub(super) fn entries(&self, map: &IndexMap<String, Plain>, column: usize) -> Vec<String> {
        map.iter()
            .flat_map(|(key, value)| self.entry(key, value, column))
            .collect()
    }

    /// The lines of one entry.
    pub(super) fn entry(&self, key: &str, value: &Plain, column: usize) -> Vec<String> {
        let block = self.block(value, column, false, None);
        let space = if block.inline.is_empty() { "" } else { " " };
        let first = format!(
            "{}{}:{space}{}",
            " ".repeat(column),
            self.text(key, None),
            block.inline
        );
        std::iter::once(first).chain(block.lines).collect()
    }

    fn items(&self, items: &[Plain], column: usize) -> Vec<String> {
        items
            .iter()
            .flat_map(|item| self.item(item, column))
            .collect()
    }

    /// The lines of one item whose dash stands at a column.
    pub(super) fn item(&self, item: &Plain, column: usize) -> Vec<String> {
        let block = self.block(item, column, true, None);
        let first = format!("{}- {}", " ".repeat(column), block.inline);
        std::iter::once(first).chain(block.lines).collect()
    }

    /// A value on one line.
    pub(super) fn flow(&self, value: &Plain) -> String {
        match value {
            Plain::Null => "null".to_owned(),
            Plain::Bool(flag) => flag.to_string(),
            Plain::Number(number) => number.to_string(),
            Plain::Text(text) => self.text(text, None),
            Plain::List(items) => {
                let items: Vec<_> = items.iter().map(|item| self.flow(item)).collect();
                format!("[{}]", items.join(", "))
            }
            Plain::Map(map) => {
                let entries = map.iter();
                let entries: Vec<_> = entries
                    .map(|(key, value)| self.flow_entry(key, value))
                    .collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }

    /// `key: value` on one line.
    pub(super) fn flow_entry(&self, key: &str, value: &Plain) -> String {
        format!("{}: {}", self.text(key, None), self.flow(value))
    }

    /// A JSON value on several lines, of which all but the first are indented.
    pub(super) fn pretty(&self, value: &Plain, indent: &str) -> String {
        let inner = format!("{indent}{}", self.indent);
        let (open, parts, close): (_, Vec<String>, _) = match value {
            Plain::List(items) if !items.is_empty() => (
                '[',
                items.iter().map(|item| self.pretty(item, &inner)).collect(),
                ']',
            ),
            Plain::Map(map) if !map.is_empty() => (
                '{',
                map.iter()
                    .map(|(key, value)| self.pretty_entry(key, value, &inner))
                    .collect(),
                '}',
            ),
            _ => return self.flow(value),
        };
        let line_break = self.line_break;
        let parts = parts.join(&format!(",{line_break}{inner}"));
        format!("{open}{line_break}{inner}{parts}{line_break}{indent}{close}")
    }

    /// `"key": value`, the value on several lines.
    pub(super) fn pretty_entry(&self, key: &str, value: &Plain, indent: &str) -> String {
        format!("{}: {}", self.text(key, None), self.pretty(value, indent))
    }

    /// A text on one line, in the style of the one it replaces where that is possible.
    pub(super) fn text(&self, text: &str, like: Option<ScalarStyle>) -> String {
        if self.json {
            return serde_json::Value::from(text).to_string();
        }
        let printable = !text.chars().any(needs_escape);
        match like {
            Some(ScalarStyle::SingleQuoted) if printable => {
                format!("'{}'", text.replace('\'', "''"))
            }
            Some(ScalarStyle::DoubleQuoted) => double_quoted(text),
            _ if is_plain(text) => text.to_owned(),
            _ => double_quoted(text),
        }
    }
}

/// Words that are no text for readers of YAML 1.1 or 1.2.
const RESERVED: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

/// Whether a text without quotes is that text for every reader, wherever it stands.
fn is_plain(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || "_/.-".contains(c);
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        let next = text[at + c.len_utf8()..].chars().next();
        let fits = match c {
            ':' | '@' | '+' | '=' | '(' | ')' => at > 0 && next.is_some_and(word),
            ' ' => at > 0 && previous != ' ' && next.is_some_and(word),
            _ => word(c),
        };
        if !fits {
            return false;
        }
        previous = c;
    }
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '/')
        && !RESERVED.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// What YAML or a person cannot read unescaped on one line.
fn needs_escape(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn double_quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if needs_escape(c) => {
                let code = u32::from(c);
                let code = if code > 0xffff {
                    format!("U{code:08X}")
                } else {
                    format!("u{code:04X}")
                };
                out.push('\\');
                out.push_str(&code);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Whether a text of several lines keeps its meaning as a block scalar.
fn is_readable_block(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let blank = |line: &str| line.trim_matches([' ', '\t']).is_empty();
    let mut lines = body.split('\n');
    text.contains('\n')
        && !body.is_empty()
        && !text
            .chars()
            .any(|c| c != '\n' && c != '\t' && needs_escape(c))
        && lines
            .next()
            .is_some_and(|first| !blank(first) && !first.starts_with([' ', '\t']))
        && !body.split('\n').next_back().is_some_and(blank)
        && lines.all(|line| line.is_empty() || !blank(line))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::plain;
    use super::*;

    fn style() -> Style {
        Style {
            json: false,
            line_break: "\n",
            indent: "  ".to_owned(),
            dash_indent: 0,
            multi_line: true,
        }
    }

    #[test]
    fn a_text_that_a_reader_may_take_for_something_else_is_quoted() {
        for (text, written) in [
            ("registry/app:1.2", "registry/app:1.2"),
            ("nginx", "nginx"),
            ("two words", "two words"),
            ("1.10", "\"1.10\""),
            ("yes", "\"yes\""),
            ("Off", "\"Off\""),
            ("y", "\"y\""),
            ("~", "\"~\""),
            ("", "\"\""),
            ("a: b", "\"a: b\""),
            ("a #b", "\"a #b\""),
            ("a,b", "\"a,b\""),
            ("0x10", "\"0x10\""),
            ("2024-01-01", "\"2024-01-01\""),
            ("-", "\"-\""),
            ("a:", "\"a:\""),
            ("<<", "\"<<\""),
            ("a\tb\u{85}", "\"a\\tb\\u0085\""),
            (" a", "\" a\""),
        ] {
            assert_eq!(style().text(text, None), written);
        }
    }

    #[test]
    fn the_style_of_what_is_replaced_is_kept() {
        let like = |text, style_of| style().text(text, Some(style_of));
        assert_eq!(like("it's", ScalarStyle::SingleQuoted), "'it''s'");
        assert_eq!(like("a\nb", ScalarStyle::SingleQuoted), "\"a\\nb\"");
        assert_eq!(like("a", ScalarStyle::DoubleQuoted), "\"a\"");
    }

    fn any_plain() -> impl Strategy<Value = Plain> {
        let leaf = prop_oneof![
            Just(Plain::Null),
            any::<bool>().prop_map(Plain::Bool),
            any::<i64>().prop_map(|number| Plain::Number(number.into())),
            any::<i16>().prop_filter_map("finite", |number| {
                Some(Plain::Number(serde_json::Number::from_f64(
                    f64::from(number) / 100.0,
                )?))
            }),
            any::<String>().prop_map(Plain::Text),
            "[a-zA-Z0-9 :#'\"\\\\\n\t,.~|>&*!%@`{}\\[\\]-]{0,12}".prop_map(Plain::Text),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Plain::List),
                prop::collection::vec((prop_oneof![any::<String>(), "[a-z./]{1,5}"], inner), 0..4)
                    .prop_map(|entries| Plain::Map(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_the_same(value in any_plain(), dash_indent in prop_oneof![Just(0_usize), Just(2)]) {
            let style = Style { dash_indent, ..style() };
            let wanted = Plain::Map(IndexMap::from_iter([("k".to_owned(), Plain::List(vec![value.clone()]))]));
            let Plain::Map(map) = &wanted else { unreachable!() };
            let block = style.entries(map, 0).join("\n") + "\n";
            prop_assert_eq!(plain::yaml(&block).map_err(TestCaseError::fail)?, vec![wanted.clone()], "{}", block);
            let flow = style.flow(&wanted);
            prop_assert_eq!(plain::yaml(&flow).map_err(TestCaseError::fail)?, vec![wanted.clone()], "{}", flow);
            let json = Style { json: true, ..style };
            for text in [json.flow(&wanted), json.pretty(&wanted, "")] {
                prop_assert_eq!(plain::json(&text).map_err(TestCaseError::fail)?, wanted.clone(), "{}", text);
            }
        }
    }
}
