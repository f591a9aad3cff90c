//! Properties of edits, over files and patches that are made up.

use proptest::prelude::*;

use super::tests::{changed, json6902};
use super::*;

/// A made-up file: entries of several styles, each line with a comment of its own.
#[derive(Clone, Debug)]
enum Made {
    Leaf(String),
    Map(Vec<Made>),
    List(Vec<Made>),
}

fn any_leaf() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("plain".to_owned()),
        Just("17".to_owned()),
        Just("\"double: quoted\"".to_owned()),
        Just("'single # quoted'".to_owned()),
        Just("{a: 1, \"b\": [x, y]}".to_owned()),
        Just("[]".to_owned()),
        Just("|BLOCK".to_owned()),
        Just(">-BLOCK".to_owned()),
        Just("|+BLOCK".to_owned()),
        Just(String::new()),
    ]
}

fn any_made() -> impl Strategy<Value = Made> {
    let leaf = any_leaf().prop_map(Made::Leaf);
    let inner = leaf.prop_recursive(4, 30, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(Made::Map),
            prop::collection::vec(inner, 1..4).prop_map(Made::List),
        ]
    });
    prop::collection::vec(inner, 1..4).prop_map(Made::Map)
}

/// Writes a file, and counts lines in `line` to make each comment another.
struct Writer {
    out: String,
    line: usize,
    dash: usize,
    comments: bool,
}

impl Writer {
    fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn comment(&mut self) -> String {
        self.line += 1;
        if self.comments && !self.line.is_multiple_of(3) {
            format!(" # c{}", self.line)
        } else {
            String::new()
        }
    }

    fn above(&mut self, indent: usize) {
        self.line += 1;
        if self.comments && self.line.is_multiple_of(4) {
            self.push(&format!("{}# above {}\n", " ".repeat(indent), self.line));
        } else if self.line.is_multiple_of(7) {
            self.push("\n");
        }
    }

    fn children(&mut self, made: &Made, indent: usize, mut inline: bool) {
        let (Made::Map(children) | Made::List(children)) = made else {
            return;
        };
        for (at, child) in children.iter().enumerate() {
            if !std::mem::take(&mut inline) {
                self.above(indent);
                self.push(&" ".repeat(indent));
            }
            let is_list = matches!(made, Made::List(_));
            self.push(&if is_list {
                "-".to_owned()
            } else {
                format!("k{at}:")
            });
            match child {
                Made::Leaf(text) if text.ends_with("BLOCK") => {
                    let header = text.trim_end_matches("BLOCK");
                    let pad = " ".repeat(indent + 2);
                    let comment = self.comment();
                    self.push(&format!(
                        " {header}{comment}\n{pad}line {}\n\n{pad}  # no comment\n{pad}end\n",
                        self.line
                    ));
                }
                Made::Leaf(text) => {
                    let space = if text.is_empty() { "" } else { " " };
                    let comment = self.comment();
                    self.push(&format!("{space}{text}{comment}\n"));
                }
                inner if is_list && self.line.is_multiple_of(2) => {
                    self.push(" ");
                    self.children(inner, indent + 2, true);
                }
                inner => {
                    let comment = self.comment();
                    self.push(&format!("{comment}\n"));
                    let dash = if matches!(inner, Made::List(_)) && !is_list {
                        self.dash
                    } else {
                        2
                    };
                    self.children(inner, indent + dash, false);
                }
            }
        }
    }
}

fn written(made: &Made, dash: usize, comments: bool) -> String {
    let mut writer = Writer {
        out: String::new(),
        line: 0,
        dash,
        comments,
    };
    writer.children(made, 0, false);
    writer.out
}

/// All JSON Pointers of a value, but that of the whole.
fn pointers(value: &Plain, at: &str, out: &mut Vec<(String, Plain)>) {
    let mut child = |key: &str, value: &Plain| {
        let at = format!("{at}/{key}");
        out.push((at.clone(), value.clone()));
        pointers(value, &at, out);
    };
    match value {
        Plain::Map(map) => map.iter().for_each(|(key, value)| child(key, value)),
        Plain::List(items) => items
            .iter()
            .enumerate()
            .for_each(|(at, value)| child(&at.to_string(), value)),
        _ => {}
    }
}

const VALUES: [&str; 8] = [
    "1",
    "\"text\"",
    "\"two\\nlines\\n\"",
    "null",
    "{\"x\":{\"y\":[1,{\"z\":2}]},\"w\":\"\"}",
    "[{\"name\":\"n\"},[1]]",
    "{}",
    "[]",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// `apply` refuses what it cannot verify, so that an answer is a right one; this says that there is an answer.
    #[test]
    fn every_patch_of_a_usual_file_applies_and_leaves_other_lines(
        made in any_made(),
        dash in prop_oneof![Just(0_usize), Just(2)],
        comments in any::<bool>(),
        windows in any::<bool>(),
        place in any::<prop::sample::Index>(),
        value in prop::sample::select(&VALUES[..]),
        how in 0..3_u8,
    ) {
        let mut file = written(&made, dash, comments);
        if windows {
            file = file.replace('\n', "\r\n");
        }
        let value_of = plain::yaml(&file).map_err(TestCaseError::fail)?;
        prop_assume!(!value_of.is_empty());
        let mut all = Vec::new();
        pointers(&value_of[0], "", &mut all);
        let (at, old) = place.get(&all);
        let operation = match how {
            0 => format!(r#"[{{"op":"replace","path":"{at}","value":{value}}}]"#),
            1 => format!(r#"[{{"op":"remove","path":"{at}"}}]"#),
            _ => {
                let at = match old {
                    Plain::Map(_) => format!("{at}/new"),
                    Plain::List(_) => format!("{at}/-"),
                    _ => at.clone(),
                };
                format!(r#"[{{"op":"add","path":"{at}","value":{value}}}]"#)
            }
        };
        let new = json6902("x.yaml", &file, &operation)
            .map_err(|error| TestCaseError::fail(format!("{error}\n{operation}\n{file}")))?;
        let is_leaf = !matches!(old, Plain::Map(_) | Plain::List(_));
        if windows {
            prop_assert_eq!(new.matches('\n').count(), new.matches("\r\n").count());
        }
        // Lines that are not of the place stay.
        let lines = changed(&file, &new);
        let (gone, come): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.starts_with('-'));
        let context = format!("{operation}\n{file}\n{new}");
        let is_block_scalar = matches!(old, Plain::Text(text) if text.contains("line "));
        match how {
            0 if is_leaf && !is_block_scalar => prop_assert!(gone.len() <= 1, "{context}"),
            1 => prop_assert!(come.len() <= 1, "{context}"),
            2 if !is_leaf => {
                let in_brackets = |line: &String| line.contains(['[', '{']);
                prop_assert!(gone.len() <= 1 && gone.into_iter().all(in_brackets), "{context}");
            }
            _ => {}
        }
    }

    #[test]
    fn hostile_files_and_patches_do_no_harm(
        file in prop_oneof![any::<String>(), "[a-c&*!:\\-?|>{}\\[\\], #\n\t\"'%]{0,40}"],
        lines in prop_oneof![any::<String>(), "[a-c.\\[\\]=\"' +*&{}0-9\n-]{0,30}"],
    ) {
        for kind in PatchType::ALL {
            for text in [lines.as_str(), "a = 1", "{\"a\": 1}", r#"[{"op":"add","path":"/a","value":1}]"#] {
                if let Ok(patch) = Patch::parse(kind, text, None) {
                    for path in ["x.yaml", "x.json"] {
                        let _ = apply(path, &patch, file.as_bytes());
                    }
                }
            }
        }
    }
}
