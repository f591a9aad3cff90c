//! A pull request that is closed because nobody wants it any more.

use anyhow::Result;
use nabu_hub::forge::{Closing, ForgeError, PullRequestState};
use nabu_tests::intents::closing;
use reqwest::Method;
use serde_json::Value;

use crate::bed::{Bed, REVOKE};

async fn comments(bed: &Bed, number: u64) -> Result<Vec<String>> {
    let path = format!("/issues/{number}/comments");
    let all = bed.repository.call(Method::GET, &path, None).await?;
    let all = all.as_array().cloned().unwrap_or_default();
    let text = |comment: &Value| comment["body"].as_str().unwrap_or_default().to_owned();
    Ok(all.iter().map(text).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_said_why_and_closed_in_three_requests_and_one_more_asks_and_changes_nothing()
-> Result<()> {
    let bed = Bed::new("closing").await;
    let intent = bed.intent("u-1", &REVOKE);
    let (pull, _) = bed.pull(&intent).await;
    let (closed, requests) = bed.hub.close(&intent, &closing(Some(1))).await;
    let closed = closed?.unwrap();
    assert_eq!((requests, &closed.url), (3, &pull.url));
    assert_eq!(closed.pull.state, PullRequestState::Closed);
    assert!(closed.pull.ended_at.is_some() && closed.notes.is_empty());
    let said = comments(&bed, 1).await?;
    assert!(
        said[0].starts_with("Closed by Nabu: the EventResponse was deleted."),
        "{said:?}"
    );
    assert!(
        bed.repository.branches().await?.contains(&intent.branch),
        "the branch stays unless the route says otherwise"
    );
    let again = Closing {
        again: true,
        ..closing(Some(1))
    };
    assert_eq!(bed.hub.close(&intent, &again).await.1, 1);
    // What a crash between the comment and the close leaves.
    let open = serde_json::json!({ "state": "open" });
    bed.repository
        .call(Method::PATCH, "/pulls/1", Some(open))
        .await?;
    let (closed, requests) = bed.hub.close(&intent, &again).await;
    assert_eq!(closed?.unwrap().pull.state, PullRequestState::Closed);
    assert_eq!((requests, comments(&bed, 1).await?.len()), (3, 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_people_have_ended_is_given_back_as_it_is() -> Result<()> {
    let bed = Bed::new("closing-ended").await;
    for uid in ["u-1", "u-2"] {
        bed.pull(&bed.intent(uid, &[(&format!("{uid}.yaml"), Some("x\n"))]))
            .await;
    }
    bed.repository.merge_pull_request(1).await?;
    bed.repository.close_pull_request(2).await?;
    for (number, state) in [(1, PullRequestState::Merged), (2, PullRequestState::Closed)] {
        let intent = bed.intent(&format!("u-{number}"), &REVOKE);
        let (closed, requests) = bed.hub.close(&intent, &closing(Some(number))).await;
        assert_eq!((closed?.unwrap().pull.state, requests), (state, 1));
        assert!(comments(&bed, number).await?.is_empty());
    }
    let (gone, _) = bed
        .hub
        .close(&bed.intent("u-1", &REVOKE), &closing(Some(9)))
        .await;
    assert_eq!(gone?, None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_number_only_ours_is_closed() -> Result<()> {
    let bed = Bed::new("closing-unknown").await;
    let intent = bed.intent("u-1", &REVOKE);
    let (nothing, requests) = bed.hub.close(&intent, &closing(None)).await;
    assert_eq!((nothing?, requests), (None, 1));
    bed.pull(&intent).await;
    let (closed, requests) = bed.hub.close(&intent, &closing(None)).await;
    assert_eq!((closed?.unwrap().pull.number, requests), (1, 3));

    let other = bed.intent("u-2", &REVOKE);
    bed.repository.add_collaborator("write").await?;
    bed.repository
        .add_file_as_person("main", &other.branch, "mine.txt", "mine\n")
        .await?;
    let mine =
        serde_json::json!({ "base": "main", "head": other.branch, "title": "Mine", "body": "" });
    bed.repository
        .call(Method::POST, "/pulls", Some(mine))
        .await?;
    let (refused, _) = bed.hub.close(&other, &closing(None)).await;
    assert!(
        matches!(&refused, Err(ForgeError::Failed(error)) if error.reason == "BranchTaken"),
        "{refused:?}"
    );
    assert!(comments(&bed, 2).await?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_branch_goes_if_that_is_wanted_and_nobody_has_put_something_on_it() -> Result<()> {
    let bed = Bed::new("closing-branch").await;
    bed.repository.add_collaborator("write").await?;
    for (uid, touched) in [("u-1", false), ("u-2", true)] {
        let intent = bed.intent(uid, &[(&format!("{uid}.yaml"), Some("x\n"))]);
        let (pull, _) = bed.pull(&intent).await;
        if touched {
            bed.repository
                .add_file_as_person(&intent.branch, &intent.branch, "mine.txt", "mine\n")
                .await?;
        }
        let wish = Closing {
            remove_branch: true,
            commit: pull.commit.as_deref(),
            ..closing(None)
        };
        let (closed, _) = bed.hub.close(&intent, &wish).await;
        assert_eq!(closed?.unwrap().pull.state, PullRequestState::Closed);
        assert_eq!(
            bed.repository.branches().await?.contains(&intent.branch),
            touched,
            "{uid}"
        );
    }
    Ok(())
}
