//! Owns the translation between plain values and wire types, and the limit on a frame's size.

use bytes::Bytes;
use jiff::Timestamp;
use nabu_common::ids::{ResponseUid, Revision};
use nabu_proto::MAX_FRAME_BYTES;
use nabu_proto::agent_v1 as wire;
use nabu_proto::agent_v1::session_request::Frame;
use nabu_proto::agent_v1::{
    RefusalCode, SecurityEventAbsence, SessionRequest, observed, session_response,
};
use prost::Message as _;
use serde_json::{Map, Value, json};

use super::{Absence, FromHub, KnownSpec, Observation, Refusal, ToHub};
use crate::object::SpecPrint;
use crate::status::{Phase, StatusUpdate};

/// A frame that the hub sent and that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the hub sent a {frame} frame with a wrong {field}")]
pub(super) struct Unreadable {
    frame: &'static str,
    field: &'static str,
}

pub(super) fn frame(frame: Frame) -> SessionRequest {
    SessionRequest { frame: Some(frame) }
}

pub(super) fn to_wire(value: ToHub) -> SessionRequest {
    match value {
        ToHub::SnapshotBegin { id } => frame(Frame::SnapshotBegin(wire::SnapshotBegin {
            snapshot_id: id,
        })),
        ToHub::SnapshotEnd { id, count } => frame(Frame::SnapshotEnd(wire::SnapshotEnd {
            snapshot_id: id,
            count,
        })),
        ToHub::Observed(observation) => observed_frame(*observation),
        ToHub::Deleted {
            uid,
            name,
            still_there,
            own_success,
        } => frame(Frame::Deleted(wire::Deleted {
            r#ref: Some(wire::ObjectRef {
                uid: uid.to_string(),
                name,
            }),
            still_there,
            own_success,
        })),
        ToHub::Applied { uid, revision } => frame(Frame::Applied(wire::Applied {
            uid: uid.to_string(),
            revision: revision.0,
        })),
        ToHub::StatusRefused {
            uid,
            revision,
            reason,
        } => frame(Frame::StatusRefused(wire::StatusRefused {
            uid: uid.to_string(),
            revision: revision.0,
            reason,
        })),
    }
}

/// Both objects if they fit into a frame, else the EventResponse alone, else what is too large.
fn observed_frame(observation: Observation) -> SessionRequest {
    let (event, absence) = match observation.security_event {
        Ok(event) => (event, SecurityEventAbsence::Unspecified),
        Err(absence) => (Bytes::new(), absence_to_wire(absence)),
    };
    let size = observation.event_response.len();
    let mut observed = wire::Observed {
        r#ref: Some(wire::ObjectRef {
            uid: observation.uid.to_string(),
            name: observation.name,
        }),
        generation: observation.generation,
        responder_name: observation.responder,
        cluster_id: String::new(),
        spec_hash: Bytes::copy_from_slice(&observation.spec_hash),
        content: None,
    };
    let attempts = [
        (event, absence),
        (Bytes::new(), SecurityEventAbsence::TooLarge),
    ];
    for (security_event_json, absence) in attempts {
        observed.content = Some(observed::Content::Objects(wire::ResponseObjects {
            event_response_json: observation.event_response.clone(),
            security_event_json,
            security_event_absence: absence.into(),
        }));
        let candidate = frame(Frame::Observed(observed.clone()));
        if candidate.encoded_len() <= MAX_FRAME_BYTES {
            return candidate;
        }
    }
    observed.content = Some(observed::Content::Unserveable(wire::Unserveable {
        reason: "TooLarge".to_owned(),
        message: format!(
            "the EventResponse is {size} bytes of JSON; at most {MAX_FRAME_BYTES} bytes can be sent to the hub, so \
             split spec.action.parameters into several EventResponses or make the contents smaller"
        ),
    }));
    frame(Frame::Observed(observed))
}

fn absence_to_wire(absence: Absence) -> SecurityEventAbsence {
    match absence {
        Absence::NotFound => SecurityEventAbsence::NotFound,
        Absence::UidMismatch => SecurityEventAbsence::UidMismatch,
        Absence::NotReadable => SecurityEventAbsence::NotReadable,
    }
}

/// Reads a frame that is not about the session itself; `None` for those that are.
pub(super) fn from_wire(
    frame: session_response::Frame,
    session: u64,
) -> Result<Option<FromHub>, Unreadable> {
    use session_response::Frame;
    Ok(Some(match frame {
        Frame::Accepted(accepted) => FromHub::Accepted {
            uid: uid(&accepted.uid, "Accepted")?,
            spec_hash: accepted
                .spec_hash
                .as_ref()
                .try_into()
                .map_err(|_| Unreadable {
                    frame: "Accepted",
                    field: "spec_hash",
                })?,
        },
        Frame::Refused(refused) => FromHub::Refused(Refusal {
            uid: uid(&refused.uid, "Refused")?,
            reason: refusal_reason(refused.code()),
            message: refused.message,
        }),
        Frame::Status(status) => FromHub::Status(Box::new(status_from_wire(status, session)?)),
        Frame::Credit(credit) => FromHub::Credit(credit.observed),
        Frame::Watching(watching) => FromHub::Watching {
            responses: watching
                .responses
                .into_iter()
                .map(|one| {
                    let known = known_spec(&one.spec_hash, one.name);
                    Ok((uid(&one.uid, "Watching")?, known))
                })
                .collect::<Result<_, _>>()?,
            more: watching.more,
        },
        Frame::Missing(missing) => FromHub::Missing(
            missing
                .refs
                .iter()
                .map(|one| uid(&one.uid, "Missing"))
                .collect::<Result<_, _>>()?,
        ),
        Frame::Welcome(_)
        | Frame::Goodbye(_)
        | Frame::HeartbeatAck(_)
        | Frame::CertificateIssued(_)
        | Frame::RenewalRefused(_)
        | Frame::TrustBundle(_) => return Ok(None),
    }))
}

/// The spec that the hub knows; nothing if it does not matter.
fn known_spec(hash: &[u8], name: String) -> Option<KnownSpec> {
    let print = SpecPrint::of(hash.try_into().ok()?);
    (!name.is_empty()).then_some(KnownSpec { print, name })
}

fn uid(text: &str, frame: &'static str) -> Result<ResponseUid, Unreadable> {
    text.parse().map_err(|_| Unreadable {
        frame,
        field: "uid",
    })
}

fn refusal_reason(code: RefusalCode) -> &'static str {
    match code {
        RefusalCode::Unspecified => "Refused",
        RefusalCode::Invalid => "Invalid",
        RefusalCode::TooLarge => "TooLarge",
        RefusalCode::NotAllowed => "NotAllowed",
        RefusalCode::Conflicting => "Conflicting",
    }
}

fn phase_from_wire(phase: wire::Phase) -> Option<Phase> {
    match phase {
        wire::Phase::Unspecified => None,
        wire::Phase::Pending => Some(Phase::Pending),
        wire::Phase::Running => Some(Phase::Running),
        wire::Phase::Succeeded => Some(Phase::Succeeded),
        wire::Phase::Failed => Some(Phase::Failed),
        wire::Phase::Cancelled => Some(Phase::Cancelled),
    }
}

/// The fields of `status`; what is not set is left out, so that server-side apply removes what we set before.
fn status_from_wire(status: wire::Status, session: u64) -> Result<StatusUpdate, Unreadable> {
    let phase = phase_from_wire(status.phase()).ok_or(Unreadable {
        frame: "Status",
        field: "phase",
    })?;
    let target = status.r#ref.unwrap_or_default();
    if target.name.is_empty() {
        return Err(Unreadable {
            frame: "Status",
            field: "ref.name",
        });
    }
    let mut fields = Map::new();
    fields.insert("phase".to_owned(), phase.as_str().into());
    fields.insert("attempts".to_owned(), status.attempts.into());
    put_time(&mut fields, "startedAt", status.started_at);
    put_time(&mut fields, "lastAttemptAt", status.last_attempt_at);
    put_time(&mut fields, "nextAttemptAt", status.next_attempt_at);
    put_time(&mut fields, "completedAt", status.completed_at);
    put_text(&mut fields, "providerRef", status.provider_ref);
    put_text(&mut fields, "cancelReason", status.cancel_reason);
    if let Some(outcome) = status.outcome {
        let mut parts = Map::new();
        put_text(&mut parts, "type", outcome.r#type);
        put_text(&mut parts, "message", outcome.message);
        fields.insert("outcome".to_owned(), parts.into());
    }
    if let Some(error) = status.error {
        let mut parts = Map::new();
        put_text(&mut parts, "type", error.r#type);
        put_text(&mut parts, "reason", error.reason);
        put_text(&mut parts, "detail", error.detail);
        fields.insert("error".to_owned(), parts.into());
    }
    if !status.evidence.is_empty() {
        fields.insert(
            "evidence".to_owned(),
            status.evidence.into_iter().map(evidence_json).collect(),
        );
    }
    if !status.conditions.is_empty() {
        fields.insert(
            "conditions".to_owned(),
            status.conditions.iter().map(condition_json).collect(),
        );
    }
    Ok(StatusUpdate {
        uid: uid(&target.uid, "Status")?,
        watched: status.watched,
        known_spec: known_spec(&status.watched_spec_hash, target.name.clone()),
        name: target.name,
        session,
        revision: Some(Revision(status.revision)),
        phase,
        fields,
    })
}

fn evidence_json(evidence: wire::Evidence) -> Value {
    let mut parts = Map::new();
    put_text(&mut parts, "mediaType", evidence.media_type);
    put_text(&mut parts, "url", evidence.url);
    put_text(&mut parts, "sha256", evidence.sha256);
    parts.into()
}

fn condition_json(condition: &wire::Condition) -> Value {
    let since = condition
        .last_transition_time
        .and_then(time_from_wire)
        .unwrap_or_default();
    json!({
        "type": condition.r#type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": since.to_string(),
        "observedGeneration": condition.observed_generation,
    })
}

fn put_text(fields: &mut Map<String, Value>, name: &str, text: String) {
    if !text.is_empty() {
        fields.insert(name.to_owned(), text.into());
    }
}

fn put_time(fields: &mut Map<String, Value>, name: &str, time: Option<prost_types::Timestamp>) {
    if let Some(time) = time.and_then(time_from_wire) {
        fields.insert(name.to_owned(), time.to_string().into());
    }
}

fn time_from_wire(time: prost_types::Timestamp) -> Option<Timestamp> {
    Timestamp::new(time.seconds, time.nanos).ok()
}

pub(super) fn time_to_wire(time: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: time.as_second(),
        nanos: time.subsec_nanosecond(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(event_response: usize, security_event: usize) -> ToHub {
        ToHub::Observed(Box::new(Observation {
            uid: "7b1c1c1e-9a55-4c5f-8d6b-0d8c3c1f2a11".parse().unwrap(),
            name: "revoke-1".to_owned(),
            generation: 1,
            responder: "ugallu-gitops-responder".to_owned(),
            spec_hash: [7; 32],
            event_response: vec![b'x'; event_response].into(),
            security_event: Ok(vec![b'y'; security_event].into()),
        }))
    }

    fn content(frame: SessionRequest) -> observed::Content {
        assert!(frame.encoded_len() <= MAX_FRAME_BYTES);
        let Some(Frame::Observed(observed)) = frame.frame else {
            panic!("not observed")
        };
        observed.content.unwrap()
    }

    #[test]
    fn objects_that_fit_travel_together() {
        let observed::Content::Objects(objects) = content(to_wire(observation(1000, 1000))) else {
            panic!()
        };
        assert_eq!(objects.security_event_json.len(), 1000);
        assert_eq!(
            objects.security_event_absence(),
            SecurityEventAbsence::Unspecified
        );
    }

    #[test]
    fn a_security_event_that_does_not_fit_is_left_out() {
        let observed::Content::Objects(objects) = content(to_wire(observation(600_000, 600_000)))
        else {
            panic!()
        };
        assert!(objects.security_event_json.is_empty());
        assert_eq!(
            objects.security_event_absence(),
            SecurityEventAbsence::TooLarge
        );
    }

    #[test]
    fn an_event_response_that_does_not_fit_is_named_with_its_size_and_a_remedy() {
        let observed::Content::Unserveable(why) = content(to_wire(observation(1_500_000, 10)))
        else {
            panic!()
        };
        assert_eq!(why.reason, "TooLarge");
        assert!(
            why.message.contains("1500000") && why.message.contains("1048576"),
            "{}",
            why.message
        );
    }

    #[test]
    fn a_status_has_the_fields_of_the_object_and_leaves_out_what_is_not_set() {
        let at = Some(prost_types::Timestamp {
            seconds: 1_700_000_000,
            nanos: 0,
        });
        let status = wire::Status {
            r#ref: Some(wire::ObjectRef {
                uid: "7b1c1c1e-9a55-4c5f-8d6b-0d8c3c1f2a11".to_owned(),
                name: "revoke-1".to_owned(),
            }),
            revision: 4,
            phase: wire::Phase::Succeeded.into(),
            attempts: 1,
            completed_at: at,
            outcome: Some(wire::Outcome {
                r#type: "ActionTaken".to_owned(),
                message: "opened".to_owned(),
            }),
            provider_ref: "https://forge.example/pull/1".to_owned(),
            conditions: vec![wire::Condition {
                r#type: "Accepted".to_owned(),
                status: "True".to_owned(),
                last_transition_time: at,
                observed_generation: 1,
                ..Default::default()
            }],
            ..Default::default()
        };
        let Ok(Some(FromHub::Status(update))) =
            from_wire(session_response::Frame::Status(status), 1)
        else {
            panic!()
        };
        assert_eq!(update.revision, Some(Revision(4)));
        assert_eq!(
            Value::Object(update.fields),
            json!({
                "phase": "Succeeded", "attempts": 1, "completedAt": "2023-11-14T22:13:20Z",
                "outcome": {"type": "ActionTaken", "message": "opened"},
                "providerRef": "https://forge.example/pull/1",
                "conditions": [{
                    "type": "Accepted", "status": "True", "reason": "", "message": "",
                    "lastTransitionTime": "2023-11-14T22:13:20Z", "observedGeneration": 1,
                }],
            })
        );
    }

    #[test]
    fn a_status_without_a_phase_or_a_name_is_not_taken() {
        let status = wire::Status {
            phase: wire::Phase::Running.into(),
            ..Default::default()
        };
        assert!(from_wire(session_response::Frame::Status(status), 1).is_err());
        assert!(from_wire(session_response::Frame::Status(wire::Status::default()), 1).is_err());
    }
}
