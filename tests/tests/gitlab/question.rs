//! Servers that do not answer the question, or not to us.

use nabu_hub::response::ErrorType;
use nabu_tests::test_forge::faults::{Effect, Fault, Reply};
use nabu_tests::test_forge::gitlab::{BOT, Role};
use serde_json::{Value, json};

use crate::bed::{BINDINGS, Bed, DENY, NEW};

/// Whoever asks a GraphQL question gets this.
async fn answering(status: u16, body: Value) -> Bed {
    let bed = Bed::new().await;
    let answer = Effect::Answer(Reply::json(status, &body));
    let fault = Fault::new(answer).path("/api/graphql").always();
    bed.gitlab.fail(fault);
    bed
}

fn said(words: &str) -> Value {
    json!({ "errors": [{ "message": words }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_know_the_question_is_asked_over_rest_from_then_on() {
    let unknown_field = said("Field 'mode' doesn't exist on type 'RepositoryBlob'");
    let missing = json!({ "message": "404 Not Found" });
    for (status, body) in [(404, missing), (200, unknown_field)] {
        let bed = answering(status, body).await;
        let new = bed.intent("u-1", &DENY);
        assert_eq!(bed.pull(&new).await.1, 4, "the question, then three");
        // Lookup, commit in vain, folder, commit, merge request.
        let there = [(BINDINGS, Some("bindings: []\n"))];
        assert_eq!(bed.pull(&bed.intent("u-2", &there)).await.1, 5);
        assert_eq!(bed.pull(&bed.intent("u-3", &there)).await.1, 3);
        assert_eq!(bed.pull(&new).await.1, 1);
        let mut nameless = bed.intent("u-4", &DENY);
        nameless.base_branch = None;
        assert_eq!(bed.pull(&nameless).await.1, 4, "the default branch");
        assert_eq!(bed.project.merge_requests().unwrap().len(), 4);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_one_question_is_asked_the_next() {
    let busy =
        said("Request timed out. Please try a less complex query or a smaller set of records.");
    for (status, body) in [(422, said("Query too large")), (200, busy)] {
        let bed = answering(status, body).await;
        assert_eq!(bed.pull(&bed.intent("u-1", &DENY)).await.1, 4);
        bed.gitlab.faults().clear();
        assert_eq!(bed.pull(&bed.intent("u-2", &DENY)).await.1, 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_not_read_the_code_is_told_by_the_rest_api() {
    let bed = Bed::new().await;
    bed.project.set_role(BOT, Some(Role::Guest)).unwrap();
    let intent = bed.intent("u-1", &DENY);
    bed.expect(&intent, ErrorType::Unauthorized, "PermissionDenied")
        .await;
    assert_eq!(bed.project.branches().unwrap(), ["main"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_that_fill_the_first_page_do_not_hide_ours() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    let (first, _) = bed.pull(&intent).await;
    // The answer as it is, but with others' merge requests on its page, and ours behind it.
    bed.gitlab.forget_requests();
    bed.pull(&intent).await;
    let mut answer: Value = serde_json::from_str(&bed.gitlab.requests()[0].answer).unwrap();
    let requests = &mut answer["data"]["project"]["mergeRequests"];
    requests["nodes"][0]["sourceProjectId"] = json!(4711);
    requests["pageInfo"]["hasNextPage"] = json!(true);
    bed.gitlab
        .fail(Fault::new(Effect::Answer(Reply::json(200, &answer))));

    let (pull, requests) = bed.pull(&intent).await;

    assert_eq!((pull.url, pull.adopted, requests), (first.url, true, 2));
    assert_eq!(
        bed.project.file(&intent.branch, NEW).unwrap().as_deref(),
        DENY[0].1
    );
}
