//! Owns making an [`Observation`]: reads the EventResponse if it is not at hand, and its SecurityEvent, and reports back.
//!
//! Whether, when and how often is `inventory`'s decision; each reading is one task and delays no other.

use std::time::Duration;

use kube::api::GetParams;
use kube::core::Request;
use kube::{Client, Error, Resource as _};
use nabu_common::ids::ResponseUid;
use serde_json::Value;

use crate::inventory::{Event, Prepare};
use crate::object::{Object, Watched};
use crate::security_event::{self, Found};
use crate::session::{Absence, Observation};

/// An API server that does not answer in this time is taken as failed.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Reads what a [`Prepare`] asks for.
pub async fn prepare(client: &Client, responders: &[String], wanted: Prepare) -> Event {
    let (session, uid, name) = (wanted.session, wanted.uid.clone(), wanted.name.clone());
    let reason = match tokio::time::timeout(TIMEOUT, read(client, responders, wanted)).await {
        Ok(Ok(event)) => return event,
        Ok(Err(error)) => crate::status::chain(&error),
        Err(_) => format!("no answer from the API server within {TIMEOUT:?}"),
    };
    tracing::warn!(%uid, name, reason, "could not read an EventResponse or its SecurityEvent; will try again");
    Event::PrepareFailed { session, uid }
}

async fn read(client: &Client, responders: &[String], wanted: Prepare) -> Result<Event, Error> {
    let Prepare {
        session,
        uid,
        name,
        object,
        without_security_event,
        finished,
    } = wanted;
    let object = match object {
        Some(object) => *object,
        None => match fetch(client, responders, (&uid, &name), finished).await? {
            Ok(object) => object,
            Err(finished) => {
                return Ok(Event::Vanished {
                    session,
                    uid,
                    finished,
                });
            }
        },
    };
    let security_event = match &object.security_event {
        None => Err(Absence::NotFound),
        Some(wanted) => match security_event::fetch(client, wanted).await? {
            Found::Here(json) => Ok(json),
            Found::Absent(absence) => Err(absence),
            Found::NotYet if without_security_event => Err(Absence::NotFound),
            Found::NotYet => return Ok(Event::SecurityEventMissing { session, uid }),
        },
    };
    let observation = Observation {
        uid: object.uid,
        name: object.name,
        generation: object.generation,
        responder: object.responder,
        spec_hash: object.spec_hash,
        event_response: object.json,
        security_event,
    };
    Ok(Event::Prepared {
        session,
        observation: Box::new(observation),
    })
}

/// The object, or (`Err`) whether it is still there and just needs nothing any more.
async fn fetch(
    client: &Client,
    responders: &[String],
    (uid, name): (&ResponseUid, &str),
    finished: bool,
) -> Result<Result<Object, bool>, Error> {
    let Ok(request) = Request::new(Watched::url_path(&(), None)).get(name, &GetParams::default())
    else {
        return Ok(Err(false));
    };
    let watched = match client.request::<Value>(request).await {
        Ok(json) if finished => Watched::whole(json),
        Ok(json) => Watched::from_json(json),
        Err(Error::Api(status)) if status.code == 404 => return Ok(Err(false)),
        Err(error) => return Err(error),
    };
    if watched.uid().as_ref() != Some(uid) {
        return Ok(Err(false));
    }
    if !watched.is_for(responders) {
        return Ok(Err(true));
    }
    Ok(watched.json.as_deref().and_then(Object::read).ok_or(true))
}
