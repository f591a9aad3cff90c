//! The generated parts of the charts' documentation: the table of values in each README, from the comments in
//! `values.yaml`, and the table of rights in the book, from the comments in the rendered roles.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// Generated text is between these two lines.
const BEGIN: &str = "<!-- generated: make charts -->";
const END: &str = "<!-- end of what is generated -->";

/// One value that may be set.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its keys, joined by dots.
    pub path: String,
    /// The value if nothing is said, as one line.
    pub default: String,
    /// What it means.
    pub meaning: String,
}

/// The values of a chart, in their order. A key below a `# --` comment is one entry with everything in it; any other key
/// must be a mapping of such keys.
pub fn values(text: &str) -> Result<Vec<Entry>> {
    let defaults: Value = serde_saphyr::from_str(text)?;
    let mut entries = Vec::new();
    let mut path: Vec<(usize, String)> = Vec::new();
    let mut comment: Option<String> = None;
    // Lines deeper than this belong to the entry above.
    let mut inside: Option<usize> = None;
    for line in text.lines() {
        let content = line.trim_start();
        let indent = line.len() - content.len();
        if content.is_empty() || inside.is_some_and(|entry| indent > entry) {
            continue;
        }
        if let Some(said) = content.strip_prefix('#') {
            let said = said.trim();
            match (said.strip_prefix("-- "), comment.as_mut()) {
                (Some(first), _) => comment = Some(first.to_owned()),
                (None, Some(more)) => {
                    let _ = write!(more, " {said}");
                }
                (None, None) => {}
            }
            continue;
        }
        inside = None;
        let (key, _) = content
            .split_once(':')
            .with_context(|| format!("no key in {line:?}"))?;
        path.retain(|(depth, _)| *depth < indent);
        path.push((indent, key.to_owned()));
        let keys: Vec<_> = path.iter().map(|(_, key)| key.as_str()).collect();
        let value = keys.iter().try_fold(&defaults, |value, key| value.get(key));
        let value = value.with_context(|| format!("{keys:?} is no value"))?;
        match comment.take() {
            Some(meaning) => {
                inside = Some(indent);
                entries.push(Entry {
                    path: keys.join("."),
                    default: value.to_string(),
                    meaning,
                });
            }
            None => ensure!(
                value.as_object().is_some_and(|inner| !inner.is_empty()),
                "{} has no comment that begins with `# -- `",
                keys.join(".")
            ),
        }
    }
    Ok(entries)
}

/// The table of values.
pub fn values_table(text: &str) -> Result<String> {
    let mut table = "| value | default | meaning |\n| --- | --- | --- |\n".to_owned();
    for Entry {
        path,
        default,
        meaning,
    } in values(text)?
    {
        let (default, meaning) = (escape(&default), escape(&meaning));
        writeln!(table, "| `{path}` | `{default}` | {meaning} |")?;
    }
    Ok(table)
}

/// One rule of a role, and why it is there.
#[derive(Debug)]
pub struct Right {
    /// The kind of the role, and its namespace if it has one.
    pub scope: String,
    /// The API group; empty for the core.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// The only objects that it is for, if not all.
    pub names: String,
    /// The verbs.
    pub verbs: Vec<String>,
    /// The comment above the rule.
    pub why: String,
}

/// The rules of the rendered roles. Every rule must have a comment.
pub fn rights(rendered: &str) -> Result<Vec<Right>> {
    let mut rights = Vec::new();
    for document in rendered.split("\n---\n") {
        let object: Value = serde_saphyr::from_str(document.trim_start_matches("---\n"))?;
        let kind = object["kind"].as_str().unwrap_or_default();
        if !["Role", "ClusterRole"].contains(&kind) {
            continue;
        }
        let scope = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("namespace `{namespace}`"),
            None => "cluster".to_owned(),
        };
        let reasons = reasons(document);
        let rules = object["rules"].as_array().context("a role without rules")?;
        ensure!(
            reasons.len() == rules.len(),
            "each rule needs a comment above it: {document}"
        );
        for (rule, why) in rules.iter().zip(reasons) {
            let list = |field: &str| -> Vec<String> {
                let items = rule[field].as_array().into_iter().flatten();
                items
                    .filter_map(|item| item.as_str().map(str::to_owned))
                    .collect()
            };
            rights.push(Right {
                scope: scope.clone(),
                group: list("apiGroups").join(", "),
                resource: list("resources").join(", "),
                names: list("resourceNames").join(", "),
                verbs: list("verbs"),
                why,
            });
        }
    }
    Ok(rights)
}

/// The comments above the rules of one role.
fn reasons(document: &str) -> Vec<String> {
    let (mut reasons, mut comment, mut inside) = (Vec::new(), String::new(), false);
    for line in document.lines() {
        inside |= line == "rules:";
        let content = line.trim_start();
        if let Some(said) = content.strip_prefix('#').filter(|_| inside) {
            let _ = write!(comment, " {}", said.trim());
        } else if content.starts_with("- apiGroups:") && !comment.is_empty() {
            reasons.push(std::mem::take(&mut comment).trim().to_owned());
        }
    }
    reasons
}

/// The table of rights.
pub fn rights_table(rendered: &str) -> Result<String> {
    let mut table = "| where | resource | verbs | why |\n| --- | --- | --- | --- |\n".to_owned();
    for right in rights(rendered)? {
        let group = match right.group.as_str() {
            "" => String::new(),
            group => format!(" ({group})"),
        };
        let names = match right.names.as_str() {
            "" => String::new(),
            names => format!(", only `{names}`"),
        };
        let (scope, resource, verbs, why) = (
            right.scope,
            right.resource,
            right.verbs.join(", "),
            escape(&right.why),
        );
        writeln!(
            table,
            "| {scope} | `{resource}`{group}{names} | {verbs} | {why} |"
        )?;
    }
    Ok(table)
}

/// A document with other text in its generated part number `index`.
pub fn replace(document: &str, index: usize, generated: &str) -> Result<String> {
    let mut parts = document.match_indices(BEGIN).map(|(at, _)| at);
    let begin = parts
        .nth(index)
        .context("the document has no place for what is generated")?;
    let begin = begin + BEGIN.len();
    let end = document[begin..]
        .find(END)
        .context("the generated part has no end")?;
    Ok(format!(
        "{}\n\n{}\n{}",
        &document[..begin],
        generated,
        &document[begin + end..]
    ))
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_its_path_default_and_comment() {
        let text =
            "# Of the file.\n\na:\n  # -- First\n  # and more.\n  b: [1]\n# -- All\nc:\n  d: {}\n";
        let entry = |path: &str, default: &str, meaning: &str| Entry {
            path: path.to_owned(),
            default: default.to_owned(),
            meaning: meaning.to_owned(),
        };
        assert_eq!(
            values(text).unwrap(),
            [
                entry("a.b", "[1]", "First and more."),
                entry("c", "{\"d\":{}}", "All")
            ]
        );
    }

    #[test]
    fn a_value_without_a_comment_is_an_error() {
        let error = values("a:\n  b: 1\n").unwrap_err().to_string();
        assert!(error.contains("a.b"), "{error}");
    }

    #[test]
    fn a_rule_without_a_comment_is_an_error() {
        let role = "kind: Role\nmetadata: {namespace: a}\nrules:\n  # Why.\n  - apiGroups: ['']\n    verbs: [get]\n  \
            - apiGroups: [b]\n    verbs: [get]\n";
        assert!(
            rights(role)
                .unwrap_err()
                .to_string()
                .contains("needs a comment")
        );
    }

    #[test]
    fn what_is_generated_goes_between_its_marks() {
        let document = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = replace(&document, 0, "new\n").unwrap();
        assert_eq!(new, format!("a\n{BEGIN}\n\nnew\n\n{END}\nb\n"));
        assert_eq!(replace(&new, 0, "new\n").unwrap(), new);
    }
}
