//! A hub that does nothing by itself: the test speaks for it, over real mutual TLS.

use std::net::SocketAddr;
use std::path::Path;

use nabu_common::identity::TrustDomain;
use nabu_common::tls::{IncomingLimits, PeerIdentity, Refusals, ServerTls, incoming};
use nabu_proto::agent_v1::agent_service_server::{AgentService, AgentServiceServer};
use nabu_proto::agent_v1::session_request::Frame as FromAgent;
use nabu_proto::agent_v1::session_response::Frame as ToAgent;
use nabu_proto::agent_v1::{
    Accepted, Evidence, Hello, ObjectRef, Observed, Outcome, Phase, SessionRequest,
    SessionResponse, Status as StatusFrame, Welcome,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::{Ca, LIMIT, loopback};

/// A listening hub.
pub(crate) struct Hub {
    pub(crate) address: SocketAddr,
    sessions: mpsc::Receiver<Session>,
}

/// One session, from the hub's side.
pub(crate) struct Session {
    pub(crate) peer: PeerIdentity,
    frames: Streaming<SessionRequest>,
    answers: mpsc::Sender<Result<SessionResponse, Status>>,
}

struct Service(mpsc::Sender<Session>);

#[tonic::async_trait]
impl AgentService for Service {
    type SessionStream = ReceiverStream<Result<SessionResponse, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let peer = request.extensions().get::<PeerIdentity>().cloned().unwrap();
        peer.heard.note();
        let (answers, outgoing) = mpsc::channel(4096);
        let frames = request.into_inner();
        let session = Session {
            peer,
            frames,
            answers,
        };
        self.0.send(session).await.unwrap();
        Ok(Response::new(ReceiverStream::new(outgoing)))
    }
}

impl Hub {
    pub(crate) async fn start(ca: &Ca, folder: &Path, shutdown: &CancellationToken) -> Self {
        let files = ca.issue(&folder.join("hub"), loopback());
        let domain: TrustDomain = "nabu".parse().unwrap();
        let tls = ServerTls::load(files, domain).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (opened, sessions) = mpsc::channel(8);
        let limits = IncomingLimits::default();
        let refusals = Refusals::default();
        let connections = incoming(listener, tls, limits, refusals, shutdown.clone());
        let server = tonic::transport::Server::builder()
            .add_service(AgentServiceServer::new(Service(opened)))
            .serve_with_incoming(connections);
        let shutdown = shutdown.clone();
        tokio::spawn(async move { shutdown.run_until_cancelled(server).await });
        Self { address, sessions }
    }

    /// The next session that an agent opens, after its Hello, before our Welcome.
    pub(crate) async fn next_session(&mut self) -> (Session, Hello) {
        let session = tokio::time::timeout(LIMIT, self.sessions.recv()).await;
        let mut session = session.expect("no session in time").unwrap();
        match session.frame().await {
            FromAgent::Hello(hello) => (session, hello),
            other => panic!("the first frame is {other:?}"),
        }
    }

    /// The next session, with our Welcome.
    pub(crate) async fn welcome(&mut self) -> Session {
        let (mut session, _) = self.next_session().await;
        session.welcome().await;
        session
    }
}

impl Session {
    pub(crate) async fn welcome(&mut self) {
        self.send(ToAgent::Welcome(Welcome {
            session_epoch: 1,
            credit: 100_000,
            protocol_version: 1,
            ..Welcome::default()
        }))
        .await;
    }

    pub(crate) async fn send(&self, frame: ToAgent) {
        let frame = SessionResponse { frame: Some(frame) };
        self.answers.send(Ok(frame)).await.unwrap();
    }

    /// The next frame.
    pub(crate) async fn frame(&mut self) -> FromAgent {
        let frame = tokio::time::timeout(LIMIT, self.frames.message()).await;
        frame
            .expect("no frame in time")
            .unwrap()
            .expect("the stream ended")
            .frame
            .unwrap()
    }

    /// Whether the agent ends its half of the stream in time.
    pub(crate) async fn ends(&mut self) -> bool {
        let end = async { while let Ok(Some(_)) = self.frames.message().await {} };
        tokio::time::timeout(LIMIT, end).await.is_ok()
    }

    /// The names of the inventory that comes next.
    pub(crate) async fn inventory(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        loop {
            match self.frame().await {
                FromAgent::SnapshotEnd(end) => {
                    assert_eq!(end.count, names.len() as u64);
                    names.sort();
                    return names;
                }
                FromAgent::Observed(observed) => names.push(observed.r#ref.unwrap().name),
                FromAgent::SnapshotBegin(_) => {}
                other => panic!("{other:?} within an inventory"),
            }
        }
    }

    /// The next frame, which must be the state of an object; it is accepted.
    pub(crate) async fn observed(&mut self) -> Observed {
        loop {
            match self.frame().await {
                FromAgent::Observed(observed) => {
                    self.send(ToAgent::Accepted(Accepted {
                        uid: observed.r#ref.as_ref().unwrap().uid.clone(),
                        spec_hash: observed.spec_hash.clone(),
                    }))
                    .await;
                    return observed;
                }
                FromAgent::SnapshotBegin(_) | FromAgent::SnapshotEnd(_) => {}
                other => panic!("{other:?} instead of Observed"),
            }
        }
    }

    /// The next acknowledgement: UID and revision.
    pub(crate) async fn applied(&mut self) -> (String, u64) {
        loop {
            match self.frame().await {
                FromAgent::Applied(applied) => return (applied.uid, applied.revision),
                FromAgent::SnapshotBegin(_) | FromAgent::SnapshotEnd(_) => {}
                other => panic!("{other:?} instead of Applied"),
            }
        }
    }

    /// The UID of the next object that is said to be gone.
    pub(crate) async fn deleted(&mut self) -> String {
        loop {
            match self.frame().await {
                FromAgent::Deleted(deleted) => return deleted.r#ref.unwrap().uid,
                FromAgent::SnapshotBegin(_) | FromAgent::SnapshotEnd(_) => {}
                other => panic!("{other:?} instead of Deleted"),
            }
        }
    }

    /// Whether nothing but heartbeats and inventories comes for a while.
    pub(crate) async fn is_silent(&mut self) -> bool {
        let wait = std::time::Duration::from_millis(300);
        loop {
            match tokio::time::timeout(wait, self.frame()).await {
                Err(_) => return true,
                Ok(FromAgent::SnapshotBegin(_) | FromAgent::SnapshotEnd(_)) => {}
                Ok(_) => return false,
            }
        }
    }

    pub(crate) async fn status(&self, name: &str, revision: u64, phase: Phase) {
        self.send(status(name, revision, phase)).await;
    }
}

/// A status as the hub sends it; `uid-NAME` is the UID of every object of these tests.
pub(crate) fn status(name: &str, revision: u64, phase: Phase) -> ToAgent {
    let succeeded = phase == Phase::Succeeded;
    let url = format!("https://forge.example/pulls/{name}");
    ToAgent::Status(StatusFrame {
        r#ref: Some(ObjectRef {
            uid: format!("uid-{name}"),
            name: name.to_owned(),
        }),
        revision,
        phase: phase.into(),
        attempts: 1,
        outcome: succeeded.then(|| Outcome {
            r#type: "ActionTaken".to_owned(),
            message: "pull request opened".to_owned(),
        }),
        evidence: succeeded
            .then(|| Evidence {
                media_type: "application/vnd.ugallu.gitops-change+json".to_owned(),
                url: url.clone(),
                sha256: String::new(),
            })
            .into_iter()
            .collect(),
        provider_ref: if succeeded { url } else { String::new() },
        ..StatusFrame::default()
    })
}
