//! Puts the body of a pull request together: code blocks where Markdown takes them for code, cut to size, marker last.
//!
//! A helper cannot see where in the document it writes. Inside a fence or an HTML block of the template a fence of ours
//! would close the template's, and hostile text would be Markdown. So a code block is first written between marks
//! (noncharacters, which no value keeps), and gets its form here, where the text before it is known.

use super::{markdown, text};

const BLOCK: char = '\u{fdd0}';
const CONTENT: char = '\u{fdd1}';
const END: char = '\u{fdd2}';

/// Characters of a whole body.
pub(super) const MAX_BODY: usize = 60_000;
const CUT: &str = "\n\n_This text was cut: it was longer than a pull request may be._";
/// Room for what closes an open block.
const CLOSING_ROOM: usize = 200;

/// A code block between marks.
pub(super) fn code_block(content: &str, language: &str) -> String {
    let language: String = language
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+'))
        .take(20)
        .collect();
    format!(
        "{BLOCK}{language}{CONTENT}{}{END}",
        markdown::verbatim(content)
    )
}

/// The whole body: the rendered text, a note if it was cut, and the marker as its last line.
pub(super) fn assemble(rendered: &str, was_cut: bool, marker: &str) -> String {
    assemble_in(MAX_BODY, rendered, was_cut, marker)
}

/// The same, in no more than so many characters.
pub(super) fn assemble_in(most: usize, rendered: &str, was_cut: bool, marker: &str) -> String {
    let room = most.saturating_sub(marker.chars().count() + CUT.chars().count() + CLOSING_ROOM);
    let mut body = Body {
        out: String::with_capacity(rendered.len().min(MAX_BODY)),
        room,
        cut: was_cut,
        open: Open::default(),
    };
    let mut rest = rendered;
    while let Some(at) = rest.find(BLOCK) {
        body.text(&rest[..at]);
        let block = &rest[at + BLOCK.len_utf8()..];
        let (block, after) = block.split_once(END).unwrap_or((block, ""));
        let (language, content) = block.split_once(CONTENT).unwrap_or(("", block));
        body.block(language, content);
        rest = after;
    }
    body.text(rest);
    body.finish(marker)
}

struct Body {
    out: String,
    /// Characters that may still be written.
    room: usize,
    cut: bool,
    open: Open,
}

impl Body {
    fn push(&mut self, text: &str) {
        let fitting = text::prefix(text, self.room);
        self.cut |= fitting.len() < text.len();
        self.room -= fitting.chars().count();
        self.open.feed(fitting);
        self.out.push_str(fitting);
    }

    fn text(&mut self, text: &str) {
        let visible: String = text
            .chars()
            .filter(|c| !matches!(*c, CONTENT | END))
            .collect();
        self.push(&visible);
    }

    fn block(&mut self, language: &str, content: &str) {
        if self.room == 0 {
            self.cut = true;
            return;
        }
        if self.open.is_inside() {
            self.push(&markdown::neutralise_lines(content, ""));
            return;
        }
        let fence = fence(content);
        let frame = 2 * fence.len() + language.len() + 6;
        if self.room <= frame {
            self.cut = true;
            self.room = 0;
            return;
        }
        let fitting = text::prefix(content, self.room - frame);
        self.cut |= fitting.len() < content.len();
        while !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.push("\n");
        }
        let fitting = fitting.trim_end_matches('\n');
        self.push(&format!("{fence}{language}\n{fitting}\n{fence}\n"));
    }

    fn finish(mut self, marker: &str) -> String {
        let closing = self.open.closing();
        let mut out = std::mem::take(&mut self.out);
        out.truncate(out.trim_end().len());
        out.push_str(&closing);
        if self.cut {
            out.push_str(CUT);
        }
        if !out.is_empty() {
            out.push_str("\n\n");
        }
        out.push_str(marker);
        out
    }
}

/// A fence that nothing in the content closes.
pub(super) fn fence(content: &str) -> String {
    "`".repeat(longest_run(content).max(2) + 1)
}

/// The longest run of back-ticks.
fn longest_run(content: &str) -> usize {
    content
        .split(|c| c != '`')
        .map(str::len)
        .max()
        .unwrap_or_default()
}

/// Blocks that do not end at an empty line and that the text so far has opened: a code fence, or HTML of the kinds that
/// Markdown passes through up to their end tag. Only the template can open one, so it need not be guarded against tricks.
#[derive(Clone, Debug, Default)]
struct Open {
    line: String,
    fence: Option<(char, usize)>,
    html: Option<&'static str>,
}

const HTML: [(&str, &str); 7] = [
    ("<!--", "-->"),
    ("<pre", "</pre>"),
    ("<script", "</script>"),
    ("<style", "</style>"),
    ("<textarea", "</textarea>"),
    ("<![cdata[", "]]>"),
    ("<?", "?>"),
];

impl Open {
    fn feed(&mut self, text: &str) {
        for part in text.split_inclusive('\n') {
            self.line.push_str(part);
            if part.ends_with('\n') {
                let line = std::mem::take(&mut self.line);
                self.end_line(line.trim_end());
            }
        }
    }

    fn end_line(&mut self, line: &str) {
        if self.html.is_some() {
            self.html_in(line);
            return;
        }
        let content = within_containers(line, self.fence.is_none());
        let first = content.chars().next().filter(|c| matches!(c, '`' | '~'));
        let run = first.map_or(0, |first| {
            content.len() - content.trim_start_matches(first).len()
        });
        match (self.fence, first) {
            (None, Some(c)) if run >= 3 && !(c == '`' && content[run..].contains('`')) => {
                self.fence = Some((c, run));
            }
            (Some((open, length)), Some(c))
                if c == open && run >= length && content[run..].trim().is_empty() =>
            {
                self.fence = None;
            }
            (None, _) => self.html_in(line),
            _ => {}
        }
    }

    fn html_in(&mut self, line: &str) {
        let lower = line.to_ascii_lowercase();
        let mut rest = lower.as_str();
        loop {
            if let Some(end) = self.html {
                let Some((_, after)) = rest.split_once(end) else {
                    return;
                };
                self.html = None;
                rest = after;
            }
            let next = HTML
                .iter()
                .filter_map(|(start, end)| Some((rest.find(start)?, start, end)))
                .min();
            let Some((at, start, end)) = next else { return };
            self.html = Some(*end);
            rest = &rest[at + start.len()..];
        }
    }

    /// Whether what is written next would be inside.
    fn is_inside(&self) -> bool {
        let mut now = self.clone();
        let line = std::mem::take(&mut now.line);
        now.end_line(&line);
        now.fence.is_some() || now.html.is_some()
    }

    /// What ends the open block.
    fn closing(&self) -> String {
        let mut now = self.clone();
        let line = std::mem::take(&mut now.line);
        now.end_line(line.trim_end());
        match (now.fence, now.html) {
            (Some((c, length)), _) => {
                format!("\n{}", c.to_string().repeat(length.min(CLOSING_ROOM / 2)))
            }
            (None, Some(end)) => format!("\n{end}"),
            (None, None) => String::new(),
        }
    }
}

/// A line without the marks of quotations and list items that it begins with.
fn within_containers(line: &str, lists: bool) -> &str {
    let mut rest = line.trim_start();
    loop {
        let item = if lists {
            rest.trim_start_matches(|c: char| c.is_ascii_digit())
        } else {
            rest
        };
        let marks: &[char] = if lists {
            &['>', '-', '*', '+', '.', ')']
        } else {
            &['>']
        };
        match item.strip_prefix(marks) {
            Some(after) if item.starts_with('>') || after.starts_with(' ') => {
                rest = after.trim_start();
            }
            _ => return rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: &str = "<!-- marker -->";

    fn assembled(before: &str, content: &str, after: &str) -> String {
        assemble(
            &format!("{before}{}{after}", code_block(content, "yaml")),
            false,
            MARKER,
        )
    }

    #[test]
    fn a_code_block_stands_on_its_own_lines() {
        for (before, start) in [
            ("", ""),
            ("a: ", "a: \n\n"),
            ("a\n", "a\n\n"),
            ("- ", "- \n\n"),
            ("> ", "> \n\n"),
        ] {
            assert_eq!(
                assembled(before, "x: 1\n", "b"),
                format!("{start}```yaml\nx: 1\n```\nb\n\n{MARKER}")
            );
        }
    }

    #[test]
    fn a_fence_is_longer_than_any_inside() {
        let body = assembled("", "```\n[x](y)\n````", "");
        assert_eq!(
            body,
            format!("`````yaml\n```\n[x](y)\n````\n`````\n\n{MARKER}")
        );
    }

    #[test]
    fn inside_a_block_of_the_template_the_content_is_inert() {
        for before in [
            "```json\n",
            "- ~~~\n",
            "<pre>",
            "<!-- ",
            "````\n```\n",
            "> ```\n",
        ] {
            let body = assembled(before, "```\n<img src=x>\n--> @you", "");
            let inner = body
                .strip_prefix(before)
                .unwrap()
                .strip_suffix(MARKER)
                .unwrap();
            let inner = inner.lines().take(3).collect::<Vec<_>>().join("\n");
            assert!(
                !inner.contains('`') && !inner.contains("<img") && !inner.contains("-->"),
                "{body}"
            );
        }
        let body = assembled("```\na\n```\n<pre></pre>\n", "x", "");
        assert!(
            body.contains("```yaml\nx\n```"),
            "closed blocks do not matter: {body}"
        );
    }

    #[test]
    fn a_long_body_is_cut_with_a_note_and_still_ends_with_its_marker() {
        let long = "x".repeat(70_000);
        for body in [
            assemble(&long, false, MARKER),
            assembled("", &long, "after"),
            assembled(&long, "x", ""),
            assembled("```\n", &long, ""),
            assemble(&format!("<!-- {long}"), false, MARKER),
            assemble(&code_block("a", "").repeat(20_000), true, MARKER),
        ] {
            assert!(body.chars().count() <= MAX_BODY);
            assert!(
                body.ends_with(&format!("{CUT}\n\n{MARKER}")),
                "{}",
                &body[body.len() - 200..]
            );
            assert!(
                !Open {
                    line: String::new(),
                    ..open_at_end(&body)
                }
                .is_inside()
            );
        }
    }

    fn open_at_end(body: &str) -> Open {
        let mut open = Open::default();
        open.feed(body);
        open.feed("\n");
        open
    }
}
