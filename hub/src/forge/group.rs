//! What is on the branch of a group, and whether a response is in it, may join it, or goes its own way. Pure; each forge
//! looks and writes in its own file `group.rs`.
//!
//! Only responses of one cluster share a branch, each with one commit, known by its trailers. A commit of anybody else (a
//! person's, a merge of the base branch) makes the branch theirs: whoever is in it stays in it, and nobody joins any more.

use std::collections::{BTreeMap, HashMap};

use nabu_common::ids::ResponseKey;
use tokio::time::Instant;
use tracing::info;

use super::ours::member;
use super::{Job, Made, PullRequest, PullRequestState, Shared};
use crate::change::Intent;
use crate::group::Group;
use crate::render::group::section;

/// Branches of groups that are remembered at most.
const MOST_KNOWN: usize = 256;

/// Whose commits a branch has beside those of its base.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Members {
    /// The commit of each response, by UID.
    commits: BTreeMap<String, String>,
    /// A commit of somebody else.
    foreign: Option<String>,
}

impl Members {
    /// From the id and message of each commit.
    pub(super) fn of<'a>(
        key: &ResponseKey,
        commits: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let mut members = Self::default();
        for (id, message) in commits {
            match member(message, &key.cluster) {
                Some(uid) => members.add(&uid, id),
                None => members.foreign = Some(id.to_owned()),
            }
        }
        members
    }

    /// Notes the commit of a response.
    pub(super) fn add(&mut self, uid: &str, commit: &str) {
        self.commits.insert(uid.to_owned(), commit.to_owned());
    }

    /// The commit of a response.
    pub(super) fn commit_of(&self, key: &ResponseKey) -> Option<&str> {
        self.commits.get(key.uid.as_str()).map(String::as_str)
    }
}

/// Where a response belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is in there.
    In {
        /// Its commit, if that is known.
        commit: Option<String>,
    },
    /// It may put its commit on top of what is there.
    Join,
    /// It gets a branch and a pull request of its own.
    Alone,
}

/// The pull request of a group as it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) state: PullRequestState,
    /// Whether the marker of the response proves that its commit was made.
    pub(super) marked: bool,
}

/// Whether a response is in the group that was looked at, or may join it.
pub(super) fn place(job: &Job<'_>, group: &Group, pull: Option<Seen>, members: &Members) -> Place {
    let commit = members.commit_of(job.key).map(str::to_owned);
    if commit.is_some() || pull.is_some_and(|pull| pull.marked) {
        return Place::In { commit };
    }
    let size = usize::try_from(group.max_responses).unwrap_or(usize::MAX);
    let why = if pull.is_some_and(|pull| pull.state != PullRequestState::Open) {
        "its pull request has ended"
    } else if members.foreign.is_some() {
        "somebody else has put a commit on its branch"
    } else if members.commits.len() >= size {
        "it is full"
    } else {
        return Place::Join;
    };
    info!(key = %job.key, branch = group.branch, why, "the response goes its own way instead of into its group");
    Place::Alone
}

/// The section of a response in the shared body; `body` is that of the change alone, with diffs.
pub(super) fn section_of(intent: &Intent, alone: &Intent, body: &str) -> String {
    let titled = Intent {
        title: alone.title.clone(),
        ..intent.clone()
    };
    section(&titled, body)
}

/// A pull request of a group, for one who is in it.
pub(super) fn shared(pull: PullRequest) -> Made {
    Made::Shared(Shared {
        pull,
        done_before: false,
    })
}

/// The same for one whose change another member has made.
pub(super) fn done_before(pull: PullRequest) -> Made {
    Made::Shared(Shared {
        pull: PullRequest {
            commit: None,
            ..pull
        },
        done_before: true,
    })
}

/// What was last put on the branches of groups. It saves a look at the commits, as long as the tip is the same.
#[derive(Debug, Default)]
pub(super) struct KnownGroups {
    by_branch: HashMap<String, (String, Members, Instant)>,
}

impl KnownGroups {
    /// Whose commits are on a branch with this tip.
    pub(super) fn at(&self, branch: &str, tip: &str) -> Option<Members> {
        let (known, members, _) = self.by_branch.get(branch)?;
        (known == tip).then(|| members.clone())
    }

    /// Whether a branch is known to be there.
    pub(super) fn has(&self, branch: &str) -> bool {
        self.by_branch.contains_key(branch)
    }

    /// Notes what is on a branch.
    pub(super) fn note(&mut self, branch: &str, tip: &str, members: Members) {
        if self.by_branch.len() >= MOST_KNOWN && !self.has(branch) {
            let oldest = self
                .by_branch
                .iter()
                .min_by_key(|(_, (_, _, since))| *since);
            if let Some(oldest) = oldest.map(|(branch, _)| branch.clone()) {
                self.by_branch.remove(&oldest);
            }
        }
        let entry = (tip.to_owned(), members, Instant::now());
        self.by_branch.insert(branch.to_owned(), entry);
    }

    /// Something else is on it than was thought.
    pub(super) fn forget(&mut self, branch: &str) {
        self.by_branch.remove(branch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{self, key};

    fn message(uid: u32) -> String {
        let key = key(uid);
        format!(
            "x\n\nNabu-Cluster: {}\nNabu-Response: {}\n",
            key.cluster, key.uid
        )
    }

    fn members(uids: &[u32]) -> Members {
        let messages: Vec<_> = uids
            .iter()
            .map(|uid| (format!("c{uid}"), message(*uid)))
            .collect();
        let commits = messages
            .iter()
            .map(|(id, text)| (id.as_str(), text.as_str()));
        Members::of(&key(1), commits)
    }

    fn placed(state: Option<PullRequestState>, members: &Members) -> Place {
        let group = Group {
            branch: "g".to_owned(),
            title: String::new(),
            introduction: String::new(),
            max_responses: 3,
        };
        let (key, intent) = (key(1), fixtures::intent());
        let pull = state.map(|state| Seen {
            state,
            marked: false,
        });
        place(&Job::new(&key, &intent), &group, pull, members)
    }

    #[test]
    fn a_response_joins_while_there_is_room_and_nobody_else_has_touched_the_branch() {
        use PullRequestState::{Closed, Merged, Open};
        assert_eq!(placed(Some(Open), &members(&[2, 3])), Place::Join);
        assert_eq!(placed(None, &members(&[2])), Place::Join);
        assert_eq!(
            placed(Some(Open), &members(&[2, 3, 4])),
            Place::Alone,
            "full"
        );
        assert_eq!(placed(Some(Merged), &members(&[2])), Place::Alone);
        assert_eq!(placed(Some(Closed), &members(&[2])), Place::Alone);
        let mut touched = members(&[2]);
        touched.foreign = Some("f".to_owned());
        assert_eq!(placed(Some(Open), &touched), Place::Alone);
    }

    #[test]
    fn a_response_that_is_in_stays_in_whatever_became_of_the_rest() {
        let commit = Some("c1".to_owned());
        let mut all = members(&[1, 2, 3, 4]);
        all.foreign = Some("f".to_owned());
        for state in [
            PullRequestState::Open,
            PullRequestState::Merged,
            PullRequestState::Closed,
        ] {
            let expected = Place::In {
                commit: commit.clone(),
            };
            assert_eq!(placed(Some(state), &all), expected);
        }
    }

    #[test]
    fn commits_of_other_clusters_and_of_people_are_foreign() {
        let other = message(2).replace("prod-eu", "prod-us");
        for text in ["Fix it", "Merge branch 'main'", &other] {
            let members = Members::of(&key(1), [("a", text)]);
            assert_eq!(members.foreign.as_deref(), Some("a"), "{text}");
        }
    }

    #[test]
    fn what_is_known_holds_for_its_tip_only_and_is_bounded() {
        let mut known = KnownGroups::default();
        known.note("g", "t1", members(&[1]));
        assert_eq!(known.at("g", "t1"), Some(members(&[1])));
        assert_eq!(known.at("g", "t2"), None);
        for number in 0..2 * MOST_KNOWN {
            known.note(&number.to_string(), "t", Members::default());
        }
        assert_eq!(known.by_branch.len(), MOST_KNOWN);
        assert!(!known.has("g"));
    }
}
