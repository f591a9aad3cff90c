//! Holds the documentation to the code: what it names exists, and what must be named is.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic too")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use nabu_common::cli::markdown_help;
use nabu_hub::edit::{Patch, PatchType};
use nabu_hub::render::request::Request;
use nabu_hub::render::{TemplateSources, Templates};
use serde_json::Value;

const CHAPTERS: &str = "docs/src";
const CONFIGURATION: &str = "docs/src/configuration.md";
const OPERATING: &str = "docs/src/operating.md";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Files below a folder with this ending, as paths from the root.
fn files(folder: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&path, ending));
        } else if path.ends_with(ending) {
            found.push(path);
        }
    }
    found
}

/// What people wrote, as path and text; the reference of flags is generated.
fn documents() -> Vec<(String, String)> {
    let mut paths = files(CHAPTERS, ".md");
    paths.retain(|path| !path.contains("/reference/"));
    let top = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "charts/README.md",
    ];
    paths.extend(top.map(str::to_owned));
    paths
        .into_iter()
        .map(|path| (path.clone(), read(&path)))
        .collect()
}

/// The fenced blocks of a language, without what they are indented by.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        if line.trim() != format!("```{language}") {
            continue;
        }
        let block = lines.by_ref().take_while(|line| line.trim() != "```");
        let cut: Vec<_> = block
            .map(|line| line.get(indent..).unwrap_or_default())
            .collect();
        blocks.push(cut.join("\n"));
    }
    blocks
}

/// The text of a document outside of fenced blocks.
fn prose(text: &str) -> String {
    let mut inside = false;
    let keep = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    });
    keep.collect::<Vec<_>>().join("\n")
}

/// Words of these characters that begin with `start`.
fn words<'t>(text: &'t str, start: &str, more: &str) -> BTreeSet<&'t str> {
    let inside = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
    text.split(|c: char| !inside(c))
        .map(|word| word.trim_end_matches(['-', '_']))
        .filter(|word| word.starts_with(start) && word.len() > start.len())
        .collect()
}

/// All source files of the programs as one text.
fn source() -> String {
    let folders = ["hub/src", "agent/src", "common/src"];
    let paths = folders.iter().flat_map(|folder| files(folder, ".rs"));
    paths.map(|path| read(&path)).collect::<Vec<_>>().join("\n")
}

/// What is in back-ticks in each table row below a heading, row by row.
fn rows(text: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, section) = text
        .split_once(&format!("# {heading}\n"))
        .unwrap_or_else(|| panic!("no heading {heading:?}"));
    let section = section.split("\n#").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        row.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    })
    .collect()
}

fn config_schema() -> Value {
    let mut crds = nabu_common::crd::all();
    crds.retain(|crd| crd.spec.names.kind == "GitOpsResponderConfig");
    let version = serde_json::to_value(&crds[0].spec.versions[0]).unwrap();
    version["schema"]["openAPIV3Schema"]["properties"]["spec"].clone()
}

/// The names of all properties and all values of enumerations.
fn vocabulary(schema: &Value, names: &mut BTreeSet<String>) {
    if let Some(fields) = schema["properties"].as_object() {
        names.extend(fields.keys().cloned());
    }
    if let Some(values) = schema["enum"].as_array() {
        names.extend(values.iter().filter_map(Value::as_str).map(str::to_owned));
    }
    match schema {
        Value::Object(fields) => fields.values().for_each(|inner| vocabulary(inner, names)),
        Value::Array(items) => items.iter().for_each(|inner| vocabulary(inner, names)),
        _ => {}
    }
}

#[test]
fn every_field_of_a_configuration_is_described() {
    let mut names = BTreeSet::new();
    vocabulary(&config_schema(), &mut names);
    assert!(names.contains("allowProtectedPaths") && names.contains("ssh-deploy-key"));
    let chapter = prose(&read(CONFIGURATION));
    let has = |name: &str| {
        let code = chapter.split('`').skip(1).step_by(2);
        code.flat_map(|code| code.split([' ', '.', ':', '[', ']']))
            .any(|word| word == name)
    };
    let missing: Vec<_> = names.iter().filter(|name| !has(name)).collect();
    assert!(missing.is_empty(), "{CONFIGURATION} lacks {missing:?}");
}

#[test]
fn every_helper_and_block_of_templates_is_described() {
    let chapter = read(CONFIGURATION);
    let (_, section) = chapter.split_once("### Helpers").unwrap();
    let section = section.split("\n### ").next().unwrap();
    for unknown in ["{{ nothing 1 }}", "{{#nothing 1}}{{/nothing}}"] {
        let sources = TemplateSources {
            body: Some(unknown.to_owned()),
            ..TemplateSources::default()
        };
        let message = Templates::compile(&sources).unwrap_err().message;
        let (_, names) = message.split_once("there are ").unwrap();
        for name in names.split(", ") {
            let written = [
                format!("`{name}`"),
                format!("`{name} "),
                format!("`{{{{#{name}}}}}`"),
            ];
            assert!(
                written.iter().any(|form| section.contains(form)),
                "{CONFIGURATION} lacks the helper {name}"
            );
        }
    }
}

#[test]
fn every_configuration_that_is_shown_compiles() {
    let mut count = 0;
    for (path, text) in documents() {
        let shown = blocks(&text, "yaml").into_iter();
        let in_scripts = blocks(&text, "sh").into_iter().flat_map(|script| {
            let parts = script
                .split("<<'YAML'\n")
                .skip(1)
                .filter_map(|part| part.split("\nYAML").next());
            parts.map(str::to_owned).collect::<Vec<_>>()
        });
        for yaml in shown.chain(in_scripts) {
            let objects: Vec<Value> = serde_saphyr::from_multiple(&yaml)
                .unwrap_or_else(|error| panic!("{path}: {error}\n{yaml}"));
            for object in objects {
                if object["kind"] != "GitOpsResponderConfig" {
                    continue;
                }
                let compiled = nabu_hub::routes::compile::compile("n", "c", &object);
                let compiled =
                    compiled.unwrap_or_else(|problems| panic!("{path}: {problems:?}\n{yaml}"));
                assert!(!compiled.routes.is_empty(), "{path}: no route in\n{yaml}");
                count += 1;
            }
        }
    }
    assert!(count >= 6, "only {count} documents were found");
}

#[test]
fn every_event_response_that_is_shown_can_be_read() {
    for (path, text) in documents() {
        let scripts = blocks(&text, "sh").join("\n");
        for yaml in scripts.split("<<'YAML'\n").skip(1) {
            let yaml = yaml.split("\nYAML").next().unwrap_or_default();
            let objects: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
            for object in objects
                .iter()
                .filter(|object| object["kind"] == "EventResponse")
            {
                let read = nabu_common::crd::parse_event_response(object);
                let parameters = read.unwrap().spec.action.parameters;
                assert!(
                    parameters.is_some_and(|all| all.contains_key("path")),
                    "{path}"
                );
            }
        }
    }
}

#[test]
fn every_patch_that_is_shown_can_be_read() {
    let mut count = 0;
    for (path, text) in documents() {
        for lines in blocks(&text, "yaml-set") {
            Patch::parse(PatchType::YamlSet, &lines, None)
                .unwrap_or_else(|why| panic!("{path}: it {why}\n{lines}"));
            count += 1;
        }
        for yaml in blocks(&text, "yaml") {
            let objects: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
            for parameters in objects.iter().map(|object| &object["parameters"]) {
                if parameters.is_object() {
                    Request::parse(parameters)
                        .unwrap_or_else(|error| panic!("{path}: {}\n{yaml}", error.detail));
                    count += 1;
                }
            }
        }
    }
    assert!(count >= 2, "only {count} were found");
    let listed = rows(&read("docs/src/concepts.md"), "Patches");
    let listed: Vec<&str> = listed.iter().map(|row| row[0].as_str()).collect();
    let known = PatchType::ALL.map(PatchType::as_str);
    assert!(listed.ends_with(&known), "{listed:?}");
}

#[test]
fn every_flag_that_is_mentioned_exists() {
    let help = [
        markdown_help::<nabu_hub::config::Cli>(),
        markdown_help::<nabu_agent::config::Cli>(),
        markdown_help::<nabu_hub::nabuctl::Cli>(),
    ];
    let programs = ["nabu-hub", "nabu-agent", "nabuctl"].into_iter().zip(&help);
    let everything = help.join("\n");
    let mut all = words(&everything, "--", "-");
    // The references leave out what every program has.
    all.insert("--version");
    for (path, text) in documents() {
        for flag in words(&prose(&text), "--", "-") {
            assert!(all.contains(flag), "{path}: no program of ours has {flag}");
        }
        for script in blocks(&text, "sh") {
            for line in script.replace("\\\n", " ").lines() {
                let words_of_line: Vec<&str> = line.split_whitespace().collect();
                for (program, help) in programs.clone() {
                    if words_of_line.first() != Some(&program) {
                        continue;
                    }
                    let known = words(help, "--", "-");
                    for flag in words(line, "--", "-") {
                        assert!(known.contains(flag), "{path}: {program} has no {flag}");
                    }
                    if program == "nabuctl" {
                        let command = words_of_line[..3].join(" ");
                        assert!(
                            help.contains(&format!("`{command}`")),
                            "{path}: no {command}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn every_environment_variable_follows_the_rule_or_is_named() {
    let (text, chapter) = (source(), read(CONFIGURATION));
    let variables: BTreeSet<&str> = text
        .split("env = \"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    let rule = |prefix: &str, help: &str| -> BTreeSet<String> {
        let flags = words(help, "--", "-");
        let name = |flag: &&str| format!("{prefix}{}", flag[2..].to_uppercase().replace('-', "_"));
        flags.iter().map(name).collect()
    };
    let mut ruled = rule("NABU_HUB_", &markdown_help::<nabu_hub::config::Cli>());
    ruled.extend(rule(
        "NABU_AGENT_",
        &markdown_help::<nabu_agent::config::Cli>(),
    ));
    for variable in &variables {
        assert!(
            ruled.contains(*variable) || chapter.contains(&format!("`{variable}`")),
            "{CONFIGURATION} lacks the variable {variable}"
        );
    }
    for (path, text) in documents() {
        for variable in words(&text, "NABU_", "_") {
            let prefix = matches!(variable, "NABU_HUB" | "NABU_AGENT");
            assert!(
                prefix || variables.contains(variable),
                "{path}: no {variable}"
            );
        }
    }
}

#[test]
fn every_reason_that_is_listed_exists_and_every_error_is_listed() {
    let text = source();
    let exists = |reason: &str| {
        assert!(
            text.contains(&format!("\"{reason}\"")),
            "no code says {reason}"
        );
    };
    let errors = rows(&read(OPERATING), "Error reasons");
    let listed: BTreeSet<&str> = errors.iter().map(|row| row[0].as_str()).collect();
    assert!(listed.len() > 20, "{listed:?}");
    for reason in &listed {
        exists(reason);
    }
    let conditions = rows(&read("docs/src/concepts.md"), "Condition reasons");
    let verdicts = rows(&read(CONFIGURATION), "Where documents come from");
    for row in conditions.iter().chain(&verdicts) {
        exists(&row[0]);
        exists(&row[1]);
    }
    assert!(conditions.len() >= 10 && verdicts.len() == 4);
    for kind in ["Transient", "Permanent", "Conflicting", "Unauthorized"] {
        for rest in text.split(&format!("ErrorType::{kind},")).skip(1) {
            let Some(reason) = rest.trim_start().strip_prefix('"') else {
                continue;
            };
            let reason = reason.split('"').next().unwrap();
            // Tests of the code make up short ones.
            let real = reason.chars().filter(char::is_ascii_uppercase).count() > 1;
            assert!(
                !real || listed.contains(reason),
                "{OPERATING} lacks {reason}"
            );
        }
    }
}

#[test]
fn every_metric_is_listed_and_every_listed_metric_exists() {
    let (text, chapter) = (source(), read(OPERATING));
    let listed = words(&chapter, "nabu_", "_").into_iter();
    let listed: BTreeSet<_> = listed
        .chain(words(&chapter, "ugallu_gitops", "_"))
        .collect();
    let plain = |name: &str| {
        let name = name.strip_prefix("nabu_agent_").unwrap_or(name);
        let cut = ["_total", "_seconds", "_info"];
        let end = cut.iter().find_map(|end| name.strip_suffix(end));
        end.unwrap_or(name).to_owned()
    };
    let build = |name: &str| name.ends_with("_build_info");
    for name in listed.iter().filter(|name| !build(name)) {
        let literal = format!("\"{}\"", plain(name));
        assert!(
            text.contains(&literal),
            "{OPERATING}: nothing registers {name}"
        );
    }
    let listed: BTreeSet<String> = listed.iter().map(|name| plain(name)).collect();
    for marker in ["registry.register(", "registry.register_with_unit("] {
        for rest in text.split(marker).skip(1) {
            let Some(name) = rest.trim_start().strip_prefix('"') else {
                continue;
            };
            let name = name.split('"').next().unwrap();
            assert!(listed.contains(name), "{OPERATING} lacks the metric {name}");
        }
    }
}

#[test]
fn every_reason_to_refuse_a_connection_is_described_and_no_other() {
    let listed = rows(&read(OPERATING), "Refused connections");
    let described: BTreeSet<String> = listed
        .into_iter()
        .flatten()
        .filter(|word| {
            word.starts_with(char::is_uppercase) && word.chars().all(char::is_alphabetic)
        })
        .collect();
    let reasons = nabu_common::tls::Refusal::ALL.map(|one| one.as_str().to_owned());
    assert_eq!(described, reasons.into());
}

#[test]
fn every_line_of_the_threat_model_is_shown_by_tests_that_exist() {
    let text = ["hub", "agent", "common", "tests"]
        .iter()
        .flat_map(|folder| files(folder, ".rs"))
        .map(|path| read(&path))
        .collect::<String>();
    let chapter = read("docs/src/threat-model.md");
    let mut threats = 0;
    for line in chapter.lines().filter(|line| line.starts_with("| ")) {
        let Some(shown_by) = line.trim_end_matches(" |").rsplit(" | ").next() else {
            continue;
        };
        if shown_by == "shown by" || shown_by.starts_with("---") {
            continue;
        }
        threats += 1;
        let tests: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "nothing shows: {line}");
        for test in tests {
            assert!(text.contains(&format!("fn {test}(")), "no test {test}");
        }
    }
    assert!(threats > 25, "{threats}");
}

#[test]
fn every_relative_link_leads_somewhere() {
    let generated = files(CHAPTERS, ".md").into_iter();
    let generated = generated.filter(|path| path.contains("/reference/"));
    let pages = documents()
        .into_iter()
        .chain(generated.map(|path| (path.clone(), read(&path))));
    for (path, text) in pages {
        let folder = root().join(&path).parent().unwrap().to_owned();
        for link in prose(&text).split("](").skip(1) {
            let link = link.split([')', ' ']).next().unwrap();
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                root().join(&path)
            } else {
                folder.join(file)
            };
            assert!(target.exists(), "{path}: the link {link} leads nowhere");
            let book = root().join(CHAPTERS).canonicalize().unwrap();
            let inside = target.canonicalize().unwrap().starts_with(book);
            let leaves = path.starts_with(CHAPTERS) && !inside;
            assert!(!leaves, "{path}: the link {link} leads out of the book");
            if !anchor.is_empty() {
                let headings = fs::read_to_string(&target).unwrap();
                let found = headings.lines().any(|line| {
                    line.starts_with('#') && slug(line.trim_start_matches('#')) == anchor
                });
                assert!(found, "{path}: {link} names no heading");
            }
        }
    }
}

/// The id that mdBook and forges give a heading.
fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c => c.is_alphanumeric().then(|| c.to_ascii_lowercase()),
    });
    kept.collect()
}

#[test]
fn every_chapter_is_in_the_summary() {
    let summary = read("docs/src/SUMMARY.md");
    for path in files(CHAPTERS, ".md") {
        let name = path.trim_start_matches("docs/src/");
        let listed = name == "SUMMARY.md" || summary.contains(&format!("({name})"));
        assert!(listed, "docs/src/SUMMARY.md lacks {name}");
    }
}
