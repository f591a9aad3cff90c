//! Changes within braces and brackets, of YAML's flow style and of JSON.

use super::emit::Style;
use super::plain::Plain;
use super::rewrite::Rewriter;
use super::tree::{Child, Kind, Node};

impl Rewriter<'_> {
    /// Puts a new value in the place of an old one.
    pub(super) fn replace_flow(&mut self, node: &Node, new: &Plain) {
        let text = match (&node.kind, new) {
            (Kind::Scalar(like), Plain::Text(text)) => self.style.text(text, Some(*like)),
            _ if self.style.json && self.style.multi_line => {
                let indent = self.indent_at(node.start).to_owned();
                self.style.pretty(new, &indent)
            }
            _ => self.style.flow(new),
        };
        let space = matches!(node.kind, Kind::Empty) && !self.text[..node.start].ends_with(' ');
        let space = if space { " " } else { "" };
        self.splices
            .replace(node.start, node.end, format!("{space}{text}"));
    }

    /// A new child as it stands among its siblings.
    pub(super) fn flow_text(
        &self,
        node: &Node,
        children: &[Child],
        key: Option<&str>,
        value: &Plain,
    ) -> String {
        let Style { json, .. } = self.style;
        let indent = self.separator(node, children).map(|(_, indent)| indent);
        match (key, indent) {
            (Some(key), Some(indent)) if *json => self.style.pretty_entry(key, value, indent),
            (None, Some(indent)) if *json => self.style.pretty(value, indent),
            (Some(key), _) => self.style.flow_entry(key, value),
            (None, _) => self.style.flow(value),
        }
    }

    /// Line break and indentation between children, if each has a line of its own.
    fn separator(&self, node: &Node, children: &[Child]) -> Option<(&'static str, &str)> {
        let first = children.first()?;
        let own_line = self.text[node.start..first.start].contains('\n');
        own_line.then(|| (self.style.line_break, self.indent_at(first.start)))
    }

    /// Removes and inserts children; `early` ones go before an old child, `last` ones behind all. At least one old child
    /// stays.
    pub(super) fn flow_children(
        &mut self,
        children: &[Child],
        gone: &[bool],
        early: &[(usize, String)],
        last: &[String],
    ) {
        let separator = self.between(children);
        for (before, text) in early {
            self.splices
                .insert(children[*before].start, format!("{text},{separator}"));
        }
        let Some(last_kept) = gone.iter().rposition(|gone| !gone) else {
            return;
        };
        let mut at = 0;
        while at < last_kept {
            if gone[at] {
                self.splices
                    .replace(children[at].start, children[at + 1].start, "");
            }
            at += 1;
        }
        let end = children[last_kept].end();
        for text in last {
            self.splices.insert(end, format!(",{separator}{text}"));
        }
        if let Some(last) = children[last_kept + 1..].last() {
            self.splices.replace(end, last.end(), "");
        }
    }

    /// What stands between a comma and the next child.
    fn between(&self, children: &[Child]) -> String {
        let Some(first) = children.first() else {
            return " ".to_owned();
        };
        let before = self.text[..first.start].trim_end_matches([' ', '\t']);
        if before.ends_with('\n') {
            format!("{}{}", self.style.line_break, self.indent_at(first.start))
        } else if is_tight(self.text, children) {
            String::new()
        } else {
            " ".to_owned()
        }
    }
}

/// Whether no blank follows a comma.
fn is_tight(text: &str, children: &[Child]) -> bool {
    children
        .get(1)
        .is_some_and(|second| text[..second.start].ends_with(','))
}
