//! Objects as ugallu writes them, for tests, the demo and benchmarks.

use serde_json::{Value, json};

/// `spec` of a SecurityEvent about a ClusterRoleBinding.
pub fn security_event(kind: &str, subject: &str) -> Value {
    json!({
        "class": "Detection",
        "type": kind,
        "severity": "high",
        "source": {"kind": "Detector", "name": "ugallu-audit-detection"},
        "subject": {"kind": "ClusterRoleBinding", "name": subject},
        "detectedAt": "2026-11-21T09:00:00Z",
        "signals": {"user": "system:serviceaccount:dev:builder"},
    })
}

/// `spec` of an EventResponse that asks for a change in Git.
pub fn event_response(security_event: &str, responder: &str, parameters: Value) -> Value {
    json!({
        "securityEventRef": {"name": security_event},
        "responder": {"kind": "Controller", "name": responder},
        "action": {"type": "GitOpsChange", "parameters": parameters},
    })
}

/// Parameters that write one file.
pub fn write_file(action_ref: &str, path: &str, contents: &str) -> Value {
    json!({"actionRef": action_ref, "path": path, "contents": contents})
}

/// The same `spec` with another retry policy.
pub fn with_retry(mut spec: Value, retry: Value) -> Value {
    spec["retryPolicy"] = retry;
    spec
}

/// A configuration whose one route takes everything to `noop`.
pub fn noop_config(repository: &str) -> String {
    config(&format!(
        "  routes:\n    - provider: {{ kind: noop, repository: {repository} }}\n"
    ))
}

/// A configuration with this `spec`, indented by two.
pub fn config(spec: &str) -> String {
    format!(
        "apiVersion: security.ugallu.io/v1alpha1\nkind: GitOpsResponderConfig\n\
        metadata: {{ name: default, namespace: ugallu-system }}\nspec:\n{spec}"
    )
}

/// A Secret with a token.
pub fn token_secret(name: &str, token: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{ name: {name}, namespace: ugallu-system }}\n\
        stringData: {{ token: {token} }}\n"
    )
}
