//! Patches of files that are in the repository.

use nabu_hub::change::{FileAction, FileChange, Intent};
use nabu_hub::edit::{Patch, PatchType};
use nabu_hub::forge::Made;
use nabu_tests::fault_proxy::{Fault, FaultProxy};

use crate::bed::{Bed, make};

const APP: &str = "clusters/prod-eu/app.yaml";

const BEFORE: &str = "\
# Owned by team-a; ask before you scale.
kind: Deployment
spec:
    replicas: 3   # three, since the incident
    template: {spec: {containers: [{name: app, image: 'registry/app:1.0'}]}}
# The end.
";

fn scaling(bed: &Bed, uid: &str) -> Intent {
    let mut intent = bed.intent(uid, &[]);
    intent.files.push(FileChange {
        path: APP.to_owned(),
        action: FileAction::Patch {
            patch: Patch::parse(PatchType::YamlSet, "spec.replicas = 5", None).unwrap(),
        },
    });
    intent
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_meanwhile_is_read_again() {
    let bed = Bed::new("patch-meanwhile").await;
    bed.repository.add_file("main", APP, BEFORE).await.unwrap();
    let proxy = FaultProxy::start(&bed.forge.url()).await.unwrap();
    proxy.add(Fault::HoldAfter(2));
    let mut intent = scaling(&bed, "u-1");
    intent.target.base_url = Some(proxy.url());
    let changed = BEFORE.replace("registry/app:1.0", "registry/app:2.0");

    let meanwhile = async {
        proxy.reached().await.unwrap();
        bed.repository
            .add_file("main", APP, &changed)
            .await
            .unwrap();
        proxy.release();
    };
    let ((made, requests), ()) = tokio::join!(make(&bed.hub.forges, &intent), meanwhile);

    assert!(matches!(made, Ok(Made::PullRequest(_))), "{made:?}");
    assert_eq!(requests, 6);
    let file = bed.repository.file(&intent.branch, APP).await.unwrap();
    assert_eq!(file, Some(changed.replace("replicas: 3", "replicas: 5")));
}
