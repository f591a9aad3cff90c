//! Where in the text each value stands: a tree of byte ranges over the tokens of the YAML scanner.
//!
//! JSON is read by the same scanner, since it is YAML's flow style. What a value means is not decided here
//! (`plain` does that with the full parser): should the two disagree, the check at the end of an edit fails.

use std::borrow::Cow;
use std::iter::Peekable;
use std::vec::IntoIter;

use granit_parser::{ScalarStyle, Scanner, Span, StrInput, TokenType};

use super::MAX_DEPTH;

/// A value in the text.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    /// First byte, without anchor and tag; a block scalar begins with its `|` or `>`, a block list with its first dash.
    pub(super) start: usize,
    /// Behind the last byte; without the line break of a block scalar's last line.
    pub(super) end: usize,
    /// Whether it has an anchor or a tag.
    pub(super) has_properties: bool,
    /// Whether it or anything in it has an anchor.
    pub(super) has_anchor: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// Nothing is written.
    Empty,
    Scalar(ScalarStyle),
    /// An alias, or a construct that edits do not serve.
    Opaque,
    List {
        flow: bool,
        children: Vec<Child>,
    },
    Map {
        flow: bool,
        children: Vec<Child>,
    },
}

/// An item of a list or an entry of a mapping.
#[derive(Clone, Debug)]
pub(super) struct Child {
    /// The dash, the key, or in a flow list the value.
    pub(super) start: usize,
    /// Behind the dash or colon; the start of the value in a flow list.
    pub(super) indicator_end: usize,
    /// The key of an entry, if it is a simple one.
    pub(super) key: Option<String>,
    pub(super) node: Node,
}

impl Child {
    pub(super) fn end(&self) -> usize {
        self.node.end.max(self.indicator_end)
    }
}

type Tokens<'a> = Peekable<IntoIter<(Span, TokenType<'a>)>>;

/// One tree for each document that is not empty.
pub(super) fn documents(text: &str) -> Result<Vec<Node>, String> {
    let mut options = granit_parser::options! { simple_key_max_lookahead: 4096, };
    options.set_emit_comments(false);
    let mut tokens = Vec::new();
    for token in Scanner::with_options(StrInput::new(text), options) {
        tokens.push(token.map_err(|error| error.to_string())?.into_parts());
    }
    let mut reader = Reader {
        text,
        tokens: tokens.into_iter().peekable(),
        depth: 0,
    };
    let mut documents = Vec::new();
    while let Some((_, token)) = reader.tokens.peek() {
        match token {
            TokenType::StreamStart
            | TokenType::StreamEnd
            | TokenType::DocumentStart
            | TokenType::DocumentEnd
            | TokenType::VersionDirective(..)
            | TokenType::TagDirective(..)
            | TokenType::ReservedDirective(..) => {
                reader.tokens.next();
            }
            _ => {
                let node = reader.node(0, false)?;
                if matches!(node.kind, Kind::Empty) {
                    return Err("its structure is not understood".to_owned());
                }
                let null = matches!(node.kind, Kind::Scalar(ScalarStyle::Plain))
                    && matches!(&text[node.start..node.end], "~" | "null" | "Null" | "NULL");
                if !null {
                    documents.push(node);
                }
            }
        }
    }
    Ok(documents)
}

struct Reader<'a> {
    text: &'a str,
    tokens: Tokens<'a>,
    depth: usize,
}

/// The byte range of a token; the scanner knows it for every token of a string.
fn bytes(span: Span) -> std::ops::Range<usize> {
    span.byte_range().unwrap_or_default()
}

impl<'a> Reader<'a> {
    fn next_if(
        &mut self,
        wanted: impl Fn(&TokenType<'a>) -> bool,
    ) -> Option<(Span, TokenType<'a>)> {
        self.tokens.next_if(|(_, token)| wanted(token))
    }

    /// The value that begins here; `from` is behind the indicator before it. `indentless` lists begin with their first
    /// dash, which only the value of a mapping may.
    fn node(&mut self, from: usize, indentless: bool) -> Result<Node, String> {
        if self.depth >= MAX_DEPTH {
            return Err(format!("it is nested deeper than {MAX_DEPTH} levels"));
        }
        self.depth += 1;
        let mut from = from;
        let (mut has_properties, mut has_anchor) = (false, false);
        while let Some((span, token)) =
            self.next_if(|token| matches!(token, TokenType::Anchor(_) | TokenType::Tag(..)))
        {
            has_properties = true;
            has_anchor |= matches!(token, TokenType::Anchor(_));
            from = bytes(span).end;
        }
        let (kind, start, end) = self.content(from, indentless)?;
        if let Kind::List { children, .. } | Kind::Map { children, .. } = &kind {
            has_anchor |= children.iter().any(|child| child.node.has_anchor);
        }
        self.depth -= 1;
        Ok(Node {
            kind,
            start,
            end,
            has_properties,
            has_anchor,
        })
    }

    fn content(&mut self, from: usize, indentless: bool) -> Result<(Kind, usize, usize), String> {
        let starts = |token: &TokenType<'_>| {
            matches!(
                token,
                TokenType::Alias(_)
                    | TokenType::Scalar(..)
                    | TokenType::BlockSequenceStart
                    | TokenType::BlockMappingStart
                    | TokenType::FlowSequenceStart
                    | TokenType::FlowMappingStart
            ) || (indentless && matches!(token, TokenType::BlockEntry))
        };
        if let Some((_, TokenType::BlockEntry)) = self.tokens.peek()
            && indentless
        {
            let children = self.block_items(from)?;
            return Ok(block(children, from, |children| Kind::List {
                flow: false,
                children,
            }));
        }
        let Some((span, token)) = self.next_if(starts) else {
            return Ok((Kind::Empty, from, from));
        };
        let range = bytes(span);
        Ok(match token {
            TokenType::Scalar(style, _) => self.scalar(style, from, range),
            TokenType::BlockSequenceStart => {
                let children = self.block_items(range.start)?;
                self.next_if(|token| matches!(token, TokenType::BlockEnd));
                block(children, range.start, |children| Kind::List {
                    flow: false,
                    children,
                })
            }
            TokenType::BlockMappingStart => {
                let children = self.block_entries()?;
                block(children, range.start, |children| Kind::Map {
                    flow: false,
                    children,
                })
            }
            TokenType::FlowSequenceStart => {
                let (children, end) = self.flow_items()?;
                (
                    Kind::List {
                        flow: true,
                        children,
                    },
                    range.start,
                    end,
                )
            }
            TokenType::FlowMappingStart => {
                let (children, end) = self.flow_entries()?;
                (
                    Kind::Map {
                        flow: true,
                        children,
                    },
                    range.start,
                    end,
                )
            }
            _ => (Kind::Opaque, range.start, range.end),
        })
    }

    /// The scanner leaves the header of a block scalar out, and takes the white space behind it in.
    fn scalar(
        &self,
        style: ScalarStyle,
        from: usize,
        range: std::ops::Range<usize>,
    ) -> (Kind, usize, usize) {
        let kind = Kind::Scalar(style);
        if !matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) {
            return (kind, range.start, range.end);
        }
        let start = self.text[from..]
            .find(['|', '>'])
            .map_or(range.start, |at| from + at);
        let header = &self.text[start..];
        let header = &header[..header
            .find(|c: char| c.is_whitespace())
            .unwrap_or(header.len())];
        let body = &self.text[start + header.len()..range.end.max(start + header.len())];
        let kept = if header.contains('+') {
            let whole = body.trim_end_matches([' ', '\t']);
            whole
                .strip_suffix('\n')
                .map_or(whole, |whole| whole.strip_suffix('\r').unwrap_or(whole))
        } else {
            body.trim_end()
        };
        let end = if range.is_empty() { 0 } else { kept.len() };
        (kind, start, start + header.len() + end)
    }

    /// The items of a block list; `from` is at or before the first dash. The scanner's tokens stand somewhere behind the
    /// dashes.
    fn block_items(&mut self, from: usize) -> Result<Vec<Child>, String> {
        let mut children: Vec<Child> = Vec::new();
        while self
            .next_if(|token| matches!(token, TokenType::BlockEntry))
            .is_some()
        {
            let start = self.behind_blanks(children.last().map_or(from, Child::end));
            if !self.text[start..].starts_with('-') {
                return Err("a list item is without its dash".to_owned());
            }
            let node = self.node(start + 1, false)?;
            children.push(Child {
                start,
                indicator_end: start + 1,
                key: None,
                node,
            });
        }
        Ok(children)
    }

    /// The next place that is neither white space nor comment.
    fn behind_blanks(&self, from: usize) -> usize {
        let mut at = from;
        loop {
            let rest = &self.text[at..];
            at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            if !self.text[at..].starts_with('#') {
                return at;
            }
            at += self.text[at..].find('\n').unwrap_or(self.text.len() - at);
        }
    }

    fn block_entries(&mut self) -> Result<Vec<Child>, String> {
        let mut children = Vec::new();
        loop {
            match self.tokens.peek() {
                Some((_, TokenType::Key | TokenType::Value)) => children.push(self.entry(true)?),
                Some((_, TokenType::BlockEnd)) => {
                    self.tokens.next();
                    return Ok(children);
                }
                _ => return Err("a mapping does not end".to_owned()),
            }
        }
    }

    /// A key with its value. Keys with `?`, or that are no scalars, or have no value, cannot be edited.
    fn entry(&mut self, in_block: bool) -> Result<Child, String> {
        let key_token = self.next_if(|token| matches!(token, TokenType::Key));
        let mut start = key_token.as_ref().map(|(span, _)| bytes(*span).start);
        let mut simple = key_token.is_some_and(|(span, _)| bytes(span).is_empty());
        let mut key = None;
        let scalar = match self.tokens.peek() {
            Some((span, TokenType::Scalar(_, text))) => Some((bytes(*span), text.clone())),
            _ => None,
        };
        let key_node = self.node(start.unwrap_or_default(), false)?;
        if let (Kind::Scalar(_), Some((_, text))) = (&key_node.kind, scalar) {
            key = Some(Cow::into_owned(text));
        }
        let mut indicator_end = key_node.end;
        let mut node = None;
        if let Some((span, _)) = self.next_if(|token| matches!(token, TokenType::Value)) {
            let at = bytes(span).start;
            start.get_or_insert(at);
            indicator_end = at + 1;
            node = Some(self.node(indicator_end, in_block)?);
        } else {
            simple = false;
        }
        let empty = Node {
            kind: Kind::Opaque,
            start: indicator_end,
            end: indicator_end,
            has_properties: false,
            has_anchor: false,
        };
        let mut node = node.unwrap_or(empty);
        node.has_anchor |= key_node.has_anchor;
        if !simple {
            node.kind = Kind::Opaque;
        }
        Ok(Child {
            start: start.unwrap_or(key_node.start),
            indicator_end,
            key,
            node,
        })
    }

    fn flow_items(&mut self) -> Result<(Vec<Child>, usize), String> {
        let mut children = Vec::new();
        loop {
            match self.tokens.peek() {
                Some((span, TokenType::FlowSequenceEnd)) => {
                    let end = bytes(*span).end;
                    self.tokens.next();
                    return Ok((children, end));
                }
                Some((_, TokenType::FlowEntry)) => {
                    self.tokens.next();
                }
                // A mapping of one entry without braces.
                Some((_, TokenType::Key | TokenType::Value)) => {
                    let mut child = self.entry(false)?;
                    child.node.kind = Kind::Opaque;
                    child.node.start = child.start;
                    child.key = None;
                    children.push(child);
                }
                Some((span, _)) => {
                    let start = bytes(*span).start;
                    let node = self.node(start, false)?;
                    if matches!(node.kind, Kind::Empty) && !node.has_properties {
                        return Err("a list in brackets is not understood".to_owned());
                    }
                    children.push(Child {
                        start,
                        indicator_end: start,
                        key: None,
                        node,
                    });
                }
                None => return Err("a list in brackets does not end".to_owned()),
            }
        }
    }

    fn flow_entries(&mut self) -> Result<(Vec<Child>, usize), String> {
        let mut children = Vec::new();
        loop {
            match self.tokens.peek() {
                Some((span, TokenType::FlowMappingEnd)) => {
                    let end = bytes(*span).end;
                    self.tokens.next();
                    return Ok((children, end));
                }
                Some((_, TokenType::FlowEntry)) => {
                    self.tokens.next();
                }
                Some((_, TokenType::Key | TokenType::Value)) => children.push(self.entry(false)?),
                Some((span, _)) => {
                    let start = bytes(*span).start;
                    let node = self.node(start, false)?;
                    if node.end == start {
                        return Err("a mapping in braces is not understood".to_owned());
                    }
                    let node = Node {
                        kind: Kind::Opaque,
                        ..node
                    };
                    children.push(Child {
                        start,
                        indicator_end: node.end,
                        key: None,
                        node,
                    });
                }
                None => return Err("a mapping in braces does not end".to_owned()),
            }
        }
    }
}

/// A block collection reaches from its first child to its last.
fn block(
    children: Vec<Child>,
    at: usize,
    kind: impl Fn(Vec<Child>) -> Kind,
) -> (Kind, usize, usize) {
    let start = children.first().map_or(at, |child| child.start);
    let end = children.last().map_or(at, Child::end);
    (kind(children), start, end)
}
