//! Sample values for unit tests: one EventResponse and its intent, valid as they stand.

use nabu_common::ids::ResponseKey;
use serde_json::{Value, json};

use crate::change::{FileAction, FileChange, ForgeTarget, Intent, ProviderKind, content_digest};
use crate::response::{Content, Observation};
use crate::store::SessionFacts;

pub(crate) fn key(number: u32) -> ResponseKey {
    key_in("prod-eu", number)
}

pub(crate) fn key_in(cluster: &str, number: u32) -> ResponseKey {
    ResponseKey {
        cluster: cluster.parse().unwrap(),
        uid: format!("00000000-0000-4000-8000-{number:012}")
            .parse()
            .unwrap(),
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "json!() is written in the call"
)]
pub(crate) fn event_response(retry_policy: Value) -> Value {
    json!({
        "apiVersion": "security.ugallu.io/v1alpha1",
        "kind": "EventResponse",
        "metadata": {"name": "er-1", "uid": key(1).uid, "generation": 1},
        "spec": {
            "securityEventRef": {"name": "se-1"},
            "responder": {"kind": "Controller", "name": "ugallu-gitops-responder"},
            "action": {"type": "GitOpsChange", "parameters": {
                "actionRef": "revoke-clusterrolebinding", "path": "rbac/evil.yaml", "delete": "true",
            }},
            "retryPolicy": retry_policy,
        },
    })
}

pub(crate) fn security_event() -> Value {
    json!({
        "metadata": {"name": "se-1"},
        "spec": {"type": "ClusterAdminGranted", "class": "Rbac", "severity": "high",
            "subject": {"kind": "ClusterRoleBinding", "name": "evil", "namespace": "payments"}},
    })
}

pub(crate) fn observation(key: ResponseKey, event_response: Value) -> Observation {
    Observation {
        key,
        name: "er-1".to_owned(),
        generation: 1,
        responder: "ugallu-gitops-responder".to_owned(),
        spec_hash: [7; 32],
        content: Content::Objects {
            event_response,
            security_event: Ok(security_event()),
        },
    }
}

pub(crate) fn target() -> ForgeTarget {
    ForgeTarget {
        kind: ProviderKind::Noop,
        base_url: None,
        repository: "ninsun-labs/ugallu-gitops".to_owned(),
        credential: None,
        installation_id: None,
        ca_bundle: None,
    }
}

pub(crate) fn intent() -> Intent {
    let files = vec![FileChange {
        path: "rbac/evil.yaml".to_owned(),
        action: FileAction::Delete,
    }];
    let branch = "nabu/prod-eu/1".to_owned();
    let digest = content_digest("ninsun-labs/ugallu-gitops", None, &branch, &files);
    Intent {
        route: "ugallu-system/default/0".to_owned(),
        target: target(),
        branch,
        base_branch: None,
        files,
        commit_message: "Revoke evil".to_owned(),
        author: None,
        title: "Revoke evil".to_owned(),
        body: "because".to_owned(),
        labels: Vec::new(),
        reviewers: Vec::new(),
        options: crate::change::PullRequestOptions::default(),
        draft: false,
        group: None,
        digest,
    }
}

pub(crate) fn session(cluster: &str, kube_system_uid: &str) -> SessionFacts {
    SessionFacts {
        cluster: cluster.parse().unwrap(),
        cluster_name: format!("{cluster} (name)"),
        kube_system_uid: kube_system_uid.to_owned(),
        kubernetes_version: "v1.35.4".to_owned(),
        agent_version: "0.1.0".to_owned(),
        responder_names: vec!["ugallu-gitops-responder".to_owned()],
    }
}
