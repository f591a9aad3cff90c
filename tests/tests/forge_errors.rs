//! The book's tables of what forges say are those of the code.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use nabu_tests::process::repository_root;

const OPERATING: &str = "docs/src/operating.md";

fn read(path: &str) -> String {
    std::fs::read_to_string(repository_root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A row of a table of errors: words, reason, type, and whether the response waits.
type ErrorRow = (String, String, String, bool);

/// The rows in the sources of a forge.
fn error_rows_of_code(path: &str) -> Vec<ErrorRow> {
    let code = read(path);
    let rows = code.split("    row(\n").skip(1);
    rows.map(|row| {
        let fields: Vec<&str> = row.lines().map(str::trim).collect();
        let text = |line: &str| line.trim_end_matches(',').trim_matches('"').to_owned();
        let outcome = fields[1].trim_end_matches(',');
        let kind = outcome.split(['(', ')']).nth(1).unwrap_or("Transient");
        let waits = !outcome.starts_with("Failed");
        (text(fields[0]), text(fields[2]), kind.to_owned(), waits)
    })
    .collect()
}

/// The rows below a heading.
fn error_rows_of_book(path: &str, heading: &str) -> Vec<ErrorRow> {
    let text = read(path);
    let (_, section) = text.split_once(&format!("### {heading}\n")).unwrap();
    let section = section.split("\n#").next().unwrap();
    let lines = section.lines().filter(|line| line.starts_with("| `"));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split(" | ").collect();
            let words = cells[0].trim_start_matches("| ");
            let words = words.strip_prefix("``").map_or_else(
                || words.trim_matches('`').to_owned(),
                |rest| rest.trim_end_matches("``").trim().to_owned(),
            );
            let reason = cells[1].trim_matches('`').to_owned();
            let waits = cells[3].starts_with("waits");
            (words, reason, cells[2].to_owned(), waits)
        })
        .collect()
}

#[test]
fn the_table_of_each_forges_errors_is_that_of_the_code() {
    for (forge, heading) in [
        ("github", "Errors of GitHub"),
        ("gitlab", "Errors of GitLab"),
        ("forgejo", "Errors of Forgejo and Gitea"),
    ] {
        let code = error_rows_of_code(&format!("hub/src/forge/{forge}/errors.rs"));
        let book = error_rows_of_book(&format!("docs/src/forges/{forge}.md"), heading);
        assert!(code.len() > 10, "{forge}");
        assert_eq!(book, code, "{forge}");
    }
}

#[test]
fn every_reason_in_a_table_of_answers_is_a_reason() {
    let operating = read(OPERATING);
    for (forge, heading) in [
        ("gitlab", "Answers of GitLab"),
        ("forgejo", "Answers of Forgejo and Gitea"),
    ] {
        let text = read(&format!("docs/src/forges/{forge}.md"));
        let (_, section) = text.split_once(&format!("### {heading}\n")).unwrap();
        let section = section.split("\n#").next().unwrap();
        let rows = section.lines().filter(|line| line.starts_with("| "));
        let rows: Vec<Vec<&str>> = rows.map(|line| line.split(" | ").collect()).collect();
        assert!(rows.len() > 10, "{forge}");
        for cells in rows.iter().skip(2) {
            let known = format!("| {} | {} |", cells[1], cells[2]);
            assert!(
                cells[1] == "none" || operating.contains(&known),
                "{forge}: {known}"
            );
        }
    }
}
