//! An API server of a few lines: `EventResponses` with pages, watch and status, and what else an agent asks for.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::LIMIT;

/// The group's path.
const ROOT: &str = "/apis/security.ugallu.io/v1alpha1";

/// A running API server; clones share it.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) client: kube::Client,
    cluster: Arc<Mutex<Cluster>>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Cluster {
    version: u64,
    objects: BTreeMap<String, Value>,
    security_events: BTreeMap<String, Value>,
    /// Every change as the watch tells it.
    log: Vec<(u64, Value)>,
    /// Status patches, as `name phase`.
    patches: Vec<String>,
    /// Largest page asked for.
    pages: usize,
    /// Answers that the next status patches get instead of being stored.
    troubles: Vec<u16>,
    /// Everything fails.
    down: bool,
    /// Kubernetes Events.
    events: Vec<Value>,
}

impl Api {
    pub(crate) async fn start() -> Self {
        nabu_common::tls::install_crypto_provider();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut config = kube::Config::new(url.parse().unwrap());
        config.default_retry = false;
        let api = Self {
            client: kube::Client::try_from(config).unwrap(),
            cluster: Arc::default(),
            changed: watch::Sender::new(0),
        };
        let router = Router::new().fallback(answer).with_state(api.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        api
    }

    fn lock(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().unwrap()
    }

    fn store(&self, kind: &str, name: &str, edit: impl FnOnce(&mut Value)) -> Value {
        let mut cluster = self.lock();
        cluster.version += 1;
        let version = cluster.version;
        let object = cluster.objects.entry(name.to_owned()).or_default();
        edit(object);
        object["metadata"]["resourceVersion"] = version.to_string().into();
        let object = object.clone();
        cluster
            .log
            .push((version, json!({"type": kind, "object": object})));
        drop(cluster);
        self.changed.send_replace(version);
        object
    }

    /// Creates an EventResponse with the UID `uid-NAME`.
    pub(crate) fn create(&self, name: &str, spec: &Value, status: &Value) {
        self.store("ADDED", name, |object| {
            *object = json!({
                "apiVersion": "security.ugallu.io/v1alpha1", "kind": "EventResponse",
                "metadata": {"name": name, "uid": format!("uid-{name}"), "generation": 1},
                "spec": {"action": {"type": "GitOpsChange"}, "responder": {"name": "ours"}},
                "status": status,
            });
            for (field, value) in spec.as_object().into_iter().flatten() {
                object["spec"][field] = value.clone();
            }
        });
    }

    pub(crate) fn annotate(&self, name: &str, value: u32) {
        self.store("MODIFIED", name, |object| {
            object["metadata"]["annotations"] = json!({"seen": value.to_string()});
        });
    }

    pub(crate) fn delete(&self, name: &str) {
        self.store("DELETED", name, |_| {});
        self.lock().objects.remove(name);
    }

    pub(crate) fn create_security_event(&self, name: &str) {
        let object = json!({"metadata": {"name": name, "uid": format!("uid-{name}")}});
        self.lock().security_events.insert(name.to_owned(), object);
    }

    /// The next status patches get these answers.
    pub(crate) fn trouble(&self, answers: &[u16]) {
        self.lock().troubles = answers.to_vec();
    }

    /// Ends every watch, and answers nothing but errors until it is called again.
    pub(crate) fn set_down(&self, down: bool) {
        self.lock().down = down;
        self.changed.send_modify(|_| {});
    }

    pub(crate) fn status(&self, name: &str) -> Value {
        self.lock().objects[name]["status"].clone()
    }

    pub(crate) fn patches(&self) -> Vec<String> {
        self.lock().patches.clone()
    }

    pub(crate) fn events(&self) -> Vec<Value> {
        self.lock().events.clone()
    }

    /// Waits until something holds.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let wait = async {
            while !holds(self) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LIMIT, wait)
            .await
            .unwrap_or_else(|_| panic!("never: {what}"));
    }
}

async fn answer(
    State(api): State<Api>,
    Query(query): Query<HashMap<String, String>>,
    request: Request,
) -> Response {
    if api.lock().down {
        return failure(503, "");
    }
    let path = request.uri().path().to_owned();
    let parts: Vec<_> = path
        .strip_prefix(ROOT)
        .unwrap_or_default()
        .split('/')
        .skip(1)
        .collect();
    match (request.method(), parts.as_slice()) {
        (&Method::GET, ["eventresponses"]) if query.contains_key("watch") => {
            watch_from(&api, &query)
        }
        (&Method::GET, ["eventresponses"]) => list(&api, &query),
        (&Method::GET, ["eventresponses", name]) => one(api.lock().objects.get(*name), name),
        (&Method::GET, ["securityevents", name]) => {
            one(api.lock().security_events.get(*name), name)
        }
        (&Method::PATCH, ["eventresponses", name, "status"]) => {
            let name = (*name).to_owned();
            let body = axum::body::to_bytes(request.into_body(), 4 << 20)
                .await
                .unwrap();
            patch(&api, &name, &serde_json::from_slice(&body).unwrap())
        }
        (&Method::POST, _) if path.ends_with("/events") => {
            let body = axum::body::to_bytes(request.into_body(), 4 << 20)
                .await
                .unwrap();
            let event: Value = serde_json::from_slice(&body).unwrap();
            api.lock().events.push(event.clone());
            (StatusCode::CREATED, event.to_string()).into_response()
        }
        (&Method::GET, _) if path.starts_with("/openapi/") => schema().to_string().into_response(),
        _ => failure(404, ""),
    }
}

/// Upstream's: it has no `providerRef`.
fn schema() -> Value {
    let fields = [
        "phase",
        "attempts",
        "outcome",
        "error",
        "evidence",
        "conditions",
        "completedAt",
    ];
    let fields: serde_json::Map<_, _> = fields
        .iter()
        .map(|name| ((*name).to_owned(), json!({})))
        .collect();
    json!({"components": {"schemas": {"er": {
        "x-kubernetes-group-version-kind":
            [{"group": "security.ugallu.io", "version": "v1alpha1", "kind": "EventResponse"}],
        "properties": {"status": {"type": "object", "properties": fields}},
    }}}})
}

fn failure(code: u16, name: &str) -> Response {
    let reason = if code == 404 { "NotFound" } else { "" };
    let details = json!({"name": name});
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": "the object has been modified", "details": details,
    });
    (StatusCode::from_u16(code).unwrap(), status.to_string()).into_response()
}

fn one(object: Option<&Value>, name: &str) -> Response {
    object.map_or_else(
        || failure(404, name),
        |object| object.to_string().into_response(),
    )
}

fn list(api: &Api, query: &HashMap<String, String>) -> Response {
    let number = |name: &str| query.get(name).and_then(|text| text.parse::<usize>().ok());
    let (from, limit) = (
        number("continue").unwrap_or(0),
        number("limit").unwrap_or(usize::MAX),
    );
    let mut cluster = api.lock();
    cluster.pages = cluster.pages.max(limit);
    let items: Vec<_> = cluster
        .objects
        .values()
        .skip(from)
        .take(limit)
        .cloned()
        .collect();
    let more = from.saturating_add(limit) < cluster.objects.len();
    let next = if more {
        (from + limit).to_string()
    } else {
        String::new()
    };
    let list = json!({
        "kind": "EventResponseList", "apiVersion": "security.ugallu.io/v1alpha1", "items": items,
        "metadata": {"resourceVersion": cluster.version.to_string(), "continue": next},
    });
    list.to_string().into_response()
}

fn watch_from(api: &Api, query: &HashMap<String, String>) -> Response {
    let seen: u64 = query["resourceVersion"].parse().unwrap();
    let state = (api.clone(), api.changed.subscribe(), seen);
    let lines = futures::stream::unfold(state, |(api, mut changed, seen)| async move {
        loop {
            changed.borrow_and_update();
            {
                let cluster = api.lock();
                if cluster.down {
                    return None;
                }
                let news: Vec<_> = cluster
                    .log
                    .iter()
                    .filter(|(version, _)| *version > seen)
                    .collect();
                if let Some((last, _)) = news.last() {
                    let lines = news
                        .iter()
                        .flat_map(|(_, event)| [event.to_string(), "\n".to_owned()]);
                    let text: String = lines.collect();
                    let last = *last;
                    drop(cluster);
                    return Some((Ok::<_, Infallible>(text), (api, changed, last)));
                }
            }
            changed.changed().await.ok()?;
        }
    });
    Body::from_stream(lines).into_response()
}

fn patch(api: &Api, name: &str, body: &Value) -> Response {
    let trouble = {
        let mut cluster = api.lock();
        let phase = body["status"]["phase"].as_str().unwrap_or_default();
        cluster.patches.push(format!("{name} {phase}"));
        if cluster.troubles.is_empty() {
            None
        } else {
            Some(cluster.troubles.remove(0))
        }
    };
    if let Some(code) = trouble {
        return failure(code, "");
    }
    if body["status"].get("providerRef").is_some() {
        return failure(500, "undeclared");
    }
    match api.lock().objects.get(name) {
        None => return failure(404, name),
        Some(object) if object["metadata"]["uid"] != body["metadata"]["uid"] => {
            return failure(409, "uid");
        }
        Some(_) => {}
    }
    let stored = api.store("MODIFIED", name, |object| {
        object["status"] = body["status"].clone();
    });
    stored.to_string().into_response()
}
