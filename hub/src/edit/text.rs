//! Places in a text, and the replacements that make a new text of it.

/// One replacement: the bytes from `start` to `end` give way to `text`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Splice {
    start: usize,
    end: usize,
    text: String,
}

/// Replacements in one text.
#[derive(Debug)]
pub(super) struct Splices<'a> {
    text: &'a str,
    all: Vec<Splice>,
}

impl<'a> Splices<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            all: Vec::new(),
        }
    }

    /// Replaces a range.
    pub(super) fn replace(&mut self, start: usize, end: usize, text: impl Into<String>) {
        self.all.push(Splice {
            start,
            end,
            text: text.into(),
        });
    }

    /// Inserts; what is inserted at the same place first comes first.
    pub(super) fn insert(&mut self, at: usize, text: impl Into<String>) {
        self.replace(at, at, text);
    }

    /// The new text; nothing if replacements overlap.
    pub(super) fn finish(mut self) -> Option<String> {
        self.all.sort_by_key(|splice| (splice.start, splice.end));
        let mut out = String::with_capacity(self.text.len());
        let mut done = 0;
        for splice in &self.all {
            out.push_str(self.text.get(done..splice.start)?);
            out.push_str(&splice.text);
            done = splice.end;
        }
        out.push_str(self.text.get(done..)?);
        Some(out)
    }
}

/// Where the line of a place begins.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |before| before + 1)
}

/// Where the line of a place ends, before its line break.
pub(super) fn line_end(text: &str, at: usize) -> usize {
    let end = text[at..].find('\n').map_or(text.len(), |to| at + to);
    if end > at && text.as_bytes()[end - 1] == b'\r' {
        end - 1
    } else {
        end
    }
}

/// Where the line before the one that begins here ends, before its line break; nothing at the start of the text.
pub(super) fn previous_line_end(text: &str, line_start: usize) -> Option<usize> {
    let before = text[..line_start].strip_suffix('\n')?;
    Some(before.strip_suffix('\r').unwrap_or(before).len())
}

/// The blanks that the line of a place begins with.
pub(super) fn indent(text: &str, at: usize) -> &str {
    let line = &text[line_start(text, at)..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Whether only blanks stand before a place on its line.
pub(super) fn begins_line(text: &str, at: usize) -> bool {
    text[line_start(text, at)..at]
        .bytes()
        .all(|byte| matches!(byte, b' ' | b'\t'))
}
