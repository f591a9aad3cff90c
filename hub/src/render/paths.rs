//! Which paths of a repository a change may touch: inside the repository, inside what the route allows, and away from
//! the files that decide what runs and who approves.

use regex::Regex;

use super::text;
use crate::response::{ErrorType, ResponseError};

const MAX_PATH_BYTES: usize = 1024;
const MAX_SEGMENT_BYTES: usize = 255;

/// Folders and files, in lower case, that run pipelines, name approvers or change what Git does. A trailing `*` stands
/// for any ending. They are looked for in every folder: forges and their includes read some of them anywhere.
const PROTECTED: [&str; 28] = [
    ".github",
    ".gitlab",
    ".gitea",
    ".forgejo",
    ".circleci",
    ".buildkite",
    ".tekton",
    ".gitlab-ci.yml",
    ".gitlab-ci.yaml",
    ".woodpecker*",
    ".drone.yml",
    ".drone.yaml",
    ".drone.star",
    ".drone.jsonnet",
    ".travis.yml",
    "azure-pipelines.yml",
    "azure-pipelines.yaml",
    "bitbucket-pipelines.yml",
    "jenkinsfile",
    "codeowners",
    ".gitmodules",
    ".gitattributes",
    ".gitconfig",
    ".lfsconfig",
    ".pre-commit-config.yaml",
    ".mergify.yml",
    ".appveyor.yml",
    "appveyor.yml",
];

/// The paths that a route allows, compiled.
#[derive(Clone, Debug)]
pub struct PathRules {
    /// Empty allows every path that is not protected.
    allowed: Vec<Regex>,
    /// Protected paths that the route allows all the same.
    allow_protected: Vec<Regex>,
}

impl PathRules {
    /// Compiles globs: `*` and `?` stay within a segment, `**` crosses segments, a trailing `/` means everything below.
    pub fn new(allowed: &[String], allow_protected: &[String]) -> Result<Self, String> {
        let compile = |globs: &[String]| {
            globs
                .iter()
                .map(|glob| compile(glob))
                .collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            allowed: compile(allowed)?,
            allow_protected: compile(allow_protected)?,
        })
    }

    /// The normalised path, if a change may touch it.
    pub fn check(&self, path: &str) -> Result<String, ResponseError> {
        let normal = normalise(path).map_err(|why| refusal(path, &why))?;
        if let Some(segment) = normal.split('/').find(|segment| is_protected(segment))
            && !matches_any(&self.allow_protected, &normal)
        {
            return Err(refusal(
                path,
                &format!(
                    "{segment:?} is protected; add the path to allowProtectedPaths of the route, or choose another"
                ),
            ));
        }
        if self.allowed.is_empty() || matches_any(&self.allowed, &normal) {
            return Ok(normal);
        }
        Err(refusal(
            path,
            "it is outside of the route's allowedPaths; add it there, or choose another path",
        ))
    }
}

fn refusal(path: &str, why: &str) -> ResponseError {
    let shown = text::clip(path, 200);
    ResponseError::new(
        ErrorType::Permanent,
        "PathNotAllowed",
        format!("the path {shown:?} is not allowed: {why}"),
    )
}

fn matches_any(globs: &[Regex], path: &str) -> bool {
    globs.iter().any(|glob| glob.is_match(path))
}

fn compile(glob: &str) -> Result<Regex, String> {
    let wrong = |why: &str| Err(format!("the glob {glob:?} is not valid: {why}"));
    let relative = glob.strip_prefix("./").unwrap_or(glob);
    if relative.is_empty() {
        return wrong("it is empty; use ** for every path");
    }
    if relative.starts_with('/') {
        return wrong("paths are relative to the repository; drop the leading /");
    }
    if relative.contains(['\\', '[', ']', '{', '}', '!']) || relative.chars().any(text::is_hidden) {
        return wrong(
            "only *, ** and ? stand for something else; write one glob for each alternative",
        );
    }
    if relative
        .split('/')
        .any(|segment| matches!(segment, "." | ".."))
        || relative.contains("//")
    {
        return wrong("write it without . and .. and empty segments");
    }
    let below = if relative.ends_with('/') { "**" } else { "" };
    Regex::new(&pattern(&format!("{relative}{below}")))
        .map_err(|error| format!("the glob {glob:?}: {error}"))
}

fn pattern(glob: &str) -> String {
    let mut pattern = String::from(r"\A");
    let mut rest = glob;
    while let Some(c) = rest.chars().next() {
        let at_segment_start =
            rest.len() == glob.len() || glob[..glob.len() - rest.len()].ends_with('/');
        if at_segment_start && rest.starts_with("**/") {
            pattern.push_str("(?:[^/]+/)*");
            rest = &rest[3..];
        } else if rest.starts_with("**") {
            pattern.push_str("(?s:.*)");
            rest = rest.trim_start_matches('*');
        } else {
            match c {
                '*' => pattern.push_str("[^/]*"),
                '?' => pattern.push_str("[^/]"),
                c => pattern.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
            }
            rest = &rest[c.len_utf8()..];
        }
    }
    pattern.push_str(r"\z");
    pattern
}

/// One spelling for each path: without `./`, double and trailing-slash-free; or why it is none.
fn normalise(path: &str) -> Result<String, String> {
    if path.is_empty() {
        return Err("it is empty; name a file".to_owned());
    }
    if path.len() > MAX_PATH_BYTES {
        return Err(format!(
            "it is longer than {MAX_PATH_BYTES} bytes; shorten it"
        ));
    }
    if path
        .chars()
        .any(|c| text::is_hidden(c) || text::is_line_break(c))
    {
        return Err("it has control or invisible characters; remove them".to_owned());
    }
    if path.contains('\\') {
        return Err("it has a backslash; separate folders with /".to_owned());
    }
    if path.starts_with('/') {
        return Err("it is absolute; make it relative to the repository".to_owned());
    }
    if path.ends_with('/') {
        return Err("it names a folder; name a file".to_owned());
    }
    let mut relative = path;
    while let Some(rest) = relative.strip_prefix("./") {
        relative = rest.trim_start_matches('/');
    }
    let bytes = relative.as_bytes();
    if bytes.len() > 1 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':' {
        return Err("it begins with a drive letter; make it relative to the repository".to_owned());
    }
    let segments: Vec<&str> = relative
        .split('/')
        .filter(|segment| !segment.is_empty())
        .collect();
    if segments.is_empty() {
        return Err("it names no file; name one".to_owned());
    }
    for segment in &segments {
        check_segment(segment)?;
    }
    Ok(segments.join("/"))
}

fn check_segment(segment: &str) -> Result<(), String> {
    if segment == "." || segment == ".." {
        return Err(format!(
            "it has a {segment:?} segment; write the path without"
        ));
    }
    if segment.len() > MAX_SEGMENT_BYTES {
        return Err(format!(
            "a segment is longer than {MAX_SEGMENT_BYTES} bytes; shorten it"
        ));
    }
    if is_git_folder(segment) {
        return Err(format!(
            "{segment:?} is, or is on some file systems, Git's own folder; choose another path"
        ));
    }
    if segment.ends_with(['.', ' ']) {
        return Err(format!(
            "the segment {segment:?} ends with a dot or a space; Windows drops those; choose another"
        ));
    }
    Ok(())
}

/// The segment as Windows sees it: without a stream name and without trailing dots and spaces, in lower case.
fn as_windows_sees_it(segment: &str) -> String {
    let file = segment.split(':').next().unwrap_or_default();
    file.trim_end_matches(['.', ' ']).to_lowercase()
}

/// `.git` as any file system may read it; `git~1` and `gi7eba~1` are its short names on Windows, and `gitmod~1` and the
/// like those of its relatives.
fn is_git_folder(segment: &str) -> bool {
    let seen = as_windows_sees_it(segment);
    let short_name = seen.split_once('~').is_some_and(|(stem, number)| {
        stem.starts_with("gi") && number.starts_with(|c: char| c.is_ascii_digit())
    });
    seen == ".git" || short_name
}

fn is_protected(segment: &str) -> bool {
    let seen = as_windows_sees_it(segment);
    PROTECTED
        .iter()
        .any(|protected| match protected.strip_suffix('*') {
            Some(stem) => seen.starts_with(stem),
            None => seen == *protected,
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(allowed: &[&str], protected: &[&str]) -> PathRules {
        let own = |globs: &[&str]| globs.iter().map(ToString::to_string).collect::<Vec<_>>();
        PathRules::new(&own(allowed), &own(protected)).unwrap()
    }

    #[test]
    fn a_path_has_one_spelling() {
        for path in ["a/b.yaml", "./a/b.yaml", "a//b.yaml", ".//a/b.yaml"] {
            assert_eq!(rules(&[], &[]).check(path).unwrap(), "a/b.yaml");
        }
    }

    #[test]
    fn a_path_that_leaves_the_repository_is_refused() {
        let long = "x/".repeat(600) + "y";
        let segment = "x".repeat(256);
        for path in [
            "",
            ".",
            "..",
            "../x",
            "a/../x",
            "a/..",
            "/etc/passwd",
            "//x",
            "C:/x",
            "c:x",
            "./C:x",
            "a\\b",
            "a\0b",
            "a\nb",
            "a\u{202e}b",
            "a/./b",
            "a/",
            "./",
            ".git/config",
            "a/.GIT/hooks/x",
            ".git./x",
            ".git /x",
            "git~1/x",
            "GI7EBA~1/x",
            ".g\u{200c}it/config",
            ".git::$INDEX_ALLOCATION/x",
            "a/b.",
            "a/b ",
            &long,
            &segment,
        ] {
            let error = rules(&["**"], &["**"]).check(path).unwrap_err();
            assert_eq!(error.reason, "PathNotAllowed", "{path:?}");
            assert_eq!(error.kind, ErrorType::Permanent);
        }
    }

    #[test]
    fn a_protected_path_needs_to_be_allowed_by_name() {
        for path in [
            ".github/workflows/x.yaml",
            ".GitHub/x",
            ".gitlab-ci.yml",
            ".gitlab/agents/x",
            ".gitea/x",
            ".forgejo/x",
            ".woodpecker.yml",
            ".woodpecker/x.yml",
            ".drone.yml",
            ".circleci/config.yml",
            "azure-pipelines.yml",
            "Jenkinsfile",
            "docs/CODEOWNERS",
            "codeowners",
            ".gitmodules",
            "a/b/.gitattributes",
        ] {
            let error = rules(&["**"], &[]).check(path).unwrap_err();
            assert!(
                error.detail.contains("allowProtectedPaths"),
                "{path}: {}",
                error.detail
            );
            assert_eq!(rules(&["**"], &[path]).check(path).unwrap(), path);
        }
        assert!(
            rules(&["clusters/**"], &["**"]).check(".github/x").is_err(),
            "allowedPaths holds all the same"
        );
    }

    #[test]
    fn globs_stay_within_a_segment_unless_doubled() {
        for (glob, path, matches) in [
            ("clusters/*/x.yaml", "clusters/a/x.yaml", true),
            ("clusters/*/x.yaml", "clusters/a/b/x.yaml", false),
            ("clusters/**", "clusters/a/b", true),
            ("clusters/**", "clusters", false),
            ("clusters/", "clusters/a/b", true),
            ("**/x.yaml", "x.yaml", true),
            ("**/x.yaml", "a/b/x.yaml", true),
            ("**/x.yaml", "a/bx.yaml", false),
            ("a.?", "a.b", true),
            ("a.?", "a./b", false),
            ("a+b", "aab", false),
        ] {
            assert_eq!(
                rules(&[glob], &[]).check(path).is_ok(),
                matches,
                "{glob} {path}"
            );
        }
        for glob in ["", "/x", "../x", "a\\b", "{a,b}", "[ab]"] {
            assert!(PathRules::new(&[glob.to_owned()], &[]).is_err(), "{glob}");
        }
    }

    proptest! {
        #[test]
        fn a_normalised_path_never_escapes(
            path in prop_oneof![
                any::<String>(),
                "([a.]{0,3}[/\\\\:~ ]{0,2}(\\.git|\\.\\.|git~1|\\u{200b}|\\u{0}|C:)?){0,6}",
            ],
        ) {
            if let Ok(normal) = rules(&[], &[]).check(&path) {
                prop_assert!(!normal.starts_with('/') && !normal.ends_with('/') && !normal.contains('\\'));
                prop_assert!(!normal.chars().any(char::is_control));
                for segment in normal.split('/') {
                    prop_assert!(!segment.is_empty() && segment != "." && segment != "..");
                    prop_assert!(!segment.eq_ignore_ascii_case(".git"));
                }
                prop_assert_eq!(rules(&[], &[]).check(&normal), Ok(normal.clone()));
            }
        }
    }
}
