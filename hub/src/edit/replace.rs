//! Puts a whole value in the place of another, in block style.

use super::EditError;
use super::emit::Block;
use super::plain::Plain;
use super::rewrite::{Rewriter, Slot};
use super::text::{begins_line, indent, line_end, line_start};
use super::tree::{Kind, Node};

impl Rewriter<'_> {
    /// Puts a new value in the place of an old one.
    pub(super) fn replace(
        &mut self,
        slot: Slot,
        node: &Node,
        new: &Plain,
    ) -> Result<usize, EditError> {
        if node.has_anchor {
            return Err(self.error("it has an anchor that aliases may need"));
        }
        let (indicator_end, block) = match slot {
            Slot::Flow => {
                self.replace_flow(node, new);
                return Ok(line_end(self.text, node.end));
            }
            Slot::Root => return self.replace_root(node, new),
            Slot::Entry {
                indicator_end,
                column,
            } => (indicator_end, self.block(node, new, column, false)),
            Slot::Item {
                indicator_end,
                column,
            } => (indicator_end, self.block(node, new, column, true)),
        };
        let space = if block.inline.is_empty() { "" } else { " " };
        let spaced = format!("{space}{}", block.inline);
        let is_block = matches!(
            node.kind,
            Kind::Map { flow: false, .. } | Kind::List { flow: false, .. }
        );
        if matches!(node.kind, Kind::Empty) {
            self.splices.insert(indicator_end, spaced);
            let end = line_end(self.text, indicator_end);
            self.add_lines(end, &block.lines);
            return Ok(end);
        }
        let end = line_end(self.text, node.end);
        if is_block && begins_line(self.text, node.start) {
            let first = line_end(self.text, indicator_end);
            self.splices.insert(indicator_end, spaced);
            self.add_lines(first, &block.lines);
            self.splices.replace(first, end, "");
            return Ok(first);
        }
        let from = if block.inline.is_empty() {
            indicator_end
        } else {
            node.start
        };
        let is_block_scalar = self.text[node.start..].starts_with(['|', '>']);
        let to = if is_block || is_block_scalar {
            end
        } else {
            node.end
        };
        self.splices.replace(from, to, block.inline);
        self.add_lines(end, &block.lines);
        Ok(end)
    }

    fn block(&self, node: &Node, new: &Plain, column: usize, is_item: bool) -> Block {
        if let (Kind::Scalar(like), Plain::Text(text)) = (&node.kind, new)
            && !text.contains('\n')
        {
            return Block {
                inline: self.style.text(text, Some(*like)),
                lines: Vec::new(),
            };
        }
        // A block scalar keeps its indentation, so that lines which stay the same stay the same.
        let is_block_scalar = self.text[node.start..].starts_with(['|', '>']);
        let body = is_block_scalar.then(|| {
            let content = &self.text[line_end(self.text, node.start)..node.end];
            let line = content.lines().find(|line| !line.trim().is_empty());
            line.map(|line| line.len() - line.trim_start_matches(' ').len())
        });
        self.style.block(new, column, is_item, body.flatten())
    }

    fn replace_root(&mut self, node: &Node, new: &Plain) -> Result<usize, EditError> {
        let lines = match new {
            Plain::Map(map) if !map.is_empty() => self.style.entries(map, 0),
            Plain::List(items) if !items.is_empty() => items
                .iter()
                .flat_map(|item| self.style.item(item, 0))
                .collect(),
            Plain::Map(_) | Plain::List(_) => vec![self.style.flow(new)],
            _ => return Err(self.error("the whole document would become a scalar")),
        };
        if !begins_line(self.text, node.start) {
            return Err(self.error("the document begins on the line of its `---`"));
        }
        let start = line_start(self.text, node.start);
        let end = line_end(self.text, node.end);
        self.splices
            .replace(start, end, lines.join(self.style.line_break));
        Ok(end)
    }

    /// The indentation of the line of a place.
    pub(super) fn indent_at(&self, at: usize) -> &str {
        indent(self.text, at)
    }
}
