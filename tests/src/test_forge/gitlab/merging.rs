//! Merging, at once or when the rules allow it: `PUT merge_requests/:iid/merge` of `lib/api/merge_requests.rb`.

use anyhow::{Context as _, Result};
use jiff::Timestamp;

use super::answer::{Answer, ApiResult, refused, unauthorized};
use super::merge_requests::{find, find_mut, single};
use super::model::{MergeRequest, MergeRequestState, Pipeline, Project, State};
use super::request::ApiRequest;

/// `detailed_merge_status`, as far as its reasons exist here.
pub(super) fn detailed_status(target: &Project, request: &MergeRequest) -> Result<&'static str> {
    if request.state != MergeRequestState::Opened {
        return Ok("not_open");
    }
    if target.checking > 0 {
        return Ok("checking");
    }
    if request.is_draft() {
        return Ok("draft_status");
    }
    if merged_tree(target, request)?.is_none() {
        return Ok("conflict");
    }
    if target.approvals_missing {
        return Ok("not_approved");
    }
    if target.pipeline == Pipeline::Running {
        return Ok("ci_still_running");
    }
    Ok("mergeable")
}

/// The tree that a merge gives; nothing if it conflicts.
fn merged_tree(target: &Project, request: &MergeRequest) -> Result<Option<String>> {
    let Some(tip) = target.branch(&request.target_branch)? else {
        return Ok(None);
    };
    target.git.merge_tree(&tip, &request.sha)
}

/// `PUT projects/:id/merge_requests/:iid/merge`.
pub(super) fn merge(
    state: &mut State,
    project: u64,
    caller: u64,
    iid: &str,
    request: &ApiRequest,
) -> ApiResult {
    state.follow_branches()?;
    let target = state.project_mut(project)?;
    let one = find(target, iid)?.clone();
    if !target.may_merge(caller, &one.target_branch) {
        return Err(unauthorized());
    }
    let status = detailed_status(target, &one)?;
    target.checking = target.checking.saturating_sub(1);
    let wants_auto = request.flag("auto_merge") || request.flag("merge_when_pipeline_succeeds");
    // Auto-merge is for what has something to wait for; `available_for?` of merge_when_checks_pass_service.rb.
    let waits = matches!(status, "ci_still_running" | "not_approved");
    let is_green = target.pipeline == Pipeline::Succeeded && status == "mergeable";
    let at_once = if wants_auto {
        is_green
    } else {
        status == "mergeable"
    };
    let later = wants_auto && waits;
    if !at_once && !later {
        return Err(refused(405, "405 Method Not Allowed"));
    }
    if request.text("sha").is_some_and(|sha| sha != one.sha) {
        let text = format!("SHA does not match HEAD of source branch: {}", one.sha);
        return Err(refused(409, &text));
    }
    let squash = request.flag("squash");
    let one = find_mut(target, iid)?;
    one.squash |= squash;
    one.remove_source_branch |= request.flag("should_remove_source_branch");
    if at_once {
        accept(state, project, caller, iid)?;
    } else {
        one.auto_merge = true;
    }
    let project = state.project(project)?;
    Ok(Answer::ok(single(state, project, find_or(project, iid)?)?))
}

fn find_or<'a>(project: &'a Project, iid: &str) -> Result<&'a MergeRequest> {
    find(project, iid).ok().context("no merge request")
}

/// Merges, whatever the rules say.
pub(super) fn accept(state: &mut State, project: u64, caller: u64, iid: &str) -> Result<()> {
    state.follow_branches()?;
    let person = state.user(caller)?.signature();
    let target = state.project(project)?;
    let one = find_or(target, iid)?.clone();
    let tip = target
        .branch(&one.target_branch)?
        .context("no target branch")?;
    let tree = merged_tree(target, &one)?.context("it conflicts")?;
    let (parents, message) = if one.squash {
        (vec![tip.clone()], one.title.clone())
    } else {
        let text = format!(
            "Merge branch '{}' into '{}'",
            one.source_branch, one.target_branch
        );
        (vec![tip.clone(), one.sha.clone()], text)
    };
    let commit = target
        .git
        .write_commit(&tree, &parents, &message, &person, &person)?;
    target.set_branch(&one.target_branch, &commit, Some(&tip))?;
    let source = state.project(one.source_project)?;
    if one.remove_source_branch && source.branch(&one.source_branch)?.is_some() {
        source
            .git
            .delete_ref(&format!("refs/heads/{}", one.source_branch))?;
    }
    let target = state.project_mut(project)?;
    let mut all = target.merge_requests.iter_mut();
    let merged = all.find(|other| other.iid == one.iid);
    let merged = merged.context("no merge request")?;
    merged.state = MergeRequestState::Merged;
    merged.auto_merge = false;
    merged.ended_at = Some(Timestamp::now());
    merged.merge_commit = Some(commit);
    Ok(())
}
