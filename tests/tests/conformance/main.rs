//! What every forge must do, each story told once and run on all of them: on a real Gitea server, and on the test forges that
//! speak GitHub's and GitLab's APIs over real git. Where forges differ, `forges::Differences` says so.
//!
//! This file is the table of contents. A story that is not in it is not run, and the compiler warns of it. What only one forge
//! has or can be made to do is in the targets `forgejo`, `github` and `gitlab`.

#[cfg(test)]
mod bed;
#[cfg(test)]
mod forges;
#[cfg(test)]
mod stories;

/// Runs the stories on each of these servers, as `forge::group::story`.
macro_rules! run {
    ([] $stories:tt) => {};
    ([$forge:ident on $server:ty, $($others:tt)*] $stories:tt) => {
        run!($forge $server, $stories);
        run!([$($others)*] $stories);
    };
    ($forge:ident $server:ty, { $($group:ident: [$($story:ident,)*])* }) => {
        #[cfg(test)]
        mod $forge {
            $(mod $group {
                $(#[tokio::test(flavor = "multi_thread")]
                async fn $story() {
                    let bed = crate::bed::Bed::<$server>::new(stringify!($story)).await;
                    crate::stories::$group::$story(bed).await;
                })*
            })*
        }
    };
}

run! {
    [
        forgejo on crate::forges::gitea::Gitea,
        github on crate::forges::github::Github,
        gitlab on crate::forges::gitlab::Gitlab,
    ]
    {
        contents: [
            a_change_is_one_commit_and_one_pull_request_and_the_second_time_nothing,
            fifty_files_cost_what_one_costs,
            files_that_are_there_and_files_that_are_not_cost_the_same,
            a_file_that_went_meanwhile_is_made_anew,
            what_is_there_already_needs_no_action_and_leaves_nothing,
            deleting_what_is_not_there_does_not_stop_the_rest,
            without_a_base_branch_the_default_branch_is_taken_and_a_base_may_have_slashes,
            drafts_and_labels_arrive,
        ]
        bytes: [
            unusual_names_and_contents_arrive_byte_for_byte,
            binary_files_stay_are_replaced_and_go,
            names_that_are_no_text_stay_beside_ours,
            executable_files_keep_their_mode,
            a_link_is_never_written_to_and_can_go,
            a_path_that_begins_with_a_dash_is_written_or_refused,
            a_path_that_is_too_long_for_the_forge_is_refused,
            a_file_takes_the_place_of_no_folder_and_goes_through_no_file,
        ]
        adopt: [
            a_branch_without_a_commit_is_gone_on_with,
            a_branch_without_a_commit_goes_if_there_is_nothing_to_do,
            a_branch_that_its_base_has_left_behind_loses_nothing,
            our_commit_without_a_pull_request_gets_one,
            our_commit_with_other_contents_is_not_passed_off_as_the_change,
            our_commit_that_changes_nothing_is_taken_back_or_never_made,
            a_pull_request_without_labels_gets_them_where_an_interruption_may_have_cost_them,
            a_body_that_people_rewrote_makes_a_pull_request_no_less_ours,
            whatever_fails_the_next_attempt_ends_with_one_pull_request,
            attempts_at_the_same_time_make_one_pull_request,
        ]
        whose: [
            a_closed_pull_request_is_never_opened_again,
            a_merged_pull_request_is_given_back_though_its_branch_is_gone,
            one_that_people_opened_by_hand_goes_before_the_closed_one_where_it_is_seen,
            a_pull_request_from_a_fork_is_never_adopted,
            somebody_elses_commit_on_our_branch_is_left_alone,
            somebody_elses_pull_request_of_our_branch_is_left_alone,
            somebody_elses_commit_on_top_of_ours_is_not_passed_off_as_the_change,
            a_commit_of_another_response_is_somebody_elses,
            a_change_never_goes_to_the_base_branch,
            a_branch_of_a_name_that_others_may_use_is_never_taken_for_an_empty_one_of_ours,
        ]
        refusals: [
            a_base_branch_that_never_was_is_named,
            a_base_branch_that_went_is_named_and_leaves_nothing,
            a_repository_that_is_not_there_is_named,
            a_repository_without_a_commit_is_named,
            an_archived_repository_parks,
            a_token_that_may_only_read_is_told_so,
            a_rotated_token_needs_no_restart_and_no_token_is_ever_shown,
        ]
        patches: [
            a_patch_keeps_every_other_byte_and_is_shown,
            a_patch_keeps_the_mode_and_bytes_that_are_no_text,
            a_patch_of_what_is_so_already_needs_no_action,
            a_patch_that_does_not_fit_leaves_nothing_behind,
            a_commit_of_ours_is_known_whatever_became_of_the_base,
        ]
        closing: [
            it_is_said_why_and_closed_and_the_second_time_nothing,
            a_cut_anywhere_leaves_one_comment_and_a_closed_pull_request,
            a_reason_that_was_said_is_found_behind_many_comments,
            one_that_people_have_ended_is_given_back_as_it_is,
            without_a_number_only_ours_is_closed,
            the_branch_goes_if_that_is_wanted_and_nobody_has_put_something_on_it,
        ]
        races: [
            a_merge_at_any_moment_of_an_update_counts_nothing_that_is_not_merged,
            a_merge_at_any_moment_of_joining_a_group_loses_nothing,
        ]
        follow: [
            what_became_of_pull_requests_is_seen,
            the_branch_of_a_merged_one_goes_unless_somebody_has_put_something_on_it,
        ]
    }
}
