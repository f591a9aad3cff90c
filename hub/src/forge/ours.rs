//! What holds on every forge alike: what proves that a pull request or a commit is of a response (the hidden marker, the
//! trailers), and what is never written to.

use nabu_common::ids::ResponseKey;

use super::http::failed;
use super::{ForgeError, Job};
use crate::response::ErrorType;

/// Whether the hidden line of a body is that of this response; its digest may be of an older text of the change.
pub(super) fn has_marker(body: &str, key: &ResponseKey) -> bool {
    let start = format!("<!-- nabu: cluster={} uid={} digest=", key.cluster, key.uid);
    body.lines().any(|line| line.trim().starts_with(&start))
}

/// Whether the last paragraph of a commit message names this response.
pub(super) fn has_trailers(message: &str, key: &ResponseKey) -> bool {
    let message = message.replace("\r\n", "\n");
    let trailers = message.trim_end().rsplit("\n\n").next().unwrap_or_default();
    let names = |wanted: String| trailers.lines().any(|line| line.trim_end() == wanted);
    names(format!("Nabu-Cluster: {}", key.cluster)) && names(format!("Nabu-Response: {}", key.uid))
}

/// Whether the branch of a change is one that nobody else has a reason to make: its name holds the UID of the response. A
/// route may let EventResponses name other branches; one of those that exists already is never taken for an empty one of
/// ours.
pub(super) fn is_our_name(job: &Job<'_>) -> bool {
    job.intent.branch.contains(job.key.uid.as_str())
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
    }

    #[test]
    fn a_marker_is_known_whatever_its_digest() {
        let body = "text\n<!-- nabu: cluster=prod-eu uid=u-1 digest=old -->\n";
        assert!(has_marker(body, &key("prod-eu", "u-1")));
        assert!(!has_marker(body, &key("prod-eu", "u-12")));
        assert!(!has_marker("", &key("prod-eu", "u-1")));
    }
}
