//! Shows in the body of a pull request what patches change. The patched files are only known when the change is made,
//! and their text is as hostile as all text from clusters and repositories.

use std::time::Duration;

use similar::TextDiff;

use super::{body, markdown, text};

const MAX_LINES: usize = 200;
const MAX_BYTES: usize = 16 * 1024;
const MAX_LINE: usize = 500;
/// Beyond this the diff may be longer than needed; it stays right.
const TIME: Duration = Duration::from_millis(500);
const HEADING: &str = "Changes of patched files:";

/// A patched file before and after.
#[derive(Clone, Copy, Debug)]
pub struct Edited<'a> {
    /// Its path.
    pub path: &'a str,
    /// What it is now.
    pub old: &'a str,
    /// What it will be.
    pub new: &'a str,
}

/// The body of a pull request with a bounded diff of these files, before the marker that is its last line.
pub fn body_with_diffs(body: &str, files: &[Edited<'_>]) -> String {
    let changed = files.iter().filter(|file| file.old != file.new);
    let diff: String = changed.map(unified).collect();
    if diff.is_empty() {
        return body.to_owned();
    }
    let (before, marker) = body.rsplit_once('\n').unwrap_or(("", body));
    let before = before.trim_end();
    let gap = if before.is_empty() { "" } else { "\n\n" };
    let (shown, more) = bounded(&diff);
    let fence = body::fence(&shown);
    let block = format!("{HEADING}\n\n{fence}diff\n{shown}\n{fence}");
    let more = if more == 0 {
        String::new()
    } else {
        format!("\n\n_… {more} more lines_")
    };
    let whole = format!("{before}{gap}{block}{more}\n\n{marker}");
    if whole.chars().count() <= body::MAX_BODY {
        whole
    } else {
        body.to_owned()
    }
}

fn unified(file: &Edited<'_>) -> String {
    let diff = TextDiff::configure()
        .timeout(TIME)
        .diff_lines(file.old, file.new);
    let header = (format!("a/{}", file.path), format!("b/{}", file.path));
    diff.unified_diff()
        .context_radius(3)
        .header(&header.0, &header.1)
        .to_string()
}

/// As much as is shown, made inert, and how many lines are not.
fn bounded(diff: &str) -> (String, usize) {
    let mut shown = String::new();
    let mut lines = diff.lines();
    let mut count = 0;
    let mut rest = lines.clone();
    while let Some(line) = lines.next() {
        let line = markdown::verbatim(&text::clip(line, MAX_LINE)).replace('\n', " ");
        if count == MAX_LINES || shown.len() + line.len() >= MAX_BYTES {
            return (shown, rest.count());
        }
        if count > 0 {
            shown.push('\n');
        }
        shown.push_str(&line);
        count += 1;
        rest = lines.clone();
    }
    (shown, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: &str = "<!-- nabu: cluster=a uid=b digest=c -->";

    fn body(old: &str, new: &str) -> String {
        let files = [Edited {
            path: "a.yaml",
            old,
            new,
        }];
        body_with_diffs(&format!("## Title\n\n{MARKER}"), &files)
    }

    #[test]
    fn a_patched_file_is_shown_before_the_marker() {
        assert_eq!(
            body("a: 1\nb: 2\n", "a: 1\nb: 3\n"),
            format!(
                "## Title\n\n{HEADING}\n\n```diff\n--- a/a.yaml\n+++ b/a.yaml\n@@ -1,2 +1,2 @@\n a: 1\n-b: 2\n+b: 3\n```\n\n{MARKER}"
            )
        );
        assert_eq!(body("a\n", "a\n"), format!("## Title\n\n{MARKER}"));
        let files = [Edited {
            path: "a",
            old: "x",
            new: "y",
        }];
        assert!(body_with_diffs(MARKER, &files).ends_with(&format!("```\n\n{MARKER}")));
    }

    #[test]
    fn text_in_a_diff_cannot_act() {
        let hostile = "```\n````` @you #1 <!-- --> \u{202e}\r<img src=x>\n";
        let body = body("", hostile);
        assert!(
            body.contains("\n``````diff\n") && body.contains("\n``````\n"),
            "{body}"
        );
        assert!(
            !body.contains("@you") && !body.contains("#1") && !body.contains('\u{202e}'),
            "{body}"
        );
        assert_eq!(body.matches("-->").count(), 1);
    }

    #[test]
    fn a_long_diff_is_cut_and_says_how_much_is_missing() {
        let new = "x: y\n".repeat(1000);
        let long = body("", &new);
        assert!(long.contains("\n\n_… 803 more lines_\n\n"), "{long}");
        let wide = body("", &format!("{}\n", "`".repeat(100_000)).repeat(100));
        assert!(
            wide.len() < 3 * MAX_BYTES && wide.ends_with(MARKER),
            "{}",
            wide.len()
        );
        let full = format!("{}\n\n{MARKER}", "x".repeat(59_900));
        let files = [Edited {
            path: "a",
            old: "",
            new: &new,
        }];
        assert_eq!(body_with_diffs(&full, &files), full);
    }
}
