//! Turns a text that says one value into a text that says another, and touches only what differs.
//!
//! Both values and the tree of the text are walked together. Where they differ in a scalar, that scalar is replaced;
//! entries and items come and go with their lines; everything else stays byte for byte.

use std::collections::BTreeSet;

use granit_parser::ScalarStyle;
use indexmap::IndexMap;
use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::emit::Style;
use super::plain::Plain;
use super::text::{Splices, begins_line, line_end, line_start, previous_line_end};
use super::tree::{Child, Kind, Node};
use super::{EditError, pointer};

/// What a value hangs on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slot {
    /// The whole document.
    Root,
    /// A block entry, with the column of its key.
    Entry { indicator_end: usize, column: usize },
    /// A block item, with the column of its dash.
    Item { indicator_end: usize, column: usize },
    /// Within braces or brackets.
    Flow,
}

/// A document in the text, what it says and what it shall say.
pub(super) struct Document<'a> {
    pub(super) node: &'a Node,
    pub(super) old: &'a Plain,
    pub(super) new: &'a Plain,
}

/// Replaces what differs between old and new values of documents.
pub(super) fn rewrite<'a>(
    text: &str,
    style: &Style,
    documents: impl Iterator<Item = Document<'a>>,
) -> Result<String, EditError> {
    let mut rewriter = Rewriter {
        text,
        style,
        splices: Splices::new(text),
        path: Vec::new(),
    };
    for Document { node, old, new } in documents {
        let slot = if style.json || is_flow(node) {
            Slot::Flow
        } else {
            Slot::Root
        };
        rewriter.value(slot, node, old, new)?;
    }
    let written = rewriter.splices.finish();
    written.ok_or_else(|| EditError::unsupported("", "the changes overlap in the text of the file"))
}

fn is_flow(node: &Node) -> bool {
    matches!(
        node.kind,
        Kind::Map { flow: true, .. } | Kind::List { flow: true, .. }
    )
}

pub(super) struct Rewriter<'a> {
    pub(super) text: &'a str,
    pub(super) style: &'a Style,
    pub(super) splices: Splices<'a>,
    path: Vec<String>,
}

/// What becomes of the children of a list.
pub(super) struct ListPlan<'a> {
    /// For each old child the new value, or nothing if it goes.
    pub(super) kept: Vec<Option<&'a Plain>>,
    /// New items, each before an old child or, with the count of them, at the end.
    pub(super) inserted: Vec<(usize, &'a Plain)>,
}

impl Rewriter<'_> {
    pub(super) fn error(&self, what: &str) -> EditError {
        EditError::unsupported(&pointer(&self.path), what)
    }

    /// Changes one value; gives the end of the last line of it that remains, where siblings may be added in block style.
    fn value(
        &mut self,
        slot: Slot,
        node: &Node,
        old: &Plain,
        new: &Plain,
    ) -> Result<usize, EditError> {
        if old == new {
            return Ok(self.end_of(slot, node));
        }
        if matches!(node.kind, Kind::Opaque) {
            return Err(
                self.error("it is an alias, or has a key with `?`, which edits do not follow")
            );
        }
        if node.has_properties {
            return Err(
                self.error("it has an anchor or a tag, which may reach further than this place")
            );
        }
        match (&node.kind, old, new) {
            (Kind::Map { flow, children }, Plain::Map(old), Plain::Map(new))
                if keeps_any(children, new) =>
            {
                self.map(*flow, node, children, (old, new))
            }
            (Kind::List { flow, children }, Plain::List(old), Plain::List(new))
                if !new.is_empty() =>
            {
                if old.len() != children.len() {
                    return Err(self.error("its text is not understood"));
                }
                let plan = plan(old, new);
                if plan.kept.iter().all(Option::is_none) {
                    return self.replace(slot, node, &Plain::List(new.clone()));
                }
                self.list(*flow, slot, node, children, (old, new), &plan)
            }
            _ => self.replace(slot, node, new),
        }
    }

    fn end_of(&self, slot: Slot, node: &Node) -> usize {
        let at = match slot {
            Slot::Entry { indicator_end, .. } | Slot::Item { indicator_end, .. } => {
                node.end.max(indicator_end)
            }
            Slot::Root | Slot::Flow => node.end,
        };
        line_end(self.text, at)
    }

    fn column(&self, at: usize) -> usize {
        self.text[line_start(self.text, at)..at].chars().count()
    }

    fn slot(&self, flow: bool, child: &Child) -> Slot {
        let (indicator_end, column) = (child.indicator_end, self.column(child.start));
        match (flow, &child.key) {
            (true, _) => Slot::Flow,
            (false, Some(_)) => Slot::Entry {
                indicator_end,
                column,
            },
            (false, None) => Slot::Item {
                indicator_end,
                column,
            },
        }
    }

    fn map(
        &mut self,
        flow: bool,
        node: &Node,
        children: &[Child],
        (old, new): (&IndexMap<String, Plain>, &IndexMap<String, Plain>),
    ) -> Result<usize, EditError> {
        let mut end = 0;
        let mut gone = vec![false; children.len()];
        for (at, child) in children.iter().enumerate() {
            let key = child.key.as_deref();
            let values = key.and_then(|key| Some((key, old.get(key)?)));
            let Some((key, old)) = values else {
                // A key that is no scalar: it cannot have changed, since no patch can name it.
                end = line_end(self.text, child.end());
                continue;
            };
            self.path.push(key.to_owned());
            if let Some(new) = new.get(key) {
                end = self.value(self.slot(flow, child), &child.node, old, new)?;
            } else {
                self.check_removable(child)?;
                gone[at] = true;
            }
            self.path.pop();
        }
        let written: BTreeSet<&str> = children
            .iter()
            .filter_map(|child| child.key.as_deref())
            .collect();
        let added = new
            .iter()
            .filter(|(key, _)| !written.contains(key.as_str()));
        if flow {
            let added: Vec<_> = added
                .map(|(key, value)| self.flow_text(node, children, Some(key), value))
                .collect();
            self.flow_children(children, &gone, &[], &added);
            return Ok(line_end(self.text, node.end));
        }
        self.remove_lines(children, &gone);
        let column = children.first().map_or(0, |child| self.column(child.start));
        for (key, value) in added {
            let lines = self.style.entry(key, value, column);
            self.add_lines(end, &lines);
        }
        Ok(end)
    }

    fn list(
        &mut self,
        flow: bool,
        slot: Slot,
        node: &Node,
        children: &[Child],
        (old, new): (&[Plain], &[Plain]),
        plan: &ListPlan<'_>,
    ) -> Result<usize, EditError> {
        let starts_inline = !flow
            && children
                .first()
                .is_some_and(|child| !begins_line(self.text, child.start));
        if starts_inline && !plan.inserted.is_empty() && plan.kept[0].is_none() {
            return self.replace(slot, node, &Plain::List(new.to_vec()));
        }
        let mut end = 0;
        let mut ends = Vec::new();
        for (at, child) in children.iter().enumerate() {
            self.path.push(at.to_string());
            if let Some(new) = plan.kept[at] {
                end = self.value(self.slot(flow, child), &child.node, &old[at], new)?;
            } else {
                self.check_removable(child)?;
            }
            ends.push(end);
            self.path.pop();
        }
        let gone: Vec<bool> = plan.kept.iter().map(Option::is_none).collect();
        let count = children.len();
        if flow {
            let text = |rewriter: &Self, value| rewriter.flow_text(node, children, None, value);
            let (last, early): (Vec<_>, Vec<_>) = plan
                .inserted
                .iter()
                .partition(|(before, _)| *before == count);
            let early: Vec<_> = early
                .into_iter()
                .map(|(before, value)| (before, text(self, value)))
                .collect();
            let last: Vec<_> = last
                .into_iter()
                .map(|(_, value)| text(self, value))
                .collect();
            self.flow_children(children, &gone, &early, &last);
            return Ok(line_end(self.text, node.end));
        }
        self.remove_lines(children, &gone);
        let column = self.column(children[0].start);
        for (before, value) in &plan.inserted {
            let lines = self.style.item(value, column);
            if *before < count && begins_line(self.text, children[*before].start) {
                self.add_lines_before(self.lead(children, *before), &lines);
            } else if *before == 0 {
                let text =
                    lines.join(self.style.line_break) + self.style.line_break + &" ".repeat(column);
                self.splices
                    .insert(children[0].start, text.trim_start().to_owned());
            } else {
                self.add_lines(ends[*before - 1], &lines);
            }
        }
        Ok(end)
    }

    fn check_removable(&self, child: &Child) -> Result<(), EditError> {
        if child.node.has_anchor {
            return Err(self.error("it has an anchor that aliases may need"));
        }
        Ok(())
    }

    /// Adds lines below the line that ends here.
    pub(super) fn add_lines(&mut self, end: usize, lines: &[String]) {
        let text: String = lines
            .iter()
            .flat_map(|line| [self.style.line_break, line])
            .collect();
        self.splices.insert(end, text);
    }

    fn add_lines_before(&mut self, line_start: usize, lines: &[String]) {
        if let Some(end) = previous_line_end(self.text, line_start) {
            self.add_lines(end, lines);
        } else {
            let text = lines.join(self.style.line_break) + self.style.line_break;
            self.splices.insert(line_start, text);
        }
    }

    /// Where the lines that belong to a child begin: with the comments right above it in its column. What stands above
    /// the first entry of a document is about the document.
    fn lead(&self, children: &[Child], at: usize) -> usize {
        let start = children[at].start;
        let column = self.column(start);
        let mut lead = line_start(self.text, start);
        let floor = match at.checked_sub(1) {
            Some(before) => children[before].end(),
            None if self.path.is_empty() => lead,
            None => 0,
        };
        while let Some(end) = previous_line_end(self.text, lead) {
            let above = line_start(self.text, end);
            let line = &self.text[above..end];
            let content = line.trim_start_matches(' ');
            if above < floor || !content.starts_with('#') || line.len() - content.len() != column {
                break;
            }
            lead = above;
        }
        lead
    }

    /// Removes children of a block collection with their lines.
    fn remove_lines(&mut self, children: &[Child], gone: &[bool]) {
        let mut at = 0;
        while let Some(offset) = gone[at..].iter().position(|gone| *gone) {
            let first = at + offset;
            let run = gone[first..].iter().take_while(|gone| **gone).count();
            at = first + run;
            let start = children[first].start;
            let mut end = line_end(self.text, children[at - 1].end());
            if first > 0 && keeps_blank_lines(self.text, &children[first - 1].node) {
                let below = &self.text[end..];
                let blank = below.len() - below.trim_start().len();
                let last = line_start(self.text, end + blank);
                end = previous_line_end(self.text, last).map_or(end, |before| before.max(end));
            }
            if begins_line(self.text, start) {
                let lead = self.lead(children, first);
                if let Some(previous) = previous_line_end(self.text, lead) {
                    self.splices.replace(previous, end, "");
                } else {
                    let next = self.text[end..].find('\n');
                    let next = next.map_or(self.text.len(), |to| end + to + 1);
                    self.splices.replace(lead, next, "");
                }
            } else {
                // The first child shares the line of its parent's dash: the next one moves up.
                let next = children[at].start;
                let between = &self.text[end..next];
                if between.contains('#') {
                    let before = self.text[..start].trim_end_matches(' ').len();
                    self.splices.replace(before, end, "");
                } else {
                    self.splices.replace(start, next, "");
                }
            }
        }
    }
}

/// Whether a value ends with a block scalar to which blank lines below it belong (`|+`).
fn keeps_blank_lines(text: &str, node: &Node) -> bool {
    match &node.kind {
        Kind::List { children, .. } | Kind::Map { children, .. } => children
            .last()
            .is_some_and(|last| keeps_blank_lines(text, &last.node)),
        Kind::Scalar(ScalarStyle::Literal | ScalarStyle::Folded) => {
            let header = text[node.start..].split_whitespace().next();
            header.is_some_and(|header| header.contains('+'))
        }
        _ => false,
    }
}

/// Whether something of a mapping remains, so that its text may remain.
fn keeps_any(children: &[Child], new: &IndexMap<String, Plain>) -> bool {
    children
        .iter()
        .any(|child| child.key.as_ref().is_some_and(|key| new.contains_key(key)))
}

/// What items are known by when a list changes: their name if they have one, else all that they say.
fn identity(item: &Plain) -> String {
    match item.get("name") {
        Some(Plain::Text(name)) => format!("name {name}"),
        _ => format!("{item:?}"),
    }
}

/// Which items of a list stay (perhaps changed), go and come.
fn plan<'a>(old: &[Plain], new: &'a [Plain]) -> ListPlan<'a> {
    let differ = old.iter().zip(new).filter(|(old, new)| old != new).count();
    if old.len() == new.len() && differ == 1 {
        return ListPlan {
            kept: new.iter().map(Some).collect(),
            inserted: Vec::new(),
        };
    }
    let identities = |items: &[Plain]| items.iter().map(identity).collect::<Vec<_>>();
    let mut plan = ListPlan {
        kept: vec![None; old.len()],
        inserted: Vec::new(),
    };
    for op in capture_diff_slices(Algorithm::Myers, &identities(old), &identities(new)) {
        let (_, from, to) = op.as_tag_tuple();
        let both = match op {
            DiffOp::Insert { .. } | DiffOp::Delete { .. } => 0,
            DiffOp::Equal { .. } | DiffOp::Replace { .. } => from.len().min(to.len()),
        };
        for at in 0..both {
            plan.kept[from.start + at] = Some(&new[to.start + at]);
        }
        plan.inserted.extend(
            new[to.start + both..to.end]
                .iter()
                .map(|item| (from.start + both, item)),
        );
    }
    plan
}
