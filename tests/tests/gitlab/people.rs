//! Drafts, labels, reviewers and assignees: welcome, and never a reason to lose a merge request.

use nabu_tests::test_forge::gitlab::{PERSON, Role};
use serde_json::{Value, json};

use crate::bed::{Bed, DENY};

fn names<'a>(request: &'a Value, field: &str) -> Vec<&'a str> {
    let people = request[field].as_array().unwrap().iter();
    people
        .map(|user| user["username"].as_str().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn drafts_labels_reviewers_and_assignees_arrive() {
    let bed = Bed::new().await;
    bed.gitlab.add_user("bob", "Bob", None);
    bed.project.set_role("bob", Some(Role::Developer)).unwrap();
    let mut intent = bed.intent("u-1", &DENY);
    intent.draft = true;
    intent.title = "Revoke ops-admin ".to_owned() + &"ä".repeat(250);
    intent.labels = vec!["security".to_owned(), "nabu".to_owned()];
    intent.reviewers = vec![PERSON.to_owned(), "Bob".to_owned()];
    intent.options.assignees = vec![PERSON.to_uppercase()];
    intent.options.delete_branch_after_merge = true;

    // Three names are looked up, whatever their case; the next time, none.
    assert_eq!(bed.pull(&intent).await.1, 6);
    let mut again = intent.clone();
    again.branch = "nabu/prod-eu/u-2".to_owned();
    again.body = bed.intent("u-2", &DENY).body;
    assert_eq!(bed.pull(&again).await.1, 3);

    for request in bed.project.merge_requests().unwrap() {
        let title = request["title"].as_str().unwrap();
        assert!(title.starts_with("Draft: Revoke ops-admin ää"), "{title}");
        assert_eq!(title.chars().count(), 255, "GitLab takes no longer one");
        assert_eq!(request["draft"], true);
        assert_eq!(request["labels"], json!(["nabu", "security"]));
        assert_eq!(names(&request, "reviewers"), [PERSON, "bob"]);
        assert_eq!(names(&request, "assignees"), [PERSON]);
        assert_eq!(request["force_remove_source_branch"], true);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_people_cost_the_others_nothing() {
    let bed = Bed::new().await;
    bed.gitlab.add_user("stranger", "Stranger", None);
    let mut intent = bed.intent("u-1", &DENY);
    intent.reviewers = ["nobody", "stranger", PERSON].map(str::to_owned).to_vec();
    intent.options.assignees = ["nobody", PERSON].map(str::to_owned).to_vec();
    let (pull, _) = bed.pull(&intent).await;
    let expected = [
        "reviewer \"nobody\": no such user",
        "assignee \"nobody\": no such user",
        "reviewer \"stranger\": left out by GitLab, for lack of access or of a licence for several",
    ];
    assert_eq!(pull.notes, expected);
    let all = bed.project.merge_requests().unwrap();
    assert_eq!(names(&all[0], "reviewers"), [PERSON]);
    assert_eq!(names(&all[0], "assignees"), [PERSON]);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_licence_allows_one_person_the_first_is_taken() {
    let bed = Bed::new().await;
    bed.project.set_several_people(false).unwrap();
    bed.gitlab.add_user("bob", "Bob", None);
    bed.project.set_role("bob", Some(Role::Developer)).unwrap();
    let mut intent = bed.intent("u-1", &DENY);
    intent.reviewers = ["bob", PERSON].map(str::to_owned).to_vec();
    bed.pull(&intent).await;
    let all = bed.project.merge_requests().unwrap();
    assert_eq!(names(&all[0], "reviewers"), ["bob"]);
}
