//! Edits of whole files, as exact texts. The sibling `properties` makes files and patches up.

use super::*;

const DEPLOYMENT: &str = "\
# Managed by the platform team.

apiVersion: apps/v1
kind: Deployment
metadata:
  name: app   # the name
  labels: {app: app, \"tier\": web}
  annotations:
    # quoted, as it has dots
    \"example.com/owner\": 'team-a'
spec:
  replicas: 3 # three
  template:
    spec:
      containers:
        # first
        - name: app
          image: \"registry/app:1.0\" # pinned
          args: [--a, --b]
          env:
          - name: A
            value: \"1\"
        # second
        - name: side
          image: side:1

          resources:
            limits: {cpu: 100m}
      nodeSelector:
---
# The second document.
apiVersion: v1
kind: ConfigMap
metadata:
  name: app
data:
  script: |
    #!/bin/sh
    echo one

    echo two
  folded: >-
    some
    text
";

fn patch(kind: PatchType, text: &str, target: Option<&str>) -> Patch {
    Patch::parse(kind, text, target).unwrap()
}

fn set(file: &str, lines: &str) -> Result<String, EditError> {
    let target = file.contains("\n---\n").then_some("kind=Deployment");
    apply(
        "x.yaml",
        &patch(PatchType::YamlSet, lines, target),
        file.as_bytes(),
    )
}

pub(super) fn json6902(path: &str, file: &str, text: &str) -> Result<String, EditError> {
    let target = file.contains("\n---\n").then_some("kind=Deployment");
    apply(
        path,
        &patch(PatchType::Json6902, text, target),
        file.as_bytes(),
    )
}

/// The lines that went and came, with `-` and `+`.
pub(super) fn changed(old: &str, new: &str) -> Vec<String> {
    let diff = similar::TextDiff::from_lines(old, new);
    let changes = diff.iter_all_changes();
    changes
        .filter(|change| change.tag() != similar::ChangeTag::Equal)
        .map(|change| format!("{}{}", change.tag(), change.value().trim_end_matches('\n')))
        .collect()
}

#[test]
fn one_value_changes_one_line() {
    for (line, wanted) in [
        (
            "spec.replicas = 5",
            vec!["-  replicas: 3 # three", "+  replicas: 5 # three"],
        ),
        (
            "spec.template.spec.containers[name=app].image = registry/app:1.1",
            vec![
                "-          image: \"registry/app:1.0\" # pinned",
                "+          image: \"registry/app:1.1\" # pinned",
            ],
        ),
        (
            "metadata.annotations.\"example.com/owner\" = it's b",
            vec![
                "-    \"example.com/owner\": 'team-a'",
                "+    \"example.com/owner\": 'it''s b'",
            ],
        ),
        (
            "metadata.labels.tier = back",
            vec![
                "-  labels: {app: app, \"tier\": web}",
                "+  labels: {app: app, \"tier\": back}",
            ],
        ),
        (
            "metadata.labels.new = \"1\"",
            vec![
                "-  labels: {app: app, \"tier\": web}",
                "+  labels: {app: app, \"tier\": web, new: \"1\"}",
            ],
        ),
        (
            "spec.template.spec.containers[1].resources.limits.memory = 1Gi",
            vec![
                "-            limits: {cpu: 100m}",
                "+            limits: {cpu: 100m, memory: \"1Gi\"}",
            ],
        ),
        (
            "spec.template.spec.nodeSelector.disk = ssd",
            vec!["+        disk: ssd"],
        ),
        (
            "spec.template.spec.containers[0].env[+] = {name: B, value: \"2\"}",
            vec!["+          - name: B", "+            value: \"2\""],
        ),
        (
            "spec.template.spec.containers[name=app].securityContext.capabilities.drop = [ALL]",
            vec![
                "+          securityContext:",
                "+            capabilities:",
                "+              drop:",
                "+                - ALL",
            ],
        ),
        (
            "[kind=ConfigMap] data.script = \"#!/bin/sh\\necho one\\n\\necho three\\n\"",
            vec!["-    echo two", "+    echo three"],
        ),
        (
            "[kind=ConfigMap] data.folded = x",
            vec!["-  folded: >-", "-    some", "-    text", "+  folded: x"],
        ),
        ("[document=2] data.more = 'y'", vec!["+  more: \"y\""]),
    ] {
        let new = set(DEPLOYMENT, line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(changed(DEPLOYMENT, &new), wanted, "{line}\n{new}");
        let windows = set(
            &DEPLOYMENT.replace('\n', "\r\n"),
            &line.replace("kind=Deployment", "document=1"),
        );
        if let Ok(windows) = windows {
            assert_eq!(windows, new.replace('\n', "\r\n"), "{line}");
        }
    }
}

#[test]
fn operations_touch_their_lines_and_leave_the_rest() {
    for (operation, wanted) in [
        (
            r#"{"op":"remove","path":"/spec/template/spec/containers/1"}"#,
            vec![
                "-        # second",
                "-        - name: side",
                "-          image: side:1",
                "-",
                "-          resources:",
                "-            limits: {cpu: 100m}",
            ],
        ),
        (
            r#"{"op":"remove","path":"/metadata/annotations/example.com~1owner"}"#,
            vec![
                "-  annotations:",
                "-    # quoted, as it has dots",
                "-    \"example.com/owner\": 'team-a'",
                "+  annotations: {}",
            ],
        ),
        (
            r#"{"op":"remove","path":"/spec/replicas"}"#,
            vec!["-  replicas: 3 # three"],
        ),
        (
            r#"{"op":"remove","path":"/spec/template/spec/containers/1/name"}"#,
            vec![
                "-        - name: side",
                "-          image: side:1",
                "+        - image: side:1",
            ],
        ),
        (
            r#"{"op":"add","path":"/spec/template/spec/containers/0","value":{"name":"init","image":"i"}}"#,
            vec!["+        - name: init", "+          image: i"],
        ),
        (
            r#"{"op":"add","path":"/spec/template/spec/containers/1","value":{"name":"mid"}}"#,
            vec!["+        - name: mid"],
        ),
        (
            r#"{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"last","ports":[{"containerPort":1}]}}"#,
            vec![
                "+        - name: last",
                "+          ports:",
                "+            - containerPort: 1",
            ],
        ),
        (
            r#"{"op":"add","path":"/spec/template/spec/containers/0/args/1","value":"--x"}"#,
            vec![
                "-          args: [--a, --b]",
                "+          args: [--a, \"--x\", --b]",
            ],
        ),
        (
            r#"{"op":"remove","path":"/spec/template/spec/containers/0/args/0"}"#,
            vec!["-          args: [--a, --b]", "+          args: [--b]"],
        ),
        (
            r#"{"op":"remove","path":"/spec/template/spec/containers/0/args/1"}"#,
            vec!["-          args: [--a, --b]", "+          args: [--a]"],
        ),
        (
            r#"{"op":"replace","path":"/spec/replicas","value":{"min":1,"max":2}}"#,
            vec![
                "-  replicas: 3 # three",
                "+  replicas: # three",
                "+    min: 1",
                "+    max: 2",
            ],
        ),
        (
            r#"{"op":"replace","path":"/spec/template/spec/containers/0/env","value":null}"#,
            vec![
                "-          env:",
                "-          - name: A",
                "-            value: \"1\"",
                "+          env: null",
            ],
        ),
        (
            r#"{"op":"move","from":"/spec/replicas","path":"/spec/size"}"#,
            vec!["-  replicas: 3 # three", "+  size: 3"],
        ),
    ] {
        let new = json6902("x.yaml", DEPLOYMENT, &format!("[{operation}]"))
            .unwrap_or_else(|error| panic!("{operation}: {error}"));
        assert_eq!(changed(DEPLOYMENT, &new), wanted, "{operation}\n{new}");
    }
}

#[test]
fn what_is_so_already_leaves_every_byte() {
    let file = "\u{feff}a:   'x'\r\nb: 0x10";
    for lines in ["a = x", "b = 16", "a = \"x\"\nb = 16"] {
        assert_eq!(set(file, lines).unwrap(), file);
    }
    let new = set(file, "c.d = 1").unwrap();
    assert_eq!(new, "\u{feff}a:   'x'\r\nb: 0x10\r\nc:\r\n  d: 1");
    assert_eq!(set("a: 1\nb: 2", "b = 3").unwrap(), "a: 1\nb: 3");
    assert_eq!(
        json6902("x.yaml", "a: 1\nb: 2", r#"[{"op":"remove","path":"/b"}]"#).unwrap(),
        "a: 1"
    );
    assert_eq!(
        json6902(
            "x.yaml",
            "# c\na: 1\nb: 2\n",
            r#"[{"op":"remove","path":"/a"}]"#
        )
        .unwrap(),
        "# c\nb: 2\n"
    );
}

#[test]
fn json_keeps_its_layout() {
    let file = "{\n\t\"a\": 1,\n\t\"b\": [\n\t\t{\"x\": 1},\n\t\t2\n\t],\n\t\"c\": {}\n}\n";
    for (operation, wanted) in [
        (
            r#"{"op":"replace","path":"/a","value":"\u00e4\"\n"}"#,
            file.replace("\"a\": 1", "\"a\": \"ä\\\"\\n\""),
        ),
        (
            r#"{"op":"add","path":"/b/-","value":{"y":[]}}"#,
            file.replace("\t\t2\n", "\t\t2,\n\t\t{\n\t\t\t\"y\": []\n\t\t}\n"),
        ),
        (
            r#"{"op":"add","path":"/b/0","value":3}"#,
            file.replace("\t\t{\"x\"", "\t\t3,\n\t\t{\"x\""),
        ),
        (
            r#"{"op":"add","path":"/c/z","value":true}"#,
            file.replace("{}", "{\n\t\t\"z\": true\n\t}"),
        ),
        (
            r#"{"op":"remove","path":"/c"}"#,
            file.replace(",\n\t\"c\": {}", ""),
        ),
        (
            r#"{"op":"remove","path":"/a"}"#,
            file.replace("\"a\": 1,\n\t", ""),
        ),
        (
            r#"{"op":"add","path":"/b/0/y","value":[1,{}]}"#,
            file.replace("\"x\": 1", "\"x\": 1, \"y\": [1, {}]"),
        ),
        (r#"{"op":"replace","path":"/a","value":1}"#, file.to_owned()),
    ] {
        assert_eq!(
            json6902("x.JSON", file, &format!("[{operation}]")).unwrap(),
            wanted,
            "{operation}"
        );
    }
}

#[test]
fn what_cannot_be_edited_is_refused_with_its_place() {
    for (file, line, at) in [
        ("a: &x {b: 1}\nc: *x\n", "c.b = 2", "/c"),
        ("a: &x {b: 1}\nc: *x\n", "a.b = 2", "/a"),
        ("a: &x 1\nc: *x\n", "a = 2", "/a"),
        ("a: !!str 1\n", "a = 2", "/a"),
        ("? a\n: 1\n", "a = 2", "/a"),
        ("a: 1\n", "a.b = 2", "/a"),
        ("a: [", "a = 2", ""),
        ("", "a = 2", ""),
        ("a: 1\n---\na: 2\n", "a = 2", ""),
    ] {
        let error = apply(
            "x.yaml",
            &patch(PatchType::YamlSet, line, None),
            file.as_bytes(),
        )
        .unwrap_err();
        assert_eq!(error.at, at, "{file:?}: {error}");
        assert!(
            error.to_string().contains("; create a new EventResponse"),
            "{error}"
        );
    }
    let remove = patch(PatchType::Merge, "a: null", None);
    assert_eq!(
        apply("x.yaml", &remove, b"a: &x 1\nc: *x\n")
            .unwrap_err()
            .at,
        "/a"
    );
    let set = patch(PatchType::YamlSet, "a = 1", None);
    assert!(apply("x.yaml", &set, b"a: \xff").is_err());
    assert!(apply("x.yaml", &set, &vec![b'#'; MAX_FILE_BYTES + 1]).is_err());
    assert!(apply("x.toml", &set, b"a: 0").is_err());
    assert!(apply("x.json", &set, b"a: 0").is_err());
}

#[test]
fn an_anchor_elsewhere_is_no_obstacle() {
    let file = "base: &base\n  a: 1\nuse:\n  <<: *base\n  b: 2 # two\nlast: *base\n";
    assert_eq!(
        set(file, "use.b = 3").unwrap(),
        file.replace("b: 2", "b: 3")
    );
    assert_eq!(
        set(file, "use.c = 3").unwrap(),
        file.replace("# two\n", "# two\n  c: 3\n")
    );
}

#[test]
fn copies_cannot_grow_without_end() {
    let double = r#"{"op":"copy","from":"/a","path":"/a/-"},"#.repeat(100);
    let operations = format!("[{}]", double.trim_end_matches(','));
    let error = json6902("x.json", r#"{"a":["xxxxxxxxxxxxxxxx"]}"#, &operations).unwrap_err();
    assert!(error.what.contains("too large"), "{error}");
}

#[test]
fn several_documents_are_changed_at_once() {
    let lines = "[document=1] spec.replicas = 1\n[document=2] data.folded = x\n";
    let new = set(DEPLOYMENT, lines).unwrap();
    assert_eq!(changed(DEPLOYMENT, &new).len(), 6, "{new}");
}

#[test]
fn an_item_that_becomes_like_its_neighbour_is_changed_in_its_place() {
    let file = "a:\n- - x # one\n  - w # two\n  - z\n";
    let new = json6902(
        "x.yaml",
        file,
        r#"[{"op":"replace","path":"/a/0/0","value":"w"}]"#,
    );
    assert_eq!(new.unwrap(), file.replace("x # one", "w # one"));
}
