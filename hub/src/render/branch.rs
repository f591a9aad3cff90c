//! Names of branches: valid to Git, apart for each response, out of reach of other clusters, and never the base branch.

use nabu_common::ids::ResponseKey;

use super::text;
use crate::response::{ErrorType, ResponseError};

const MAX_BYTES: usize = 240;

/// Branches that are somebody's main line whatever the route says.
const MAIN_LINES: [&str; 3] = ["main", "master", "HEAD"];

/// What decides the branch of a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) key: &'a ResponseKey,
    pub(super) prefix: &'a str,
    pub(super) base: Option<&'a str>,
    /// `spec.action.parameters.branch`.
    pub(super) requested: Option<&'a str>,
    /// What the route's template came to.
    pub(super) rendered: Option<&'a str>,
    /// Whether the route's operator leaves names to objects and to the template.
    pub(super) override_allowed: bool,
}

/// The branch of a response: as requested, else by the template, else `<prefix><cluster>/<uid>`.
///
/// Everything of a cluster stays under `<prefix><cluster>/`, which no other cluster can name, so that no cluster can
/// take or block another's branch. Only a route that allows an override is free of that.
pub(super) fn decide(wanted: Wanted<'_>) -> Result<String, ResponseError> {
    let branch = match (
        wanted.requested,
        wanted.rendered.map(tidy).filter(|text| !text.is_empty()),
    ) {
        (Some(requested), _) => as_requested(wanted, requested)?,
        (None, Some(rendered)) => as_rendered(wanted, &rendered),
        (None, None) => format!("{}{}/{}", wanted.prefix, wanted.key.cluster, wanted.key.uid),
    };
    check(&branch).map_err(|why| refusal(&branch, &why))?;
    let base = wanted.base.unwrap_or_default();
    if branch.eq_ignore_ascii_case(base)
        || MAIN_LINES
            .iter()
            .any(|main| branch.eq_ignore_ascii_case(main))
    {
        return Err(refusal(
            &branch,
            "it is the branch that the change is against; name another",
        ));
    }
    Ok(branch)
}

pub(super) fn refusal(branch: &str, why: &str) -> ResponseError {
    let shown = text::clip(branch, MAX_BYTES);
    let detail = format!("the branch {shown:?} is not allowed: {why}");
    ResponseError::new(ErrorType::Permanent, "BranchNotAllowed", detail)
}

fn as_requested(wanted: Wanted<'_>, requested: &str) -> Result<String, ResponseError> {
    let own = format!("{}{}/", wanted.prefix, wanted.key.cluster);
    if requested.starts_with(&own)
        || (wanted.override_allowed && !looks_like_anothers(wanted, requested))
    {
        return Ok(requested.to_owned());
    }
    let why = format!(
        "it does not begin with {own:?}; leave spec.action.parameters.branch out, begin it so, or set \
         allowBranchOverride on the route"
    );
    Err(refusal(requested, &why))
}

/// `<prefix><another cluster>/<a UUID>`: the default name of another cluster's branch.
fn looks_like_anothers(wanted: Wanted<'_>, requested: &str) -> bool {
    let Some((cluster, uid)) = requested
        .strip_prefix(wanted.prefix)
        .and_then(|rest| rest.split_once('/'))
    else {
        return false;
    };
    let groups: Vec<usize> = uid.split('-').map(str::len).collect();
    cluster != wanted.key.cluster.as_str() && groups == [8, 4, 4, 4, 12]
}

fn as_rendered(wanted: Wanted<'_>, rendered: &str) -> String {
    if wanted.override_allowed {
        return format!("{}{rendered}", wanted.prefix);
    }
    let (cluster, uid) = (wanted.key.cluster.as_str(), wanted.key.uid.as_str());
    let own = rendered
        .strip_prefix(cluster)
        .and_then(|rest| rest.strip_prefix('/'))
        .unwrap_or(rendered);
    let (stem, joint) = match own.strip_suffix(uid) {
        Some(stem) if stem.ends_with('-') => (stem, '-'),
        Some(stem) => (stem, '/'),
        None => (own, '/'),
    };
    // What is cut is the middle: cluster and UID are what makes the name this response's own.
    let room = MAX_BYTES.saturating_sub(wanted.prefix.len() + cluster.len() + uid.len() + 2);
    let stem = tidy(text::prefix(stem, room));
    if stem.is_empty() {
        return format!("{}{cluster}/{uid}", wanted.prefix);
    }
    format!("{}{cluster}/{stem}{joint}{uid}", wanted.prefix)
}

/// A value inside a name: whatever is no letter, digit, `.`, `_`, `-` or `/` becomes a `-`.
pub(super) fn sanitise(value: &str) -> String {
    let keep = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/') {
            c
        } else {
            '-'
        }
    };
    value.trim().chars().map(keep).collect()
}

/// What a template came to, made a valid end of a name.
fn tidy(rendered: &str) -> String {
    let whole = sanitise(rendered);
    let segments = whole.split('/').map(|segment| {
        let mut segment = segment.trim_matches(['.', '-']);
        while let Some(shorter) = segment.strip_suffix(".lock") {
            segment = shorter.trim_end_matches(['.', '-']);
        }
        let mut tidied = segment.to_owned();
        while tidied.contains("..") {
            tidied = tidied.replace("..", ".");
        }
        tidied
    });
    segments
        .filter(|segment| !segment.is_empty())
        .collect::<Vec<_>>()
        .join("/")
}

/// Whether a branch may have this name: the rules of git-check-ref-format, and what forges add to them.
pub fn check(name: &str) -> Result<(), String> {
    let wrong = |why: &str| Err(why.to_owned());
    if name.is_empty() {
        return wrong("it is empty; name a branch");
    }
    if name.len() > MAX_BYTES {
        return Err(format!("it is longer than {MAX_BYTES} bytes; shorten it"));
    }
    if name.starts_with('-') {
        return wrong("it begins with '-'; Git would take it for an option");
    }
    if name == "@" || name == "HEAD" || name.starts_with("refs/") {
        return wrong("it is a name of Git's own; choose another");
    }
    if name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return wrong("it looks like a commit; choose another");
    }
    if name.contains("..") || name.contains("@{") || name.ends_with('.') {
        return wrong("it has '..' or '@{', or ends with '.'; Git does not take those");
    }
    let bad = |c: char| text::is_hidden(c) || c.is_whitespace() || "~^:?*[\\".contains(c);
    if let Some(c) = name.chars().find(|c| bad(*c)) {
        return Err(format!(
            "it has the character {c:?}, which Git does not take"
        ));
    }
    for segment in name.split('/') {
        if segment.is_empty() {
            return wrong("it begins or ends with '/', or has '//'; Git does not take that");
        }
        if segment.starts_with('.') || segment.to_ascii_lowercase().ends_with(".lock") {
            return wrong(
                "a part of it begins with '.' or ends with '.lock'; Git does not take that",
            );
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "branch_tests.rs"]
mod tests;
