//! What templates may say, what they see, and that nothing they write can act.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn compile(body: &str) -> Result<Templates, TemplateError> {
    Templates::compile(&TemplateSources {
        body: Some(body.to_owned()),
        ..TemplateSources::default()
    })
}

fn data() -> Value {
    json!({
        "Source": {
            "SE": {
                "metadata": {"name": "se-1"},
                "spec": {
                    "type": "ClusterAdminGranted",
                    "subject": {"name": "evil-binding", "kind": "ClusterRoleBinding"},
                    "signals": {"a": "1", "b": "@2"},
                    "parents": [{"name": "p1"}, {"name": "p2"}],
                    "detectedAt": "2026-01-02T03:04:05Z",
                    "empty": "", "hostile": "@you [x](http://y) <b>\n# z", "none": null, "unknownToUs": {"deep": [1, 2]},
                },
            },
            "ER": {"metadata": {"name": "er-1", "uid": "u"}, "spec": {"action": {"type": "GitOpsChange"}}},
        },
        "Cluster": {"id": "prod-eu", "name": "Prod EU", "labels": {"app.kubernetes.io/env": "prod"}},
        "Route": {"id": "ns/c/r", "baseBranch": "main"},
    })
}

fn rendered(body: &str) -> String {
    let context = Context::from(data());
    compile(body)
        .unwrap_or_else(|error| panic!("{body}: {error}"))
        .body
        .render(&context)
        .unwrap()
        .text
}

#[test]
fn paths_resolve_wherever_they_stand() {
    for (template, expected) in [
        ("{{ .Source.SE.Type }}", "ClusterAdminGranted"),
        (
            "{{Source.SE.Type}} {{Source.SE.spec.type}} {{@root.Source.SE.Type}}",
            "ClusterAdminGranted ClusterAdminGranted ClusterAdminGranted",
        ),
        (
            "{{ .Source.ER.Name }}/{{ .source.er.UID }}/{{.Source.ER.Action.Type}}",
            "er-1/u/GitOpsChange",
        ),
        (
            "{{ .Cluster.ID }} {{.Cluster.Labels.[app.kubernetes.io/env]}} {{ .Route.BaseBranch }}",
            "prod-eu prod main",
        ),
        ("{{#if .Source.SE.Type}}yes{{else}}no{{/if}}", "yes"),
        (
            "{{#if .Source.SE.Nothing}}yes{{else if .Cluster.ID}}else{{/if}}",
            "else",
        ),
        ("{{#unless .Source.SE.Empty}}none{{/unless}}", "none"),
        (
            "{{#each .Source.SE.Parents}}{{@index}}{{.Name}}{{this.NAME}}{{name}}{{$.Cluster.ID}} {{/each}}",
            "0p1p1p1prod-eu 1p2p2p2prod-eu ",
        ),
        (
            "{{#each .Source.SE.Parents as |p|}}{{p.name}}{{/each}}",
            "p1p2",
        ),
        (
            "{{#each .Source.SE.Signals}}{{@key}}={{this}}{{.}};{{/each}}",
            "a=11;b=\u{200b}@\u{200b}2\u{200b}@\u{200b}2;",
        ),
        (
            "{{#with .Source.SE}}{{.Subject.Name}} {{this.type}} {{.Cluster.ID}}{{/with}}",
            "evil-binding ClusterAdminGranted prod-eu",
        ),
        (
            "{{#with .Source.SE.Subject}}{{name}} {{../Cluster.id}}{{/with}}",
            "evil-binding prod-eu",
        ),
        (
            "{{#each .Source.SE.unknownToUs.deep}}{{this}},{{/each}}",
            "1,2,",
        ),
        (
            "{{lookup .Source.SE.Signals \"a\"}}{{#if (eq .Cluster.ID \"prod-eu\")}}!{{/if}}",
            "1!",
        ),
        (
            "[{{ .Nothing }}{{ .Source.SE.None }}{{nothing}}{{#each .Nothing}}x{{/each}}{{#with .Nothing}}x{{/with}}]",
            "[]",
        ),
        ("a\n  {{- .Cluster.ID -}}  \nb", "aprod-eub"),
    ] {
        assert_eq!(rendered(template), expected, "{template}");
    }
}

#[test]
fn helpers_do_what_people_need() {
    for (template, expected) in [
        (
            "{{default .Source.SE.Empty \"none\"}} {{default .Cluster.ID \"x\"}}",
            "none prod-eu",
        ),
        ("{{truncate 8 .Source.SE.Type}}", "Cluster…"),
        (
            "{{date .Source.SE.DetectedAt}} {{date .Source.SE.DetectedAt \"%H:%M\"}} {{date .Cluster.ID}}{{date .X}}",
            "2026-01-02 03:04 prod-eu",
        ),
        ("{{indent 2 .Source.SE.Subject.Name}}", "  evil-binding"),
        (
            "{{default (truncate 3 .Nothing) (json .Source.SE.Parents.0)}}",
            "\u{200b}{ ”name”: ”p1” }",
        ),
    ] {
        assert_eq!(
            rendered(template).replace("   ", " "),
            expected,
            "{template}"
        );
    }
    let block = super::super::body::assemble(&rendered("{{json .Source.SE.Signals}}"), false, "");
    assert_eq!(
        block,
        "```json\n{\n  \"a\": \"1\",\n  \"b\": \"@\u{200b}2\"\n}\n```\n\n"
    );
    let block = super::super::body::assemble(
        &rendered("{{{codeblock .Source.SE.Type \"text\"}}}"),
        false,
        "",
    );
    assert_eq!(block, "```text\nClusterAdminGranted\n```\n\n");
}

#[test]
fn no_spelling_writes_a_raw_value() {
    let inert = markdown::neutralise("@you [x](http://y) <b>\n# z");
    for template in [
        "{{.Source.SE.Hostile}}",
        "{{{.Source.SE.Hostile}}}",
        "{{&.Source.SE.Hostile}}",
        "{{{Source.SE.spec.hostile}}}",
        "{{~{.Source.SE.Hostile}~}}",
        "{{& Source.SE.spec.hostile}}",
        "{{#with .Source.SE.Hostile}}{{{this}}}{{/with}}",
        "{{{default .Source.SE.Hostile 1}}}",
        "{{{lookup .Source.SE.spec \"hostile\"}}}",
        "{{{truncate 500 .Source.SE.Hostile}}}",
        "{{#if 1}}{{#with .Source.SE}}{{{spec.hostile}}}{{/with}}{{/if}}",
        "{{{date .Source.SE.Hostile}}}",
    ] {
        assert_eq!(rendered(template), inert, "{template}");
    }
    assert!(
        !rendered("{{{indent 2 .Source.SE.Hostile}}}{{{.Source.SE}}}{{{.Source.SE.Signals}}}")
            .contains("@you")
    );
}

#[test]
fn a_bad_template_is_refused_with_its_line() {
    for (template, line, word) in [
        ("a\n{{#if .X}}\n", None, "syntax"),
        ("a\n{{shout .X}}", Some(2), "shout"),
        (
            "{{#if .X}}\n{{#each .Y}}\n{{default (shout .X) 1}}{{/each}}{{/if}}",
            Some(3),
            "shout",
        ),
        ("{{#loop .X}}{{/loop}}", Some(1), "loop"),
        ("\n\n{{> partial}}", Some(3), "partials"),
        ("{{#*inline \"x\"}}y{{/inline}}", Some(1), "decorators"),
        ("{{log .X}}", Some(1), "log"),
        ("{{{{raw}}}}x{{{{/raw}}}}", Some(1), "raw"),
        ("{{ if .X }}a{{ end }}", Some(1), "block"),
        ("{{ end }}", Some(1), "Go"),
        ("{{ range .X }}", Some(1), "Go"),
        ("{{default .X}}", Some(1), "2 argument"),
        ("{{json}}", Some(1), "needs an argument"),
        ("{{(json .X)}}", Some(1), "parentheses"),
        ("{{#if .X}}{{/each}}", None, "each"),
        ("{{ .X", Some(1), "closed"),
    ] {
        let error = compile(template).unwrap_err();
        assert_eq!(error.template, "prTemplate");
        assert!(line.is_none() || error.line == line, "{template}: {error}");
        assert!(
            error.message.contains(word) && !error.message.contains('\n'),
            "{template}: {error}"
        );
    }
    let error = TemplateError {
        template: "titleTemplate",
        line: Some(2),
        message: "no".to_owned(),
    };
    assert_eq!(error.to_string(), "titleTemplate, line 2: no");
}

#[test]
fn what_fails_only_when_rendered_names_template_and_line() {
    let context = Context::from(data());
    let error = compile("a\n{{truncate .Cluster.ID 3}}")
        .unwrap()
        .body
        .render(&context)
        .unwrap_err();
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorType::Permanent, "TemplateFailed")
    );
    assert!(
        error.detail.starts_with("prTemplate, line 2: truncate:"),
        "{}",
        error.detail
    );
}

#[test]
fn a_huge_output_stops_early() {
    let items: Vec<Value> = (0..2_000).map(Value::from).collect();
    let context = Context::from(json!({"a": items}));
    let templates =
        compile("{{#each .a}}{{#each ../a}}äääääääääääääääää{{/each}}{{/each}}").unwrap();
    let output = templates.body.render(&context).unwrap();
    assert!(
        output.cut && output.text.len() <= MAX_OUTPUT_BYTES && !output.text.contains('\u{fffd}')
    );
}

#[test]
fn templates_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + Clone + fmt::Debug>(_: &T) {}
    shared(&Templates::compile(&TemplateSources::default()).unwrap());
}

proptest! {
    #[test]
    fn no_template_makes_the_compiler_or_the_renderer_panic(
        parts in prop::collection::vec(prop::sample::select(vec![
            "{{", "}}", "{{{", "}}}", "{{#", "{{/", "{{^", "if", "each", "with", "else", " ", ".", ".Source", ".Source.SE.Type",
            "this", "..", "../", "/", "(", ")", "json", "default", "\"", "'", "[", "]", "|", "as", "=", "&", "~", "!", "--",
            ">", "*", "1", "-", "@key", "\\", "\n", "x", "$", "lookup", "{{#if .X}}", "{{/if}}", "{{#each .Source.SE}}", "{{/each}}", "ä",
        ]), 0..16),
    ) {
        if let Ok(templates) = compile(&parts.concat()) {
            let _ = templates.body.render(&Context::from(data()));
        }
    }
}
