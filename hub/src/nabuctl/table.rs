//! Tables that fit a terminal. Pure: rows, a width and whether there are colours give lines.

use unicode_width::UnicodeWidthStr as _;

/// No column is cut below this, but for one whose cells are all shorter.
const NARROWEST: usize = 8;
/// Between two columns.
const GAP: usize = 2;

/// How a cell is meant, shown by a colour where there are colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    #[default]
    Plain,
    Good,
    Warning,
    Bad,
}

impl Tone {
    const fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Good => Some("32"),
            Self::Warning => Some("33"),
            Self::Bad => Some("31"),
        }
    }
}

impl Tone {
    /// A text in the colour of its tone, where there are colours.
    pub(super) fn paint(self, text: &str, colours: bool) -> String {
        match self.code().filter(|_| colours) {
            Some(code) => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            None => text.to_owned(),
        }
    }
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(super) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self {
            text: visible(&text.into()),
            tone,
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

/// Text from clusters and forges, without what a terminal would obey.
pub(super) fn visible(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// The lines of a table; the first has the headings.
pub(super) fn lines(
    headings: &[&str],
    rows: &[Vec<Cell>],
    width: Option<usize>,
    colours: bool,
) -> Vec<String> {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.width()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(shown(cell).width());
        }
    }
    if let Some(most) = width {
        shrink(&mut widths, most);
    }
    let head: Vec<Cell> = headings
        .iter()
        .map(|heading| Cell::from(*heading))
        .collect();
    std::iter::once(&head)
        .chain(rows)
        .map(|row| line(row, &widths, colours))
        .collect()
}

fn shown(cell: &Cell) -> &str {
    if cell.text.is_empty() {
        "-"
    } else {
        &cell.text
    }
}

/// Takes from the widest column until everything fits, or nothing more can be taken.
fn shrink(widths: &mut [usize], most: usize) {
    let gaps = GAP * widths.len().saturating_sub(1);
    loop {
        let total: usize = widths.iter().sum::<usize>() + gaps;
        let Some(widest) = widths.iter_mut().max() else {
            return;
        };
        if total <= most || *widest <= NARROWEST {
            return;
        }
        *widest = widest
            .saturating_sub(total - most)
            .max(NARROWEST)
            .max(*widest / 2);
    }
}

fn line(row: &[Cell], widths: &[usize], colours: bool) -> String {
    let mut line = String::new();
    for (index, (cell, width)) in row.iter().zip(widths).enumerate() {
        let text = cut(shown(cell), *width);
        let padding = width - text.width();
        line.push_str(&cell.tone.paint(&text, colours));
        if index + 1 < row.len() {
            line.extend(std::iter::repeat_n(' ', padding + GAP));
        }
    }
    line
}

/// A text of at most this width, with `…` where something is missing.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    for c in text.chars() {
        let next = short.width() + unicode_width::UnicodeWidthChar::width(c).unwrap_or(0);
        if next + 1 > width {
            break;
        }
        short.push(c);
    }
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<Cell>> {
        vec![
            vec![
                "prod-eu".into(),
                "https://forge.example/o/r/pulls/123".into(),
            ],
            vec![Cell::toned("日本", Tone::Bad), "".into()],
        ]
    }

    #[test]
    fn columns_are_aligned_by_what_a_terminal_shows() {
        let lines = lines(&["CLUSTER", "URL"], &rows(), None, false);
        assert_eq!(
            lines,
            [
                "CLUSTER  URL",
                "prod-eu  https://forge.example/o/r/pulls/123",
                "日本     -"
            ]
        );
    }

    #[test]
    fn a_table_fits_its_terminal_by_cutting_the_widest_column() {
        for width in [20, 30, 40] {
            let lines = lines(&["CLUSTER", "URL"], &rows(), Some(width), true);
            for line in lines.iter().filter(|line| !line.contains('\u{1b}')) {
                assert!(line.width() <= width, "{width}: {line}");
            }
            assert!(lines[1].starts_with("prod-eu") && lines[1].ends_with('…'));
        }
    }

    #[test]
    fn colours_are_only_where_they_are_wanted() {
        let with = lines(&["A", "B"], &rows(), None, true).join("\n");
        assert!(with.contains("\u{1b}[31m日本\u{1b}[0m"));
        assert!(
            !lines(&["A", "B"], &rows(), None, false)
                .join("\n")
                .contains('\u{1b}')
        );
    }

    #[test]
    fn what_a_terminal_would_obey_is_not_shown() {
        assert_eq!(Cell::from("a\u{1b}[2Jb").text, "a\u{fffd}[2Jb");
    }
}
