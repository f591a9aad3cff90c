//! How answers are printed: one place for tables, JSON, YAML and names.

use std::io::{IsTerminal as _, Write};

use clap::ValueEnum;
use serde_json::Value;

use super::table::{self, Cell, visible};

pub(super) type Out<'a> = &'a mut (dyn Write + Send);

/// How answers are to be printed, as the command line says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// A table that fits the terminal.
    #[default]
    Table,
    /// A table with more columns, nothing cut.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Names only, one on a line.
    Name,
    /// Values for the agent's chart (`cluster add`).
    Values,
}

impl Form {
    /// The form that every command has; `None` for what only one of them has.
    pub(super) const fn common(self) -> Option<Output> {
        Some(match self {
            Self::Table => Output::Table,
            Self::Wide => Output::Wide,
            Self::Json => Output::Json,
            Self::Yaml => Output::Yaml,
            Self::Name => Output::Name,
            Self::Values => return None,
        })
    }
}

/// How answers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// A table that fits the terminal.
    Table,
    /// A table with more columns, nothing cut.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Names only, one on a line.
    Name,
}

/// What is known of where the output goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Terminal {
    /// Columns; `None` if it is no terminal.
    pub(super) width: Option<usize>,
    /// Whether colours are wanted.
    pub(super) colours: bool,
}

impl Terminal {
    /// Standard output as it is now. `NO_COLOR` with any value but the empty one takes colours away (no-color.org).
    pub(super) fn of_stdout() -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if !std::io::stdout().is_terminal() {
            return Self::default();
        }
        let size = ratatui::crossterm::terminal::size().ok();
        Self {
            width: size.map(|(columns, _)| usize::from(columns)),
            colours: !no_color,
        }
    }
}

/// A list of things, in all forms.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    /// Headings; those from `wide` on are for [`Output::Wide`] only.
    pub(super) headings: Vec<&'static str>,
    /// How many headings a table has.
    pub(super) narrow: usize,
    /// One row for each thing, with a cell for every heading.
    pub(super) rows: Vec<Vec<Cell>>,
    /// What each is called.
    pub(super) names: Vec<String>,
    /// Each as JSON.
    pub(super) values: Vec<Value>,
    /// What is said if there is nothing.
    pub(super) empty: &'static str,
}

impl Listing {
    /// Prints all of it.
    pub(super) fn print(&self, output: Output, out: Out<'_>) -> anyhow::Result<()> {
        self.print_to(output, Terminal::of_stdout(), out)
    }

    fn print_to(&self, output: Output, terminal: Terminal, out: Out<'_>) -> anyhow::Result<()> {
        match output {
            Output::Json | Output::Yaml => print_value(&self.values.clone().into(), output, out),
            Output::Name => {
                for name in &self.names {
                    writeln!(out, "{}", visible(name))?;
                }
                Ok(())
            }
            Output::Table | Output::Wide if self.rows.is_empty() => {
                writeln!(out, "{}", self.empty)?;
                Ok(())
            }
            Output::Table | Output::Wide => {
                for line in self.lines(output, terminal) {
                    writeln!(out, "{line}")?;
                }
                Ok(())
            }
        }
    }

    /// The lines of the table; the first has the headings.
    pub(super) fn lines(&self, output: Output, terminal: Terminal) -> Vec<String> {
        let (columns, width) = if output == Output::Wide {
            (self.headings.len(), None)
        } else {
            (self.narrow, terminal.width)
        };
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| row.iter().take(columns).cloned().collect())
            .collect();
        table::lines(&self.headings[..columns], &rows, width, terminal.colours)
    }

    /// Prints what came later, without headings: a line for each thing in every form.
    pub(super) fn print_more(&self, output: Output, out: Out<'_>) -> anyhow::Result<()> {
        match output {
            Output::Json => {
                for value in &self.values {
                    writeln!(out, "{value}")?;
                }
            }
            Output::Yaml => {
                for value in &self.values {
                    write!(out, "---\n{}", serde_saphyr::to_string(value)?)?;
                }
            }
            Output::Name => return self.print(output, out),
            Output::Table | Output::Wide => {
                for line in self.lines(output, Terminal::of_stdout()).iter().skip(1) {
                    writeln!(out, "{line}")?;
                }
            }
        }
        out.flush()?;
        Ok(())
    }
}

/// Prints a value as JSON or YAML.
pub(super) fn print_value(value: &Value, output: Output, out: Out<'_>) -> anyhow::Result<()> {
    if output == Output::Yaml {
        write!(out, "{}", serde_saphyr::to_string(value)?)?;
    } else {
        writeln!(out, "{}", serde_json::to_string_pretty(value)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn print(output: Output) -> String {
        let listing = Listing {
            headings: vec!["NAME", "PHASE", "UID"],
            narrow: 2,
            rows: vec![vec!["er-1".into(), "Failed".into(), "u-1".into()]],
            names: vec!["prod-eu/er-1".to_owned()],
            values: vec![json!({"name": "er-1", "ok": true})],
            empty: "nothing",
        };
        let mut text = Vec::new();
        listing
            .print_to(output, Terminal::default(), &mut text)
            .unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn every_form_has_the_same_things() {
        assert_eq!(print(Output::Table), "NAME  PHASE\ner-1  Failed\n");
        assert_eq!(
            print(Output::Wide),
            "NAME  PHASE   UID\ner-1  Failed  u-1\n"
        );
        assert_eq!(print(Output::Name), "prod-eu/er-1\n");
        let json: Value = serde_json::from_str(&print(Output::Json)).unwrap();
        assert_eq!(json[0]["name"], "er-1");
        let yaml: Value = serde_saphyr::from_str(&print(Output::Yaml)).unwrap();
        assert_eq!(yaml, json);
    }
}
