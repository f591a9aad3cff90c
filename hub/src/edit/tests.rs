//! Edits of whole files: exact texts, and properties over files and patches that are made up.

use proptest::prelude::*;

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

fn json6902(path: &str, file: &str, text: &str) -> Result<String, EditError> {
    let target = file.contains("\n---\n").then_some("kind=Deployment");
    apply(
        path,
        &patch(PatchType::Json6902, text, target),
        file.as_bytes(),
    )
}

/// The lines that went and came, with `-` and `+`.
fn changed(old: &str, new: &str) -> Vec<String> {
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
    fn comment(&mut self) -> String {
        self.line += 1;
        if self.comments && self.line % 3 != 0 {
            format!(" # c{}", self.line)
        } else {
            String::new()
        }
    }

    fn above(&mut self, indent: usize) {
        self.line += 1;
        if self.comments && self.line % 4 == 0 {
            self.out += &format!("{}# above {}\n", " ".repeat(indent), self.line);
        } else if self.line % 7 == 0 {
            self.out += "\n";
        }
    }

    fn children(&mut self, made: &Made, indent: usize, mut inline: bool) {
        let (Made::Map(children) | Made::List(children)) = made else {
            return;
        };
        for (at, child) in children.iter().enumerate() {
            if !std::mem::take(&mut inline) {
                self.above(indent);
                self.out += &" ".repeat(indent);
            }
            let is_list = matches!(made, Made::List(_));
            self.out += &if is_list {
                "-".to_owned()
            } else {
                format!("k{at}:")
            };
            match child {
                Made::Leaf(text) if text.ends_with("BLOCK") => {
                    let header = text.trim_end_matches("BLOCK");
                    let pad = " ".repeat(indent + 2);
                    let comment = self.comment();
                    self.out += &format!(
                        " {header}{comment}\n{pad}line {}\n\n{pad}  # no comment\n{pad}end\n",
                        self.line
                    );
                }
                Made::Leaf(text) => {
                    let space = if text.is_empty() { "" } else { " " };
                    let comment = self.comment();
                    self.out += &format!("{space}{text}{comment}\n");
                }
                inner if is_list && self.line % 2 == 0 => {
                    self.out += " ";
                    self.children(inner, indent + 2, true);
                }
                inner => {
                    let comment = self.comment();
                    self.out += &format!("{comment}\n");
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

fn is_subsequence(few: &str, many: &str) -> bool {
    let mut many = many.lines();
    few.lines().all(|line| many.any(|other| other == line))
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
    #![proptest_config(ProptestConfig::with_cases(600))]

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
        // Lines that are not of the place stay: at most those of the place go.
        let gone = changed(&file, &new).iter().filter(|line| line.starts_with('-')).count();
        if is_leaf && how == 0 && !file.contains("line ") {
            prop_assert!(gone <= 1, "{}\n{}\n{}", operation, file, new);
        }
        if how == 2 && !is_leaf && !file.contains('{') && !file.contains('[') {
            prop_assert!(is_subsequence(&file, &new), "{}\n{}\n{}", operation, file, new);
        }
        prop_assert_eq!(json6902("x.yaml", &file, r#"[{"op":"test","path":"/k9","value":1}]"#).is_err(), true);
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
