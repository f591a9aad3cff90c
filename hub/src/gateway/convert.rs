//! Wire types to plain values and back, and the checks on what an agent says.

use std::time::Duration;

use jiff::Timestamp;
use nabu_common::canonical::spec_hash;
use nabu_common::crd::CHANGE_MEDIA_TYPE;
use nabu_common::ids::{ClusterId, ResponseKey, ResponseUid, Revision};
use nabu_proto::agent_v1 as wire;
use nabu_proto::agent_v1::session_response::Frame;
use nabu_proto::agent_v1::{RefusalCode, observed};
use serde_json::Value;

use super::Farewell;
use crate::response::{Condition, Content, Observation, Phase, SecurityEventAbsence};
use crate::store::{Acknowledgement, ResponseSummary, SessionFacts, Watched};

/// Text of an agent that is kept as it is not longer than this.
const MAX_TEXT: usize = 1024;

pub(super) fn frame(frame: Frame) -> wire::SessionResponse {
    wire::SessionResponse { frame: Some(frame) }
}

/// Why a frame is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) uid: String,
    pub(super) code: RefusalCode,
    pub(super) message: String,
}

pub(super) fn refused(refusal: Refusal) -> wire::SessionResponse {
    frame(Frame::Refused(wire::Refused {
        uid: refusal.uid,
        code: refusal.code.into(),
        message: refusal.message,
    }))
}

pub(super) fn goodbye(farewell: Farewell) -> wire::SessionResponse {
    frame(Frame::Goodbye(wire::Goodbye {
        reason: farewell.reason.into(),
        reconnect_after: Some(duration(farewell.reconnect_after)),
        message: farewell.message,
    }))
}

pub(super) fn duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration::try_from(duration).unwrap_or_default()
}

pub(super) fn time(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.as_second(),
        nanos: at.subsec_nanosecond(),
    }
}

/// What Hello says of the cluster. Free text is shortened: it is shown to people and stored.
pub(super) fn session_facts(cluster: &ClusterId, hello: wire::Hello) -> SessionFacts {
    let short = |text: String| {
        text.chars()
            .filter(|c| !c.is_control())
            .take(MAX_TEXT)
            .collect::<String>()
    };
    let name = short(hello.cluster_name);
    SessionFacts {
        cluster: cluster.clone(),
        cluster_name: if name.is_empty() {
            cluster.to_string()
        } else {
            name
        },
        kube_system_uid: short(hello.kube_system_uid),
        kubernetes_version: short(hello.kubernetes_version),
        agent_version: short(hello.agent_version),
        responder_names: hello
            .responder_names
            .into_iter()
            .take(100)
            .map(short)
            .collect(),
    }
}

/// The observation of a frame, checked against the session's cluster and against itself.
pub(super) fn observation(
    cluster: &ClusterId,
    frame: wire::Observed,
) -> Result<Observation, Refusal> {
    let wire::ObjectRef { uid, name } = frame.r#ref.unwrap_or_default();
    let refuse = |code: RefusalCode, message: String| Refusal {
        uid: uid.chars().take(100).collect(),
        code,
        message,
    };
    let invalid = |message: String| refuse(RefusalCode::Invalid, message);
    if !frame.cluster_id.is_empty() && frame.cluster_id != cluster.as_str() {
        let named: String = frame.cluster_id.chars().take(80).collect();
        let message =
            format!("the frame names the cluster {named:?}, the certificate is for {cluster}");
        return Err(refuse(RefusalCode::NotAllowed, message));
    }
    let key = ResponseKey {
        cluster: cluster.clone(),
        uid: uid
            .parse()
            .map_err(|error| invalid(format!("metadata.uid: {error}")))?,
    };
    if name.is_empty() || name.len() > 253 {
        return Err(invalid(
            "metadata.name: is empty or longer than 253 characters".to_owned(),
        ));
    }
    let hash: [u8; 32] = frame
        .spec_hash
        .as_ref()
        .try_into()
        .map_err(|_| invalid("spec_hash: is not of 32 bytes".to_owned()))?;
    let content = match frame.content {
        Some(observed::Content::Objects(objects)) => {
            let content = objects_content(&objects).map_err(&invalid)?;
            if let Content::Objects { event_response, .. } = &content {
                check_identity(event_response, &uid, &name, hash).map_err(&invalid)?;
            }
            content
        }
        Some(observed::Content::Unserveable(unserveable)) => Content::Unserveable {
            reason: camel_case(&unserveable.reason),
            message: unserveable.message.chars().take(MAX_TEXT).collect(),
        },
        None => return Err(invalid("content: is missing".to_owned())),
    };
    let responder = frame.responder_name.chars().take(253).collect();
    Ok(Observation {
        key,
        name,
        generation: frame.generation,
        responder,
        spec_hash: hash,
        content,
    })
}

/// A word of an agent that becomes a reason; Kubernetes allows nothing else there.
fn camel_case(word: &str) -> String {
    let clean: String = word
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(64)
        .collect();
    if clean.is_empty() {
        "Unserveable".to_owned()
    } else {
        clean
    }
}

fn objects_content(objects: &wire::ResponseObjects) -> Result<Content, String> {
    let parse = |what: &str, bytes: &[u8]| -> Result<Value, String> {
        serde_json::from_slice(bytes)
            .map_err(|error| format!("the {what} is no JSON object that can be read: {error}"))
    };
    let event_response = parse("EventResponse", &objects.event_response_json)?;
    let security_event = if objects.security_event_json.is_empty() {
        Err(match objects.security_event_absence() {
            wire::SecurityEventAbsence::UidMismatch => SecurityEventAbsence::UidMismatch,
            wire::SecurityEventAbsence::NotReadable => SecurityEventAbsence::NotReadable,
            wire::SecurityEventAbsence::TooLarge => SecurityEventAbsence::TooLarge,
            wire::SecurityEventAbsence::NotFound | wire::SecurityEventAbsence::Unspecified => {
                SecurityEventAbsence::NotFound
            }
        })
    } else {
        Ok(parse("SecurityEvent", &objects.security_event_json)?)
    };
    Ok(Content::Objects {
        event_response,
        security_event,
    })
}

fn check_identity(object: &Value, uid: &str, name: &str, hash: [u8; 32]) -> Result<(), String> {
    for (pointer, wanted) in [("/metadata/uid", uid), ("/metadata/name", name)] {
        let found = object.pointer(pointer).and_then(Value::as_str);
        if found != Some(wanted) {
            return Err(format!(
                "{}: differs from the frame's",
                pointer.replace('/', ".").trim_start_matches('.')
            ));
        }
    }
    if spec_hash(object.get("spec").unwrap_or(&Value::Null)) != hash {
        return Err("spec_hash: is not that of spec".to_owned());
    }
    Ok(())
}

/// The acknowledgement of a frame; `None` if its UID cannot be one of ours.
pub(super) fn acknowledgement(
    uid: &str,
    revision: u64,
    refusal: Option<String>,
) -> Option<Acknowledgement> {
    Some(Acknowledgement {
        uid: uid.parse().ok()?,
        revision: Revision(revision),
        refusal: refusal.map(|text| text.chars().take(MAX_TEXT).collect()),
    })
}

/// The key of an object that an agent names.
pub(super) fn key(cluster: &ClusterId, object: Option<wire::ObjectRef>) -> Option<ResponseKey> {
    let uid: ResponseUid = object?.uid.parse().ok()?;
    Some(ResponseKey {
        cluster: cluster.clone(),
        uid,
    })
}

/// The whole outward status of a response.
pub(super) fn status(summary: &ResponseSummary) -> wire::SessionResponse {
    let progress = &summary.progress;
    let url = progress.url.clone().unwrap_or_default();
    let evidence = progress.url.iter().map(|url| wire::Evidence {
        media_type: CHANGE_MEDIA_TYPE.to_owned(),
        url: url.clone(),
        sha256: progress.commit.clone().unwrap_or_default(),
    });
    frame(Frame::Status(wire::Status {
        r#ref: Some(wire::ObjectRef {
            uid: summary.key.uid.to_string(),
            name: summary.name.clone(),
        }),
        revision: progress.revision.0,
        phase: phase(progress.phase).into(),
        attempts: progress.attempts,
        started_at: progress.started_at.map(time),
        last_attempt_at: progress.last_attempt_at.map(time),
        next_attempt_at: progress.next_attempt_at.map(time),
        completed_at: progress.completed_at.map(time),
        outcome: progress.outcome.as_ref().map(|outcome| wire::Outcome {
            r#type: outcome.kind.as_str().to_owned(),
            message: outcome.message.clone(),
        }),
        error: progress.error.as_ref().map(|error| wire::ResponseError {
            r#type: error.kind.as_str().to_owned(),
            reason: error.reason.clone(),
            detail: error.detail.clone(),
        }),
        evidence: evidence.collect(),
        provider_ref: url,
        conditions: progress.conditions.iter().map(condition).collect(),
        cancel_reason: progress.cancel_reason.clone().unwrap_or_default(),
        watched: progress.watched,
        watched_spec_hash: if progress.spec_watched {
            summary.spec_hash.to_vec().into()
        } else {
            bytes::Bytes::new()
        },
    }))
}

fn phase(phase: Phase) -> wire::Phase {
    match phase {
        Phase::Pending => wire::Phase::Pending,
        Phase::Running => wire::Phase::Running,
        Phase::Succeeded => wire::Phase::Succeeded,
        Phase::Failed => wire::Phase::Failed,
        Phase::Cancelled => wire::Phase::Cancelled,
    }
}

fn condition(condition: &Condition) -> wire::Condition {
    let status = match condition.status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    wire::Condition {
        r#type: condition.kind.clone(),
        status: status.to_owned(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        last_transition_time: Some(time(condition.last_transition_time)),
        observed_generation: condition.observed_generation,
    }
}

/// A part of the list of watched responses.
pub(super) fn watching(watched: Vec<Watched>, more: bool) -> wire::SessionResponse {
    let responses = watched.into_iter().map(|one| wire::WatchedResponse {
        uid: one.uid.to_string(),
        name: one.spec_hash.map(|_| one.name).unwrap_or_default(),
        spec_hash: one
            .spec_hash
            .map(|hash| hash.to_vec())
            .unwrap_or_default()
            .into(),
    });
    frame(Frame::Watching(wire::Watching {
        responses: responses.collect(),
        more,
    }))
}

/// The question what has become of these.
pub(super) fn missing(uids: &[ResponseUid]) -> wire::SessionResponse {
    let refs = uids.iter().map(|uid| wire::ObjectRef {
        uid: uid.to_string(),
        name: String::new(),
    });
    frame(Frame::Missing(wire::Missing {
        refs: refs.collect(),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures;

    fn cluster() -> ClusterId {
        "prod-eu".parse().unwrap()
    }

    fn frame_of(object: &Value) -> wire::Observed {
        wire::Observed {
            r#ref: Some(wire::ObjectRef {
                uid: fixtures::key(1).uid.to_string(),
                name: "er-1".to_owned(),
            }),
            generation: 1,
            responder_name: "ugallu-gitops-responder".to_owned(),
            cluster_id: String::new(),
            spec_hash: spec_hash(&object["spec"]).to_vec().into(),
            content: Some(observed::Content::Objects(wire::ResponseObjects {
                event_response_json: object.to_string().into(),
                security_event_json: bytes::Bytes::new(),
                security_event_absence: wire::SecurityEventAbsence::UidMismatch.into(),
            })),
        }
    }

    #[test]
    fn an_observation_comes_over_as_it_is() {
        let object = fixtures::event_response(json!({}));
        let seen = observation(&cluster(), frame_of(&object)).unwrap();
        assert_eq!(seen.key, fixtures::key(1));
        let content = Content::Objects {
            event_response: object,
            security_event: Err(SecurityEventAbsence::UidMismatch),
        };
        assert_eq!(seen.content, content);
    }

    #[test]
    fn a_frame_that_contradicts_the_certificate_or_itself_is_refused() {
        type Change = fn(&mut wire::Observed);
        let cases: [(Change, RefusalCode, &str); 5] = [
            (
                |frame| frame.cluster_id = "prod-us".into(),
                RefusalCode::NotAllowed,
                "prod-us",
            ),
            (
                |frame| frame.spec_hash = vec![0; 32].into(),
                RefusalCode::Invalid,
                "spec_hash",
            ),
            (
                |frame| frame.r#ref.as_mut().unwrap().name = "other".into(),
                RefusalCode::Invalid,
                "metadata.name",
            ),
            (
                |frame| frame.r#ref.as_mut().unwrap().uid = "../x".into(),
                RefusalCode::Invalid,
                "metadata.uid",
            ),
            (
                |frame| frame.content = None,
                RefusalCode::Invalid,
                "content",
            ),
        ];
        for (change, code, names) in cases {
            let mut frame = frame_of(&fixtures::event_response(json!({})));
            change(&mut frame);
            let refusal = observation(&cluster(), frame).unwrap_err();
            assert_eq!(refusal.code, code);
            assert!(refusal.message.contains(names), "{}", refusal.message);
        }
    }
}
