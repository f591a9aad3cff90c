//! The pull request of a group, in two requests: a look that tells all commits of its branch, and a document that commits on
//! top of what was seen and adds to the text.
//!
//! The commit is refused if the branch has moved since (`expectedHeadOid`); the text may have been set all the same, so
//! that only a commit proves who is in the group. The first member makes branch, commit and pull request as one alone does.

use std::borrow::Cow;

use super::super::group::{Members, Place, Seen, done_before, place, section_of, shared};
use super::super::ours::{has_marker, has_trailers};
use super::super::resolve::{PATCH_DOES_NOT_APPLY, in_background, patched_paths};
use super::super::{ForgeError, Job, Made, PullRequest, PullRequestState};
use super::amend::{OnTop, Text};
use super::decide::{self, Next, refuse_file_for_folder};
use super::lookup::{Branch, Commit, Found, Pull, Repository};
use super::write::Written;
use super::{FIRST_PAUSE, Github, Round, Wishes, unchanged};
use crate::change::{FileAction, FileChange, Intent};
use crate::group::Group;
use crate::render::group::{first_body, with_section};
use crate::response::ErrorType;

/// Looks that one attempt takes while others put theirs on the same branch.
const MOST_ROUNDS: u32 = 8;

/// What a round in a group came to.
enum InGroup {
    Done(Made),
    /// The response is not in the group and cannot join it.
    Alone,
    /// Look again; the error is given back if the rounds are over.
    Again(ForgeError),
}

/// The pull requests of a group are chosen in this order.
fn rank(pull: &Pull) -> u8 {
    match pull.state.as_str() {
        "OPEN" => 0,
        "MERGED" => 1,
        _ => 2,
    }
}

impl Github {
    /// Puts a change into its group; nothing if it has none, or cannot get into it.
    pub(super) async fn make_in_group(&self, job: &Job<'_>) -> Result<Option<Made>, ForgeError> {
        let (Some(member), Some(group)) = (job.intent.in_group(), &job.intent.group) else {
            return Ok(None);
        };
        let mut wishes = Wishes {
            draft: job.intent.draft,
            notes: Vec::new(),
            wrote: job.again,
        };
        let in_group = job.with(&member);
        let mut pause = FIRST_PAUSE;
        let mut rounds = 0;
        loop {
            let round = self.round_in_group(job, &in_group, group, &mut wishes);
            match round.await? {
                InGroup::Done(made) => return Ok(Some(made)),
                InGroup::Alone => return Ok(None),
                InGroup::Again(error) if rounds == MOST_ROUNDS => return Err(error),
                InGroup::Again(_) => {}
            }
            rounds += 1;
            tokio::time::sleep(pause.mul_f64(0.5 + rand::random::<f64>())).await;
            pause = (pause * 2).min(FIRST_PAUSE * 8);
        }
    }

    /// `job` is the member's, `alone` that of the same change with a branch of its own.
    async fn round_in_group(
        &self,
        alone: &Job<'_>,
        job: &Job<'_>,
        group: &Group,
        wishes: &mut Wishes,
    ) -> Result<InGroup, ForgeError> {
        let found = self.look(job).await?;
        let repository = found
            .repository
            .as_ref()
            .ok_or_else(|| self.repository_not_found())?;
        let pulls = repository.pulls().iter();
        let pull = pulls
            .filter(|pull| !pull.is_cross_repository)
            .min_by_key(|pull| rank(pull));
        let Some(pull) = pull else {
            return self
                .without_pull(alone, job, group, &found, repository, wishes)
                .await;
        };
        let mut members = Members::of(job.key, pull.commits());
        // What the pull request does not show yet may be on its branch.
        let branch = repository.branch.iter();
        let mut history = branch.flat_map(|branch| branch.target.history());
        let state = match rank(pull) {
            0 => PullRequestState::Open,
            1 => PullRequestState::Merged,
            _ => PullRequestState::Closed,
        };
        // A commit that came after the end is in no pull request.
        if state == PullRequestState::Open
            && let Some((oid, _)) = history.find(|(_, message)| has_trailers(message, job.key))
        {
            members.add(job.key.uid.as_str(), oid);
        }
        let seen = Seen {
            state,
            marked: false,
        };
        match place(job, group, Some(seen), &members) {
            Place::Alone => Ok(InGroup::Alone),
            Place::In { commit } => {
                if state == PullRequestState::Open && !has_marker(&pull.body, job.key) {
                    let body = self.body_of(job, repository).await;
                    let section = section_of(job.intent, alone.intent, &body);
                    let body = with_section(&pull.body, &section);
                    self.account.set_text(job, &text(pull, &body)).await?;
                }
                // What the first member could not put on it any more is put on it now.
                let adopted = self.adopt(job, &found, pull, wishes.wrote).await?;
                Ok(InGroup::Done(match adopted {
                    Made::PullRequest(pull) => shared(PullRequest { commit, ..pull }),
                    made => made,
                }))
            }
            Place::Join => {
                // One that lags behind its branch shows nothing to build on.
                let branch = repository.branch.as_ref();
                match branch.filter(|branch| branch.target.oid == pull.head_ref_oid) {
                    Some(branch) => self.join(alone, job, repository, branch, pull).await,
                    None => Ok(InGroup::Again(self.behind())),
                }
            }
        }
    }

    /// Puts the change on top of what is there.
    async fn join(
        &self,
        alone: &Job<'_>,
        job: &Job<'_>,
        repository: &Repository,
        branch: &Branch,
        pull: &Pull,
    ) -> Result<InGroup, ForgeError> {
        decide::base(job, repository, &self.place)?;
        let Some(whole) = self.whole_on(job, repository, &branch.target).await? else {
            return Ok(InGroup::Alone);
        };
        let name = &repository.name_with_owner;
        refuse_file_for_folder(&whole.files, &branch.target, name)?;
        let changes = decide::changes(whole.files.iter().enumerate(), &branch.target, name)?;
        let there = self.pull_of_group(pull, PullRequestState::Open, None);
        if changes.is_empty() {
            return Ok(InGroup::Done(match &repository.base {
                Some(base) if is_on(&whole, base, name) => unchanged(repository),
                _ => done_before(there),
            }));
        }
        let marked = has_marker(&pull.body, job.key);
        let body = with_section(
            &pull.body,
            &section_of(job.intent, alone.intent, &whole.body),
        );
        let on = OnTop {
            repository: name,
            branch: &branch.id,
            tip: &branch.target,
        };
        let text = text(pull, &body);
        let put = self
            .account
            .put(job, &on, &changes, (!marked).then_some(&text));
        match put.await {
            Ok(put) if put.ended_without => Ok(InGroup::Again(self.behind())),
            Ok(put) => Ok(InGroup::Done(shared(PullRequest {
                commit: Some(put.commit),
                ..there
            }))),
            // Somebody was faster, or nobody knows what it did.
            Err(ForgeError::Failed(error)) if error.kind == ErrorType::Transient => {
                Ok(InGroup::Again(ForgeError::Failed(error)))
            }
            Err(error) => Err(error),
        }
    }

    /// The branch is missing, or has no pull request yet.
    async fn without_pull(
        &self,
        alone: &Job<'_>,
        job: &Job<'_>,
        group: &Group,
        found: &Found,
        repository: &Repository,
        wishes: &mut Wishes,
    ) -> Result<InGroup, ForgeError> {
        let base = decide::base(job, repository, &self.place)?;
        let below = match &repository.branch {
            Some(branch) if branch.target.oid != base.target.oid => {
                let Some(members) = members_above(job, &branch.target, base) else {
                    return Ok(InGroup::Alone);
                };
                match place(job, group, None, &members) {
                    Place::Alone => return Ok(InGroup::Alone),
                    Place::In { commit } if commit.as_ref() != Some(&branch.target.oid) => {
                        let next = Next::Open {
                            commit: &branch.target.oid,
                        };
                        return self
                            .write_first(alone, job, group, found, &next, wishes)
                            .await;
                    }
                    Place::In { .. } => None,
                    Place::Join => Some(branch),
                }
            }
            _ => None,
        };
        if let Some(branch) = below {
            let Some(whole) = self.whole_on(job, repository, &branch.target).await? else {
                return Ok(InGroup::Alone);
            };
            let name = &repository.name_with_owner;
            refuse_file_for_folder(&whole.files, &branch.target, name)?;
            let changes = decide::changes(whole.files.iter().enumerate(), &branch.target, name)?;
            let next = if changes.is_empty() {
                Next::Open {
                    commit: &branch.target.oid,
                }
            } else {
                Next::Commit {
                    base: branch,
                    branch: Some(branch),
                    changes,
                }
            };
            return self
                .write_first(alone, &job.with(&whole), group, found, &next, wishes)
                .await;
        }
        let whole = self.whole(job, repository).await?;
        let section = section_of(job.intent, alone.intent, &whole.body);
        let first = Intent {
            body: first_body(group, &section),
            ..whole.into_owned()
        };
        match self.round_on(&job.with(&first), found, wishes).await? {
            Round::Done(Made::PullRequest(pull)) => Ok(InGroup::Done(shared(pull))),
            Round::Done(made) => Ok(InGroup::Done(made)),
            Round::Again(error) => Ok(InGroup::Again(error)),
        }
    }

    /// Opens the pull request of a branch that others have begun.
    async fn write_first(
        &self,
        alone: &Job<'_>,
        job: &Job<'_>,
        group: &Group,
        found: &Found,
        next: &Next<'_>,
        wishes: &mut Wishes,
    ) -> Result<InGroup, ForgeError> {
        let Some(repository) = &found.repository else {
            return Err(self.repository_not_found());
        };
        let section = section_of(job.intent, alone.intent, &job.intent.body);
        let first = Intent {
            body: first_body(group, &section),
            ..job.intent.clone()
        };
        let job = &job.with(&first);
        match self.write(job, repository, next, wishes.draft).await {
            Ok(Written::Opened(opened)) => {
                let notes = std::mem::take(&mut wishes.notes);
                match self.opened(job, found, *opened, notes).await? {
                    Made::PullRequest(pull) => Ok(InGroup::Done(shared(pull))),
                    made => Ok(InGroup::Done(made)),
                }
            }
            Ok(Written::NoDrafts) => {
                wishes.draft = false;
                Ok(InGroup::Again(self.behind()))
            }
            Ok(Written::LookAgain(error)) => Ok(InGroup::Again(error)),
            Ok(Written::NoDifference) => Ok(InGroup::Done(unchanged(repository))),
            Ok(Written::Doubtful { .. }) => Ok(InGroup::Again(self.behind())),
            Err(ForgeError::Failed(error)) if error.kind == ErrorType::Transient => {
                Ok(InGroup::Again(ForgeError::Failed(error)))
            }
            Ok(Written::Refused { error, .. }) | Err(error) => Err(error),
        }
    }

    /// The change without patches, on top of this commit; nothing if a patch does not fit what others have made of its file.
    async fn whole_on<'a>(
        &self,
        job: &Job<'a>,
        repository: &Repository,
        commit: &Commit,
    ) -> Result<Option<Cow<'a, Intent>>, ForgeError> {
        if patched_paths(job.intent).next().is_none() {
            return Ok(Some(Cow::Borrowed(job.intent)));
        }
        let files = self.base_files(job, repository, commit).await?;
        let resolved = match in_background(job.intent, files).await {
            Err(ForgeError::Failed(error)) if error.reason == PATCH_DOES_NOT_APPLY => {
                return Ok(None);
            }
            resolved => resolved?,
        };
        let files = resolved.files.into_iter().map(|file| FileChange {
            path: file.path,
            action: match file.contents {
                Some(contents) => FileAction::Write { contents },
                None => FileAction::Delete,
            },
        });
        Ok(Some(Cow::Owned(Intent {
            files: files.collect(),
            body: resolved.body,
            ..job.intent.clone()
        })))
    }

    /// The body of the change alone, with diffs as far as they can be told.
    async fn body_of(&self, job: &Job<'_>, repository: &Repository) -> String {
        let whole = self.whole(job, repository).await;
        whole.map_or_else(|_| job.intent.body.clone(), |whole| whole.body.clone())
    }

    fn pull_of_group(
        &self,
        pull: &Pull,
        state: PullRequestState,
        commit: Option<String>,
    ) -> PullRequest {
        PullRequest {
            url: self.address(&pull.url, pull.number),
            commit,
            state,
            adopted: true,
            notes: Vec::new(),
        }
    }
}

fn text<'a>(pull: &'a Pull, body: &'a str) -> Text<'a> {
    Text {
        pull: &pull.id,
        title: &pull.title,
        body,
    }
}

/// Whether the base branch has every file as wanted.
fn is_on(whole: &Intent, base: &Branch, name: &str) -> bool {
    decide::changes(whole.files.iter().enumerate(), &base.target, name)
        .is_ok_and(|changes| changes.is_empty())
}

/// Whose commits lie on top of the base; nothing if that cannot be seen.
fn members_above(job: &Job<'_>, tip: &Commit, base: &Branch) -> Option<Members> {
    let above = tip.history().take_while(|(oid, _)| *oid != base.target.oid);
    let above: Vec<(&str, &str)> = above.collect();
    let is_whole = tip.history().count() > above.len();
    is_whole.then(|| Members::of(job.key, above))
}
