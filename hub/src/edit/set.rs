//! `yaml-set`: lines of the form `path = value`, for people who want one value in one place.
//!
//! ```text
//! # a comment
//! spec.replicas = 3
//! spec.template.spec.containers[name=app].image = "registry/app:1.2"
//! metadata.annotations."app.kubernetes.io/part-of" = shop
//! [kind=Service,name=app] spec.ports[0].port = 8080
//! spec.template.spec.tolerations[+] = {key: a, operator: Exists}
//! ```

use indexmap::IndexMap;

use super::plain::{self, Plain};
use super::target::Target;
use super::{EditError, MAX_OPERATIONS, pointer};

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Assignment {
    /// The document, if the line selects one.
    pub(super) target: Option<Target>,
    path: Vec<Step>,
    value: Plain,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    /// An item by its place, from the end if negative.
    Index(i64),
    /// A new item at the end.
    Append,
    /// The one item in which all these keys have these values.
    Where(Vec<(String, String)>),
}

/// Reads a patch; says what is wrong with one.
pub(super) fn parse(text: &str) -> Result<Vec<Assignment>, String> {
    let mut assignments = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        assignments.push(
            assignment(line).map_err(|why| format!("has a wrong line {}: {why}", number + 1))?,
        );
    }
    match assignments.len() {
        0 => Err("has no line of the form path = value".to_owned()),
        count if count > MAX_OPERATIONS => {
            Err(format!("has {count} lines, more than {MAX_OPERATIONS}"))
        }
        _ => Ok(assignments),
    }
}

fn assignment(line: &str) -> Result<Assignment, String> {
    let mut reader = Reader { rest: line };
    let target = reader.target()?;
    let path = reader.path()?;
    let text = reader.rest.trim();
    if text.is_empty() || text.starts_with('#') {
        return Err("the value is missing; write null, \"\", {} or [] for an empty one".to_owned());
    }
    Ok(Assignment {
        target,
        path,
        value: value(text)?,
    })
}

/// A YAML scalar or flow collection.
fn value(text: &str) -> Result<Plain, String> {
    if text.starts_with(['&', '*', '!']) {
        return Err("the value has an anchor, an alias or a tag".to_owned());
    }
    // As a list item, null and aliases are what they are elsewhere in a document.
    let documents = plain::yaml(&format!("[{text}\n]"))
        .map_err(|error| format!("the value is no YAML: {error}"))?;
    let one = match documents.as_slice() {
        [Plain::List(items)] => match items.as_slice() {
            [value] => Some(value.clone()),
            _ => None,
        },
        _ => None,
    };
    match one {
        Some(Plain::Map(_)) if !text.starts_with('{') => Err(
            "the value is a mapping without braces; put a text with a colon into quotes".to_owned(),
        ),
        Some(value) if value.is_too_deep() => Err("the value is nested too deep".to_owned()),
        Some(value) => Ok(value),
        None => Err(
            "the value is not one YAML scalar, {…} or […]; put a text with commas into quotes"
                .to_owned(),
        ),
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn eat(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// A selector before the path is followed by a blank; without one it is the first step into a list.
    fn target(&mut self) -> Result<Option<Target>, String> {
        let Some((inside, after)) = self
            .rest
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
        else {
            return Ok(None);
        };
        let path = after.trim_start();
        if path.len() == after.len() || path.starts_with('=') {
            return Ok(None);
        }
        let target = Target::parse(inside)?;
        self.rest = path;
        Ok(Some(target))
    }

    /// The path, up to and with its `=`.
    fn path(&mut self) -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        loop {
            if self.eat('[') {
                steps.push(self.bracket()?);
            } else if steps.is_empty() || self.eat('.') {
                steps.push(Step::Key(self.key(&['.', '[', ']', '='])?));
            }
            let after = self.rest.trim_start();
            if let Some(rest) = after.strip_prefix('=') {
                self.rest = rest;
                return Ok(steps);
            }
            if !self.rest.starts_with(['.', '[']) {
                return Err("it is not of the form path = value".to_owned());
            }
        }
    }

    /// A quoted key, or one up to a blank or one of these characters.
    fn key(&mut self, ends: &[char]) -> Result<String, String> {
        let key = if self.rest.starts_with(['"', '\'']) {
            self.quoted()?
        } else {
            let end = self
                .rest
                .find(|c: char| c.is_whitespace() || ends.contains(&c) || matches!(c, '"' | '\''));
            let (key, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
            self.rest = rest;
            key.to_owned()
        };
        if key.is_empty() {
            Err("a key is missing in the path".to_owned())
        } else {
            Ok(key)
        }
    }

    /// As in YAML: escapes with a backslash within double quotes, a doubled quote within single ones.
    fn quoted(&mut self) -> Result<String, String> {
        let quote = if self.rest.starts_with('"') {
            '"'
        } else {
            '\''
        };
        let mut escaped = false;
        let end = self.rest.char_indices().skip(1).find(|(at, c)| {
            let doubled = quote == '\'' && *c == quote && self.rest[at + 1..].starts_with(quote);
            let ends = *c == quote && !escaped && !doubled;
            escaped = !escaped && (*c == '\\' && quote == '"' || *c == quote && doubled);
            ends
        });
        let (end, _) = end.ok_or("a quotation in the path does not end")?;
        let (text, rest) = self.rest.split_at(end + 1);
        let key = value(text)?;
        self.rest = rest;
        key.as_text()
            .ok_or_else(|| "a key in the path is no text".to_owned())
    }

    /// What stands in brackets, behind the opening one.
    fn bracket(&mut self) -> Result<Step, String> {
        let unclosed = || "a bracket in the path is not closed".to_owned();
        if self.rest.starts_with(['"', '\'']) && !self.is_condition() {
            let key = self.quoted()?;
            return if self.eat(']') {
                Ok(Step::Key(key))
            } else {
                Err(unclosed())
            };
        }
        if self.eat('+') {
            return if self.eat(']') {
                Ok(Step::Append)
            } else {
                Err(unclosed())
            };
        }
        if let Some((number, rest)) = self.rest.split_once(']')
            && let Ok(index) = number.trim().parse()
        {
            self.rest = rest;
            return Ok(Step::Index(index));
        }
        let mut conditions = Vec::new();
        loop {
            let key = self.key(&['=', ',', ']'])?;
            if !self.eat('=') {
                return Err("brackets hold a number, +, a quoted key, or key=value".to_owned());
            }
            conditions.push((key, self.key(&[',', ']'])?));
            if self.eat(']') {
                return Ok(Step::Where(conditions));
            }
            if !self.eat(',') {
                return Err(unclosed());
            }
        }
    }

    /// Whether a quoted text in brackets is the key of a condition.
    fn is_condition(&self) -> bool {
        let mut ahead = Reader { rest: self.rest };
        ahead.quoted().is_ok() && ahead.rest.starts_with('=')
    }
}

impl Assignment {
    /// Applies the line. Mappings that are missing on the way are made; list items are not.
    pub(super) fn apply(&self, document: &mut Plain) -> Result<(), EditError> {
        let mut at = document;
        let mut walked = Vec::new();
        for step in &self.path {
            let made = matches!(step, Step::Key(_)) && matches!(at, Plain::Null);
            if made {
                *at = Plain::Map(IndexMap::new());
            }
            at = step.walk(at, &mut walked)?;
        }
        *at = self.value.clone();
        Ok(())
    }
}

impl Step {
    /// One step down; `walked` is the way so far.
    fn walk<'a>(
        &self,
        at: &'a mut Plain,
        walked: &mut Vec<String>,
    ) -> Result<&'a mut Plain, EditError> {
        let here = pointer(walked);
        let error = |what: &str| Err(EditError::new(&here, what));
        match (self, at) {
            (Self::Key(key), Plain::Map(map)) => {
                walked.push(key.clone());
                Ok(map.entry(key.clone()).or_insert(Plain::Null))
            }
            (Self::Key(key), _) => {
                error(&format!("it is no mapping, so that it has no key {key:?}"))
            }
            (Self::Append, Plain::List(items)) => {
                walked.push(items.len().to_string());
                items.push(Plain::Null);
                items.last_mut().ok_or_else(|| EditError::missing(&here))
            }
            (Self::Index(index), Plain::List(items)) => {
                let count = items.len();
                let place = usize::try_from(*index)
                    .ok()
                    .or_else(|| count.checked_sub(usize::try_from(index.unsigned_abs()).ok()?));
                walked.push(index.to_string());
                match place.and_then(|place| items.get_mut(place)) {
                    Some(item) => Ok(item),
                    None => error(&format!("it has {count} items and none at [{index}]")),
                }
            }
            (Self::Where(conditions), Plain::List(items)) => {
                let fits = |item: &Plain| {
                    let has = |(key, value): &(String, String)| {
                        item.get(key).and_then(Plain::as_text).as_deref() == Some(value)
                    };
                    conditions.iter().all(has)
                };
                let fitting: Vec<usize> = (0..items.len()).filter(|at| fits(&items[*at])).collect();
                match fitting.as_slice() {
                    [place] => {
                        walked.push(place.to_string());
                        Ok(&mut items[*place])
                    }
                    [] => error(&format!("no item of the list has {}", shown(conditions))),
                    _ => error(&format!(
                        "{} items of the list have {}",
                        fitting.len(),
                        shown(conditions)
                    )),
                }
            }
            _ => error("it is no list"),
        }
    }
}

fn shown(conditions: &[(String, String)]) -> String {
    let parts: Vec<_> = conditions
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = r#"{"spec":{"replicas":1,"empty":null,"list":[{"name":"a","port":80},{"name":"b","port":80}]}}"#;

    fn applied(lines: &str) -> Result<Plain, EditError> {
        let mut document = plain::json(DOCUMENT).unwrap();
        for assignment in parse(lines).unwrap() {
            assignment.apply(&mut document)?;
        }
        Ok(document)
    }

    #[test]
    fn a_line_sets_one_value() {
        for (line, pointer, wanted) in [
            ("spec.replicas = 3", "/spec/replicas", "3"),
            ("spec.replicas=3 # three", "/spec/replicas", "3"),
            ("spec.replicas = \"3\"", "/spec/replicas", "\"3\""),
            ("spec.replicas = a b", "/spec/replicas", "\"a b\""),
            ("spec.replicas = a=b", "/spec/replicas", "\"a=b\""),
            ("spec.replicas = 'x, y'", "/spec/replicas", "\"x, y\""),
            ("spec.replicas = null", "/spec/replicas", "null"),
            (
                "spec.replicas = {a: [1, x]}",
                "/spec/replicas",
                r#"{"a":[1,"x"]}"#,
            ),
            ("spec.list[0].port = 1", "/spec/list/0/port", "1"),
            ("spec.list[-1].port = 1", "/spec/list/1/port", "1"),
            ("spec.list[name=b].port = 1", "/spec/list/1/port", "1"),
            (
                "spec.list[name=\"b\",port=80].port = 1",
                "/spec/list/1/port",
                "1",
            ),
            (
                "spec.list[+] = {name: c}",
                "/spec/list/2",
                r#"{"name":"c"}"#,
            ),
            ("spec.list[+].name = c", "/spec/list/2/name", "\"c\""),
            ("spec.new.\"a.b/c\".d = 1", "/spec/new/a.b~1c/d", "1"),
            ("spec['it''s']  =  1", "/spec/it's", "1"),
            ("spec.empty[\"a=b\"] = 1", "/spec/empty/a=b", "1"),
        ] {
            let mut wanted = plain::json(wanted).unwrap();
            let path: Vec<_> = pointer
                .split('/')
                .skip(1)
                .map(|part| part.replace("~1", "/"))
                .collect();
            let mut found = applied(line).unwrap();
            let mut at = &mut found;
            for part in path {
                at = match at {
                    Plain::Map(map) => map.get_mut(&part).unwrap(),
                    Plain::List(items) => &mut items[part.parse::<usize>().unwrap()],
                    _ => panic!("{line}"),
                };
            }
            assert_eq!(*at, wanted, "{line}");
            std::mem::swap(at, &mut wanted);
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (line, at) in [
            ("spec.replicas.x = 1", "/spec/replicas"),
            ("spec.list.x = 1", "/spec/list"),
            ("spec.list[2] = 1", "/spec/list"),
            ("spec.list[-3] = 1", "/spec/list"),
            ("spec.list[name=c].x = 1", "/spec/list"),
            ("spec.list[port=80].x = 1", "/spec/list"),
            ("spec[0] = 1", "/spec"),
            ("spec.empty[+] = 1", "/spec/empty"),
        ] {
            assert_eq!(applied(line).unwrap_err().at, at, "{line}");
        }
    }

    #[test]
    fn a_selector_of_a_document_stands_before_a_blank() {
        let [line] = &parse("[kind=A,name=x] spec.a = 1").unwrap()[..] else {
            panic!()
        };
        assert_eq!(line.target, Some(Target::parse("kind=A,name=x").unwrap()));
        let [line] = &parse("[0].a = 1").unwrap()[..] else {
            panic!()
        };
        assert_eq!((&line.target, &line.path[0]), (&None, &Step::Index(0)));
        let [line] = &parse("[name=x] = 1").unwrap()[..] else {
            panic!()
        };
        assert_eq!(line.target, None);
    }

    #[test]
    fn lines_that_are_wrong_are_refused() {
        let many = "a = 1\n".repeat(201);
        for text in [
            "",
            "# only",
            "a",
            "a =",
            "a = # x",
            "= 1",
            "a. = 1",
            "a..b = 1",
            ".a = 1",
            "a[ = 1",
            "a[] = 1",
            "a[x] = 1",
            "a[x=] = 1",
            "a[x=y = 1",
            "a b = 1",
            "\"a = 1",
            "a[\"b] = 1",
            "a = 1, 2",
            "a = [1",
            "a = *x",
            "a = b: c: d",
            "a = ]x[",
            "[label=x] a = 1",
            "a = \"x",
            &many,
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
