//! What the writer runs inside its transaction.

use std::sync::Arc;

use jiff::Timestamp;
use nabu_common::ids::{ClusterId, ResponseKey};
use sqlx::SqliteConnection;

use super::rows::{
    column, content_to_json, observation, progress, signed, time, to_json, unsigned,
};
use super::writer::OrFailed as _;
use crate::execute::gate::Gate;
use crate::execute::lanes::LaneId;
use crate::plan::{progress as transitions, update};
use crate::response::{Observation, Progress, Response};
use crate::store::{
    Acknowledgement, AttemptChange, AttemptResult, AuditEvent, Observed, Registration, RoutedTo,
    SessionFacts, StoreError, Transition,
};

pub(super) async fn open_session(
    connection: &mut SqliteConnection,
    facts: SessionFacts,
    now: Timestamp,
) -> Result<Registration, StoreError> {
    let names = to_json(&facts.responder_names)?;
    let opened = sqlx::query(
        "INSERT INTO clusters (cluster, name, kube_system_uid, kubernetes_version, agent_version, responder_names,
            registered_at, last_seen_at, epoch)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, 1)
        ON CONFLICT (cluster) DO UPDATE SET name = ?2, kubernetes_version = ?4, agent_version = ?5,
            responder_names = ?6, last_seen_at = ?7, epoch = epoch + 1, kube_system_uid = ?3
            WHERE kube_system_uid IN (?3, '')
        RETURNING epoch",
    )
    .bind(facts.cluster.as_str())
    .bind(&facts.cluster_name)
    .bind(&facts.kube_system_uid)
    .bind(&facts.kubernetes_version)
    .bind(&facts.agent_version)
    .bind(names)
    .bind(now.as_microsecond())
    .fetch_optional(&mut *connection)
    .await
    .or_failed("open a session")?;
    if let Some(row) = opened {
        return Ok(Registration::Opened {
            epoch: unsigned(column(&row, "epoch")?),
        });
    }
    let row = sqlx::query("SELECT kube_system_uid FROM clusters WHERE cluster = ?1")
        .bind(facts.cluster.as_str())
        .fetch_one(connection)
        .await
        .or_failed("read a cluster")?;
    Ok(Registration::BoundElsewhere {
        kube_system_uid: column(&row, "kube_system_uid")?,
    })
}

pub(super) async fn touch_cluster(
    connection: &mut SqliteConnection,
    cluster: ClusterId,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE clusters SET last_seen_at = max(last_seen_at, ?2) WHERE cluster = ?1")
        .bind(cluster.as_str())
        .bind(now.as_microsecond())
        .execute(connection)
        .await
        .or_failed("note that a cluster was heard from")?;
    Ok(())
}

pub(super) async fn observe(
    connection: &mut SqliteConnection,
    observations: Vec<Observation>,
    now: Timestamp,
) -> Result<Vec<Observed>, StoreError> {
    let mut results = Vec::with_capacity(observations.len());
    for observation in observations {
        results.push(observe_one(connection, observation, now).await?);
    }
    Ok(results)
}

async fn observe_one(
    connection: &mut SqliteConnection,
    observation: Observation,
    now: Timestamp,
) -> Result<Observed, StoreError> {
    let progress = transitions::accept(&observation, now);
    let inserted = sqlx::query(
        "INSERT INTO responses (cluster, uid, name, generation, responder, spec_hash, observed_at, phase, revision,
            acknowledged_revision, deleted, progress)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, 0, ?10)
        ON CONFLICT DO NOTHING RETURNING id",
    )
    .bind(observation.key.cluster.as_str())
    .bind(observation.key.uid.as_str())
    .bind(&observation.name)
    .bind(observation.generation)
    .bind(&observation.responder)
    .bind(&observation.spec_hash[..])
    .bind(now.as_microsecond())
    .bind(progress.phase.as_str())
    .bind(signed(progress.revision.0))
    .bind(to_json(&progress)?)
    .fetch_optional(&mut *connection)
    .await
    .or_failed("store an EventResponse")?;
    let Some(row) = inserted else {
        return observe_known(connection, observation, now).await;
    };
    sqlx::query("INSERT INTO response_objects (response, content) VALUES (?1, ?2)")
        .bind(column::<i64>(&row, "id")?)
        .bind(content_to_json(&observation.content)?)
        .execute(connection)
        .await
        .or_failed("store the objects of an EventResponse")?;
    let response = Arc::new(Response {
        observation,
        observed_at: now,
        progress,
    });
    Ok(Observed::Stored {
        response,
        changed: true,
    })
}

async fn observe_known(
    connection: &mut SqliteConnection,
    seen: Observation,
    now: Timestamp,
) -> Result<Observed, StoreError> {
    let row = sqlx::query(
        "SELECT r.*, o.content, i.intent FROM responses r
        JOIN response_objects o ON o.response = r.id LEFT JOIN intents i ON i.response = r.id
        WHERE r.cluster = ?1 AND r.uid = ?2",
    )
    .bind(seen.key.cluster.as_str())
    .bind(seen.key.uid.as_str())
    .fetch_one(&mut *connection)
    .await
    .or_failed("read a response")?;
    let (known, observed_at) = (observation(&row)?, time(&row, "observed_at")?);
    if known.name != seen.name {
        return Ok(Observed::NameMismatch { known: known.name });
    }
    let before = progress(&row)?;
    let mut after = before.clone();
    transitions::observe_again(&mut after, &seen, now);
    let taken = update::observe(&mut after, &known, &seen, now);
    let id = column::<i64>(&row, "id")?;
    if let Some(taken) = &taken {
        replace_observation(connection, id, taken).await?;
    }
    if after != before {
        store_intent(connection, id, &before, &after).await?;
        update_progress(connection, id, &after, None).await?;
    }
    let observation = taken.unwrap_or(known);
    let changed = after != before;
    Ok(Observed::Stored {
        response: Arc::new(Response {
            observation,
            observed_at,
            progress: after,
        }),
        changed,
    })
}

async fn replace_observation(
    connection: &mut SqliteConnection,
    id: i64,
    seen: &Observation,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE responses SET generation = ?2, responder = ?3, spec_hash = ?4 WHERE id = ?1",
    )
    .bind(id)
    .bind(seen.generation)
    .bind(&seen.responder)
    .bind(&seen.spec_hash[..])
    .execute(&mut *connection)
    .await
    .or_failed("store an EventResponse")?;
    sqlx::query("UPDATE response_objects SET content = ?2 WHERE response = ?1")
        .bind(id)
        .bind(content_to_json(&seen.content)?)
        .execute(connection)
        .await
        .or_failed("store the objects of an EventResponse")?;
    Ok(())
}

async fn update_progress(
    connection: &mut SqliteConnection,
    id: i64,
    progress: &Progress,
    followed: Option<bool>,
) -> Result<(), StoreError> {
    let intent = progress.intent.as_ref().filter(|_| followed == Some(true));
    let branch = intent.map(|intent| match &intent.group {
        Some(group) if progress.shared => group.branch.as_str(),
        _ => intent.branch.as_str(),
    });
    sqlx::query(
        "UPDATE responses SET phase = ?2, revision = ?3, deleted = ?4, progress = ?5, followed = ifnull(?6, followed),
            follow_up = ?7, watched = ?8, followed_branch = ifnull(?9, followed_branch) WHERE id = ?1",
    )
    .bind(id)
    .bind(progress.phase.as_str())
    .bind(signed(progress.revision.0))
    .bind(progress.deleted)
    .bind(to_json(progress)?)
    .bind(followed)
    .bind(progress.follow_up.is_some())
    .bind(progress.watched && !progress.deleted)
    .bind(branch)
    .execute(connection)
    .await
    .or_failed("store the progress of a response")?;
    Ok(())
}

/// Stores the intent of a response if it is another.
async fn store_intent(
    connection: &mut SqliteConnection,
    id: i64,
    before: &Progress,
    after: &Progress,
) -> Result<(), StoreError> {
    if before.intent == after.intent {
        return Ok(());
    }
    let Some(intent) = &after.intent else {
        sqlx::query("DELETE FROM intents WHERE response = ?1")
            .bind(id)
            .execute(connection)
            .await
            .or_failed("forget the intent of a response")?;
        return Ok(());
    };
    let routed = RoutedTo::of(intent);
    sqlx::query(
        "INSERT INTO intents (response, route, provider, repository, intent, group_branch)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (response) DO UPDATE SET route = ?2, provider = ?3, repository = ?4, intent = ?5, group_branch = ?6",
    )
    .bind(id)
    .bind(routed.route)
    .bind(routed.provider.as_str())
    .bind(routed.repository)
    .bind(to_json(intent)?)
    .bind(intent.group.as_ref().map(|group| group.branch.as_str()))
    .execute(connection)
    .await
    .or_failed("store the intent of a response")?;
    Ok(())
}

pub(super) async fn transition(
    connection: &mut SqliteConnection,
    key: ResponseKey,
    transition: Transition,
) -> Result<Option<Progress>, StoreError> {
    let row = sqlx::query(
        "SELECT r.id, r.progress, r.acknowledged_revision, i.intent FROM responses r
        LEFT JOIN intents i ON i.response = r.id WHERE r.cluster = ?1 AND r.uid = ?2",
    )
    .bind(key.cluster.as_str())
    .bind(key.uid.as_str())
    .fetch_optional(&mut *connection)
    .await
    .or_failed("read a response")?;
    let Some(row) = row else { return Ok(None) };
    let id = column::<i64>(&row, "id")?;
    let before = progress(&row)?;
    let mut after = before.clone();
    let side = transition(&mut after);
    if after != before {
        store_intent(connection, id, &before, &after).await?;
        let followed = transitions::is_followed(&after);
        update_progress(connection, id, &after, Some(followed)).await?;
    }
    change_attempts(connection, id, before.attempt_open, side.attempts).await?;
    for event in side.audit {
        append(
            connection,
            Some(key.cluster.as_str()),
            Some(key.uid.as_str()),
            event,
        )
        .await?;
    }
    Ok(Some(after))
}

/// `open`: an attempt was open before; one that begins now shows that it was interrupted.
async fn change_attempts(
    connection: &mut SqliteConnection,
    id: i64,
    open: bool,
    changes: Vec<AttemptChange>,
) -> Result<(), StoreError> {
    let mut open = open;
    let mut changes = changes.into_iter().peekable();
    while let Some(change) = changes.next() {
        match change {
            AttemptChange::Begun { at } => {
                if open {
                    end_attempt(connection, id, at, AttemptResult::Interrupted, None, None).await?;
                }
                let ended = changes.next_if(|next| matches!(next, AttemptChange::Ended { .. }));
                open = ended.is_none();
                begin_attempt(connection, id, at, ended).await?;
            }
            AttemptChange::Ended {
                at,
                result,
                error,
                requests,
            } => {
                let error = error.as_ref().map(to_json).transpose()?;
                end_attempt(connection, id, at, result, error, Some(requests)).await?;
                open = false;
            }
        }
    }
    Ok(())
}

/// A new row; with its end, if that is known already.
async fn begin_attempt(
    connection: &mut SqliteConnection,
    id: i64,
    begun_at: Timestamp,
    ended: Option<AttemptChange>,
) -> Result<(), StoreError> {
    let (ended_at, word, error, requests) = match ended {
        Some(AttemptChange::Ended {
            at,
            result,
            error,
            requests,
        }) => {
            let error = error.as_ref().map(to_json).transpose()?;
            (
                Some(at.as_microsecond()),
                Some(result.as_str()),
                error,
                requests,
            )
        }
        _ => (None, None, None, 0),
    };
    sqlx::query(
        "INSERT INTO attempts (response, number, started_at, ended_at, result, error, requests)
        SELECT ?1, coalesce(max(number), 0) + 1, ?2, ?3, ?4, ?5, ?6 FROM attempts WHERE response = ?1",
    )
    .bind(id)
    .bind(begun_at.as_microsecond())
    .bind(ended_at)
    .bind(word)
    .bind(error)
    .bind(requests)
    .execute(connection)
    .await
    .or_failed("begin an attempt")?;
    Ok(())
}

async fn end_attempt(
    connection: &mut SqliteConnection,
    id: i64,
    at: Timestamp,
    result: AttemptResult,
    error: Option<String>,
    requests: Option<u32>,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE attempts SET ended_at = ?2, result = ?3, error = ?4, requests = coalesce(?5, requests)
        WHERE response = ?1 AND ended_at IS NULL",
    )
    .bind(id)
    .bind(at.as_microsecond())
    .bind(result.as_str())
    .bind(error)
    .bind(requests)
    .execute(connection)
    .await
    .or_failed("end an attempt")?;
    Ok(())
}

pub(super) async fn acknowledge(
    connection: &mut SqliteConnection,
    cluster: ClusterId,
    acks: Vec<Acknowledgement>,
    now: Timestamp,
) -> Result<(), StoreError> {
    for ack in acks {
        // Nobody can have stored a revision that does not exist yet.
        let noted = sqlx::query(
            "UPDATE responses SET acknowledged_revision = min(?3, revision), acknowledged_at = ?4
            WHERE cluster = ?1 AND uid = ?2 AND acknowledged_revision < min(?3, revision)
            RETURNING revision",
        )
        .bind(cluster.as_str())
        .bind(ack.uid.as_str())
        .bind(signed(ack.revision.0))
        .bind(now.as_microsecond())
        .fetch_optional(&mut *connection)
        .await
        .or_failed("note an acknowledgement")?;
        // Whoever says again and again what is known, or speaks of what does not exist, leaves no line each time.
        let Some(noted) = noted else { continue };
        let newest = unsigned(column(&noted, "revision")?);
        let said = ack.revision.0;
        let future = (said > newest).then(|| {
            let detail = format!("revision {said} was acknowledged, and there are {newest}");
            ("RevisionUnknown", detail)
        });
        let refused = ack.refusal.map(|refusal| {
            let detail = format!("revision {said}: {refusal}");
            ("StatusRefused", detail)
        });
        for (action, detail) in future.into_iter().chain(refused) {
            let event = AuditEvent {
                at: now,
                actor: format!("agent/{cluster}"),
                action: action.to_owned(),
                detail,
            };
            append(
                connection,
                Some(cluster.as_str()),
                Some(ack.uid.as_str()),
                event,
            )
            .await?;
        }
    }
    Ok(())
}

pub(super) async fn audit(
    connection: &mut SqliteConnection,
    cluster: Option<ClusterId>,
    event: AuditEvent,
) -> Result<(), StoreError> {
    append(
        connection,
        cluster.as_ref().map(ClusterId::as_str),
        None,
        event,
    )
    .await
}

async fn append(
    connection: &mut SqliteConnection,
    cluster: Option<&str>,
    uid: Option<&str>,
    event: AuditEvent,
) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO audit (at, cluster, uid, actor, action, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")
        .bind(event.at.as_microsecond())
        .bind(cluster)
        .bind(uid)
        .bind(event.actor)
        .bind(event.action)
        .bind(event.detail)
        .execute(connection)
        .await
        .or_failed("append to the audit log")?;
    Ok(())
}

pub(super) async fn put_gates(
    connection: &mut SqliteConnection,
    gates: Vec<(LaneId, Gate)>,
) -> Result<(), StoreError> {
    for (lane, gate) in gates {
        sqlx::query(
            "INSERT INTO gates (lane, state) VALUES (?1, ?2) ON CONFLICT (lane) DO UPDATE SET state = ?2",
        )
        .bind(to_json(&lane)?)
        .bind(to_json(&gate)?)
        .execute(&mut *connection)
        .await
        .or_failed("store the limits of a forge")?;
    }
    Ok(())
}
