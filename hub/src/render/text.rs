//! Characters of hostile text: which are dropped, which end a line, and how a text is cut. Knows no Markdown.

/// Invisible, without width, and no white space to Markdown: put after a character, it takes the character's meaning.
pub(super) const ZERO_WIDTH_SPACE: char = '\u{200b}';

/// Characters that nobody sees but that change what is seen: controls, bidirectional overrides, zero-width characters,
/// tags, and the noncharacters that `body` uses as marks of its own.
pub(super) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fdd0}'..='\u{fdef}' | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Whether a line ends here, to any renderer.
pub(super) fn is_line_break(c: char) -> bool {
    matches!(
        c,
        '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}

/// The text on one line: line breaks and other white space become spaces, hidden characters go.
pub(super) fn one_line(text: &str) -> impl Iterator<Item = char> {
    text.chars()
        .map(|c| {
            if is_line_break(c) || c.is_whitespace() {
                ' '
            } else {
                c
            }
        })
        .filter(|c| !is_hidden(*c))
}

/// The lines of a text; every kind of line break separates.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let current = rest?;
        let Some((at, found)) = current.char_indices().find(|(_, c)| is_line_break(*c)) else {
            rest = None;
            return Some(current);
        };
        let after = &current[at + found.len_utf8()..];
        let pair = found == '\r' && after.starts_with('\n');
        rest = Some(if pair { &after[1..] } else { after });
        Some(&current[..at])
    })
}

/// The first `limit` characters.
pub(super) fn prefix(text: &str, limit: usize) -> &str {
    text.char_indices()
        .nth(limit)
        .map_or(text, |(at, _)| &text[..at])
}

/// The text, at most `limit` characters long; a cut is shown as `…`.
pub(super) fn clip(text: &str, limit: usize) -> String {
    let short = prefix(text, limit);
    if short.len() == text.len() {
        return text.to_owned();
    }
    let mut clipped = prefix(text, limit.saturating_sub(1)).to_owned();
    clipped.push('…');
    clipped
}

/// Words with one space between them, nothing around them.
pub(super) fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line_break_separates_once() {
        let found: Vec<_> = lines("a\r\nb\nc\rd\u{2028}e\n").collect();
        assert_eq!(found, ["a", "b", "c", "d", "e", ""]);
    }

    #[test]
    fn a_cut_counts_characters_and_shows_itself() {
        assert_eq!(clip("äöü", 3), "äöü");
        assert_eq!(clip("äöüß", 3), "äö…");
        assert_eq!(one_line("a\u{202e}b\tc\nd").collect::<String>(), "ab c d");
    }
}
