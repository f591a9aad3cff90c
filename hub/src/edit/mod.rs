//! Edits of YAML and JSON files that respect the file: only what a patch changes is written anew, and comments, order
//! and style of everything else stay byte for byte. Pure.
//!
//! A [`Patch`] is applied to what the file *says* (`plain`), by `json6902`, `merge` or `set`. Then `rewrite` walks the
//! two values and the places where they stand in the text (`tree`), and replaces what differs. At the end the new text
//! is parsed again and must say exactly what was wanted: an edit that does not is an error, never a wrong file.
//!
//! # Why no library for the whole
//!
//! The places come from `granit-parser`, the scanner below serde-saphyr, by which the hub reads YAML anyway: one idea of
//! what YAML is, and a permissive licence. Libraries that edit were tried on the manifests of the tests. `yamlpatch`
//! (1.32, with tree-sitter) needs a newer compiler, changes what an alias stands for where the alias is edited,
//! drops an anchor together with the value that it replaces, removes a parent with its only key, knows only one document,
//! and mixes line breaks. `yaml-edit` (0.3) mixes line breaks and leaves the comment of a removed item to the next one;
//! it has its own parser. `jsonc-parser` edits JSON only, which the same walk does here.

mod emit;
mod flow;
mod json6902;
mod merge;
mod plain;
#[cfg(test)]
mod properties;
mod replace;
mod rewrite;
mod set;
mod target;
#[cfg(test)]
mod tests;
mod text;
mod tree;

use std::fmt;

use serde::{Deserialize, Serialize};

use self::emit::Style;
use self::plain::Plain;
use self::rewrite::Document;
use self::target::Target;
use self::tree::{Kind, Node};

/// The largest file that is edited, in bytes.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;
/// The longest text of a patch, in bytes.
pub const MAX_PATCH_BYTES: usize = 256 * 1024;
/// Operations of one patch.
const MAX_OPERATIONS: usize = 200;
/// Levels of lists and mappings.
const MAX_DEPTH: usize = 60;

/// The language of a patch, as `patchType` of an EventResponse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatchType {
    /// JSON Patch, RFC 6902, as JSON.
    Json6902,
    /// JSON Merge Patch, RFC 7396, as JSON or YAML.
    Merge,
    /// Lines of the form `path = value`.
    YamlSet,
}

impl PatchType {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Json6902, Self::Merge, Self::YamlSet];

    /// The name in an EventResponse.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Json6902 => "json6902",
            Self::Merge => "merge",
            Self::YamlSet => "yaml-set",
        }
    }
}

impl fmt::Display for PatchType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is to be changed in a file. Its text was read once without a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Patch {
    kind: PatchType,
    text: String,
    target: Option<String>,
}

/// Why a patch does not apply to a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}; {remedy}", if .at.is_empty() { "the file" } else { .at })]
pub struct EditError {
    /// The place in the file as a JSON Pointer; empty for the file itself.
    pub at: String,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub remedy: &'static str,
}

impl EditError {
    fn new(at: &str, what: &str) -> Self {
        Self {
            at: at.to_owned(),
            what: what.to_owned(),
            remedy: "create a new EventResponse with a patch that fits the file",
        }
    }

    fn missing(at: &str) -> Self {
        Self::new(at, "there is nothing of this path")
    }

    fn unsupported(at: &str, what: &str) -> Self {
        Self {
            remedy: "create a new EventResponse with the whole contents, or edit the file by hand",
            ..Self::new(at, what)
        }
    }
}

/// A JSON Pointer of these parts.
fn pointer(parts: &[String]) -> String {
    let mut pointer = String::new();
    for part in parts {
        pointer.push('/');
        pointer.push_str(&part.replace('~', "~0").replace('/', "~1"));
    }
    pointer
}

/// A patch, read.
enum Change {
    Json6902(Vec<json6902::Operation>),
    Merge(Plain),
    Set(Vec<set::Assignment>),
}

impl Patch {
    /// A patch, if its text can be read; `target` selects a document (`kind=Deployment,name=app`). The error is the end
    /// of a sentence whose subject is the parameter.
    pub fn parse(kind: PatchType, text: &str, target: Option<&str>) -> Result<Self, String> {
        let patch = Self {
            kind,
            text: text.to_owned(),
            target: target.map(str::to_owned),
        };
        patch.read()?;
        Ok(patch)
    }

    /// Its language.
    pub const fn kind(&self) -> PatchType {
        self.kind
    }

    /// Its text, as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The selector of a document, if there is one.
    pub fn target(&self) -> Option<&str> {
        self.target.as_deref()
    }

    fn read(&self) -> Result<(Change, Option<Target>), String> {
        if self.text.len() > MAX_PATCH_BYTES {
            return Err(format!(
                "has {} bytes, more than {MAX_PATCH_BYTES}",
                self.text.len()
            ));
        }
        let change = match self.kind {
            PatchType::Json6902 => Change::Json6902(json6902::parse(&self.text)?),
            PatchType::Merge => Change::Merge(merge::parse(&self.text)?),
            PatchType::YamlSet => Change::Set(set::parse(&self.text)?),
        };
        let target = self.target.as_deref().map(Target::parse).transpose()?;
        Ok((change, target))
    }
}

/// Whether files of this name can be edited: `.yaml`, `.yml` or `.json`.
pub fn serves(path: &str) -> bool {
    is_json(path).is_some()
}

fn is_json(path: &str) -> Option<bool> {
    let (_, ending) = path.rsplit_once('.')?;
    match ending.to_ascii_lowercase().as_str() {
        "yaml" | "yml" => Some(false),
        "json" => Some(true),
        _ => None,
    }
}

/// The file with the patch applied; the same bytes if it says already what the patch wants.
pub fn apply(file: &str, patch: &Patch, base: &[u8]) -> Result<String, EditError> {
    let json = is_json(file).ok_or_else(|| {
        EditError::unsupported("", "only .yaml, .yml and .json files are patched")
    })?;
    if base.len() > MAX_FILE_BYTES {
        let what = format!(
            "it has {} bytes, more than the {MAX_FILE_BYTES} of a file that is patched",
            base.len()
        );
        return Err(EditError::unsupported("", &what));
    }
    let whole =
        std::str::from_utf8(base).map_err(|_| EditError::unsupported("", "it is no UTF-8 text"))?;
    let text = whole.strip_prefix('\u{feff}').unwrap_or(whole);
    let (change, target) = patch
        .read()
        .map_err(|why| EditError::new("", &format!("the patch {why}")))?;
    let old = documents(json, text)?;
    let new = change.apply(target.as_ref(), &old)?;
    if new == old {
        return Ok(whole.to_owned());
    }
    let written = write(json, text, &old, &new)?;
    match documents(json, &written) {
        Ok(says) if says == new => Ok(format!("{}{written}", &whole[..whole.len() - text.len()])),
        _ => Err(EditError::unsupported(
            "",
            "the change cannot be written into the text of the file",
        )),
    }
}

impl Change {
    fn apply(&self, target: Option<&Target>, old: &[Plain]) -> Result<Vec<Plain>, EditError> {
        let mut new = old.to_vec();
        match self {
            Self::Json6902(operations) => {
                let document = &mut new[target::find(target, old)?];
                for operation in operations {
                    operation.apply(document)?;
                    limit(document)?;
                }
            }
            Self::Merge(patch) => merge::apply(&mut new[target::find(target, old)?], patch),
            Self::Set(assignments) => {
                for assignment in assignments {
                    let at = target::find(assignment.target.as_ref().or(target), old)?;
                    assignment.apply(&mut new[at])?;
                }
            }
        }
        new.iter().try_for_each(limit)?;
        Ok(new)
    }
}

/// Copies within a document may double it each time.
fn limit(document: &Plain) -> Result<(), EditError> {
    fn size(value: &Plain) -> usize {
        match value {
            Plain::Text(text) => 1 + text.len(),
            Plain::List(items) => 1 + items.iter().map(size).sum::<usize>(),
            Plain::Map(map) => {
                1 + map
                    .iter()
                    .map(|(key, value)| key.len() + size(value))
                    .sum::<usize>()
            }
            _ => 1,
        }
    }
    if document.is_too_deep() || size(document) > 4 * MAX_FILE_BYTES {
        return Err(EditError::new(
            "",
            "the patch makes it too large or nests it too deep",
        ));
    }
    Ok(())
}

fn documents(json: bool, text: &str) -> Result<Vec<Plain>, EditError> {
    let (documents, what) = if json {
        (plain::json(text).map(|value| vec![value]), "JSON")
    } else {
        (plain::yaml(text), "YAML")
    };
    let documents = documents.map_err(|why| {
        EditError::unsupported("", &format!("it cannot be read as {what}: {why}"))
    })?;
    documents.iter().try_for_each(limit)?;
    Ok(documents)
}

fn write(json: bool, text: &str, old: &[Plain], new: &[Plain]) -> Result<String, EditError> {
    let nodes = tree::documents(text)
        .map_err(|why| EditError::unsupported("", &format!("its text is not understood: {why}")))?;
    if nodes.len() != old.len() {
        return Err(EditError::unsupported(
            "",
            "its documents are not understood",
        ));
    }
    let values = old.iter().zip(new);
    let documents = nodes
        .iter()
        .zip(values)
        .map(|(node, (old, new))| Document { node, old, new });
    rewrite::rewrite(text, &style(json, text, &nodes), documents)
}

/// What the file does itself, as far as it shows.
fn style(json: bool, text: &str, nodes: &[Node]) -> Style {
    let mut seen = Seen::default();
    for node in nodes {
        seen.look(text, node, None);
    }
    let first_lf = text.find('\n');
    let windows = first_lf.is_some_and(|at| text[..at].ends_with('\r'));
    Style {
        json,
        line_break: if windows { "\r\n" } else { "\n" },
        indent: seen.indent.unwrap_or_else(|| "  ".to_owned()),
        dash_indent: seen.dash_indent.unwrap_or(0),
        multi_line: seen.multi_line,
    }
}

#[derive(Default)]
struct Seen {
    indent: Option<String>,
    dash_indent: Option<usize>,
    multi_line: bool,
}

impl Seen {
    /// Looks for the first step from a parent to a child on a line of its own.
    fn look(&mut self, source: &str, node: &Node, parent: Option<usize>) {
        let (Kind::List { flow, children } | Kind::Map { flow, children }) = &node.kind else {
            return;
        };
        let is_list = matches!(node.kind, Kind::List { .. });
        let Some(first) = children.first() else {
            return;
        };
        let own = text::begins_line(source, first.start).then(|| text::indent(source, first.start));
        let above = if *flow {
            Some(text::indent(source, node.start).len())
        } else {
            parent
        };
        if let (Some(own), Some(above)) = (own, above)
            && own.len() >= above
        {
            self.multi_line |= *flow;
            if is_list && !*flow {
                self.dash_indent.get_or_insert(own.len() - above);
            } else if own.len() > above {
                self.indent.get_or_insert_with(|| own[above..].to_owned());
            }
        }
        for child in children {
            let column = child.start - text::line_start(source, child.start);
            let column = child.key.is_some().then_some(column);
            self.look(source, &child.node, column);
        }
    }
}
