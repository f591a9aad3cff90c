//! Single fields that both forms of a configuration have.

use super::Problem;
use crate::change::ProviderKind;
use crate::render;

pub(super) fn repository(path: &str, text: &str, kind: ProviderKind, problems: &mut Vec<Problem>) {
    let segments: Vec<&str> = text.split('/').collect();
    let good = |segment: &&str| {
        !segment.is_empty()
            && !matches!(*segment, "." | "..")
            && segment
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let count = if kind == ProviderKind::GitlabToken {
        segments.len() >= 2
    } else {
        segments.len() == 2
    };
    if !count || !segments.iter().all(good) {
        let form = if kind == ProviderKind::GitlabToken {
            "group/name or group/sub-group/name"
        } else {
            "owner/name"
        };
        problems.push(Problem::new(
            path,
            format!("{text:?} is no repository; write {form}"),
        ));
    }
}

/// The URL without its trailing slash, checked: a credential goes there.
pub(super) fn base_url(
    path: &str,
    text: Option<&str>,
    kind: ProviderKind,
    problems: &mut Vec<Problem>,
) -> Option<String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        if kind == ProviderKind::ForgejoToken {
            problems.push(Problem::new(
                path,
                "is missing; name the Forgejo or Gitea server, for example https://git.example.org",
            ));
        }
        return None;
    };
    let parsed = url::Url::parse(text).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    });
    if parsed.is_none() {
        let message = "is no base URL; write https://host, perhaps with a path, without user, query or fragment";
        problems.push(Problem::new(path, message));
    }
    Some(text.trim_end_matches('/').to_owned())
}

pub(super) fn branch(path: &str, name: &str, problems: &mut Vec<Problem>) {
    if let Err(reason) = render::branch::check(name) {
        problems.push(Problem::new(path, reason));
    }
}

pub(super) fn one_line_names(path: &str, names: &[String], problems: &mut Vec<Problem>) {
    for (index, name) in names.iter().enumerate() {
        if name.trim().is_empty() || name.chars().any(char::is_control) || name.len() > 255 {
            problems.push(Problem::new(
                format!("{path}[{index}]"),
                "is empty, too long, or holds a line break",
            ));
        }
    }
}
