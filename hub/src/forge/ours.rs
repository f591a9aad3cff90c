//! What holds on every forge alike: what proves that a pull request or a commit is of a response (the hidden marker, the
//! trailers), and what is never written to.

use nabu_common::ids::{ClusterId, ResponseKey};

use super::http::failed;
use super::{Closing, ForgeError, Job};
use crate::response::ErrorType;

/// Whether the hidden line of a body is that of this response; its digest may be of an older text of the change.
pub(super) fn has_marker(body: &str, key: &ResponseKey) -> bool {
    let start = format!("<!-- nabu: cluster={} uid={} digest=", key.cluster, key.uid);
    body.lines().any(|line| line.trim().starts_with(&start))
}

/// The UIDs of the responses that the hidden lines of a body name.
pub(super) fn members_named(body: &str) -> impl Iterator<Item = &str> {
    body.lines().filter_map(|line| {
        let marker = line.trim().strip_prefix("<!-- nabu: cluster=")?;
        let (_, rest) = marker.split_once(" uid=")?;
        Some(rest.split_once(' ')?.0)
    })
}

/// The hidden line of the comment that says why a pull request is closed.
pub(super) fn closing_marker(key: &ResponseKey) -> String {
    format!(
        "<!-- nabu: closed cluster={} uid={} -->",
        key.cluster, key.uid
    )
}

/// What is said on a pull request that is closed, with its hidden line.
pub(super) fn closing_comment(key: &ResponseKey, closing: &Closing<'_>) -> String {
    format!("{}\n\n{}", closing.comment, closing_marker(key))
}

/// Whether the commit at the tip of a branch is the one that was made for this response, as far as that is known.
pub(super) fn is_our_tip(tip: &str, message: &str, job: &Job<'_>, closing: &Closing<'_>) -> bool {
    let ours = if job.intent.is_shared() {
        member(message, &job.key.cluster).is_some()
    } else {
        has_trailers(message, job.key)
    };
    ours && closing.commit.is_none_or(|commit| commit == tip)
}

/// Whether the last paragraph of a commit message names this response.
pub(super) fn has_trailers(message: &str, key: &ResponseKey) -> bool {
    trailers_name(message, &key.cluster, |uid| uid == key.uid.as_str()).is_some()
}

/// The UID of the response of this cluster that the last paragraph of a commit message names.
pub(super) fn member(message: &str, cluster: &ClusterId) -> Option<String> {
    trailers_name(message, cluster, |uid| !uid.is_empty())
}

fn trailers_name(
    message: &str,
    cluster: &ClusterId,
    is_wanted: impl Fn(&str) -> bool,
) -> Option<String> {
    let message = message.replace("\r\n", "\n");
    let trailers = message.trim_end().rsplit("\n\n").next().unwrap_or_default();
    let lines = trailers.lines().map(str::trim_end);
    let of_cluster = format!("Nabu-Cluster: {cluster}");
    if !lines.clone().any(|line| line == of_cluster) {
        return None;
    }
    let mut uids = lines.filter_map(|line| line.strip_prefix("Nabu-Response: "));
    uids.find(|uid| is_wanted(uid)).map(str::to_owned)
}

/// Whether the branch of a change is one that nobody else has a reason to make: its name holds the UID of the response, or
/// is that of its group. A route may let EventResponses name other branches; one of those that exists already is never taken for an empty one of
/// ours.
pub(super) fn is_our_name(job: &Job<'_>) -> bool {
    job.intent.is_shared() || job.intent.branch.contains(job.key.uid.as_str())
}

/// A change goes to a branch of its own, never to the base branch, which is known only now if the route names none.
pub(super) fn refuse_base_branch(job: &Job<'_>, base: &str, place: &str) -> Result<(), ForgeError> {
    if job.intent.branch != base {
        return Ok(());
    }
    let detail = format!(
        "{base} is the base branch of {place}; create a new EventResponse with another branch, or without one"
    );
    Err(failed(ErrorType::Permanent, "BranchNotAllowed", detail))
}

/// A path holds something that no file may take the place of. A symbolic link is refused as well: whoever may write what it
/// says could let it point out of the paths that the route allows.
pub(super) fn not_a_file(path: &str, what: &str, place: &str) -> ForgeError {
    let detail = format!(
        "{path} of {place} is {what}, no file; create a new EventResponse that names a file"
    );
    failed(ErrorType::Permanent, "NotAFile", detail)
}

/// What a symbolic link is called.
pub(super) const LINK: &str = "a symbolic link";

#[cfg(test)]
mod tests {
    use super::super::GroupClosing;
    use super::*;

    fn key(cluster: &str, uid: &str) -> ResponseKey {
        ResponseKey {
            cluster: cluster.parse().unwrap(),
            uid: uid.parse().unwrap(),
        }
    }

    #[test]
    fn trailers_count_only_at_the_end_and_only_whole() {
        let ours = "Fix it\n\nBecause.\n\nNabu-Cluster: prod-eu\nNabu-Response: u-1\nNabu-Security-Event: a/b\n";
        assert!(has_trailers(ours, &key("prod-eu", "u-1")));
        assert!(has_trailers(
            &ours.replace('\n', "\r\n"),
            &key("prod-eu", "u-1")
        ));
        assert!(!has_trailers(ours, &key("prod-eu", "u-2")));
        assert!(!has_trailers(ours, &key("prod-eu", "u")));
        assert!(!has_trailers(ours, &key("prod", "u-1")));
        assert!(!has_trailers(
            &format!("{ours}\nAnother paragraph"),
            &key("prod-eu", "u-1")
        ));
        assert!(!has_trailers("", &key("prod-eu", "u-1")));
        let member_in = |cluster: &str| member(ours, &cluster.parse().unwrap());
        assert_eq!(member_in("prod-eu").as_deref(), Some("u-1"));
        assert_eq!(member_in("prod"), None);
    }

    #[test]
    fn everybody_whom_a_body_names_is_found() {
        let body = "a\n<!-- nabu: cluster=c uid=u-1 digest=x -->\n\nb\n<!-- nabu: cluster=c uid=u-2 digest=y -->\n";
        let named: Vec<_> = members_named(body).collect();
        assert_eq!(named, ["u-1", "u-2"]);
        assert_eq!(
            members_named("<!-- nabu: closed cluster=c uid=u-3 -->").count(),
            0
        );
    }

    #[test]
    fn a_group_with_somebody_in_it_whom_nobody_has_called_unwanted_is_only_commented_on() {
        let body =
            "<!-- nabu: cluster=c uid=u-1 digest=x -->\n<!-- nabu: cluster=c uid=u-2 digest=y -->";
        let seen = |unwanted: &[&str]| {
            let unwanted: Vec<_> = unwanted.iter().map(ToString::to_string).collect();
            let closing = Closing {
                number: Some(1),
                commit: None,
                comment: "closed",
                again: false,
                remove_branch: true,
                group: Some(GroupClosing {
                    unwanted: &unwanted,
                    comment: "others stay",
                }),
                stays_open: false,
            };
            let seen = closing.seeing(body);
            (seen.stays_open, seen.comment.to_owned())
        };
        assert_eq!(seen(&["u-1", "u-2"]), (false, "closed".to_owned()));
        assert_eq!(seen(&["u-1"]), (true, "others stay".to_owned()));
    }

    #[test]
    fn a_marker_is_known_whatever_its_digest() {
        let body = "text\n<!-- nabu: cluster=prod-eu uid=u-1 digest=old -->\n";
        assert!(has_marker(body, &key("prod-eu", "u-1")));
        assert!(!has_marker(body, &key("prod-eu", "u-12")));
        assert!(!has_marker("", &key("prod-eu", "u-1")));
    }
}
