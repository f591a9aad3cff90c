//! A hub, and an agent that observes what a test wants.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nabu_common::canonical::spec_hash;
use nabu_common::tls::{ClientTls, TlsFiles};
use nabu_proto::PROTOCOL_VERSION;
use nabu_proto::agent_v1::agent_service_client::AgentServiceClient;
use nabu_proto::agent_v1::session_request::Frame;
use nabu_proto::agent_v1::session_response::Frame as Answer;
use nabu_proto::agent_v1::{
    Applied, Hello, ObjectRef, Observed, ResponseObjects, SessionRequest, SessionResponse, Status,
    observed,
};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::{event_response, security_event};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

/// How long a test waits for what should come soon.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A hub with this configuration and these arguments.
pub(crate) async fn hub(config: String, arguments: &[&str]) -> Result<TestHub> {
    let options = HubOptions {
        arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
        ..HubOptions::default()
    };
    TestHub::start(&[("config.yaml", config)], options).await
}

/// A connection with the certificate in a folder.
pub(crate) async fn channel(url: String, tls: &Path) -> Result<Channel> {
    nabu_common::tls::install_crypto_provider();
    let tls = ClientTls::load(TlsFiles::in_folder(tls))?;
    let endpoint = Endpoint::from_shared(url)?;
    Ok(endpoint.connect_with_connector(tls.connector(None)).await?)
}

/// The agent of a cluster, as far as a hub can tell.
pub(crate) struct Agent {
    frames: mpsc::Sender<SessionRequest>,
    answers: Streaming<SessionResponse>,
}

impl Agent {
    /// Opens a session.
    pub(crate) async fn connect(hub: &TestHub, cluster: &str) -> Result<Self> {
        let hello = Hello {
            protocol_version: PROTOCOL_VERSION,
            kube_system_uid: format!("kube-system-of-{cluster}"),
            agent_version: "0.1.0-test".to_owned(),
            kubernetes_version: "v1.35.4".to_owned(),
            ..Hello::default()
        };
        Self::connect_with(hub, cluster, hello).await
    }

    /// Opens a session with this Hello.
    pub(crate) async fn connect_with(hub: &TestHub, cluster: &str, hello: Hello) -> Result<Self> {
        let channel = channel(hub.agents_url(), &hub.issue_agent(cluster)?).await?;
        let (frames, outgoing) = mpsc::channel(64);
        let answers = AgentServiceClient::new(channel)
            .session(ReceiverStream::new(outgoing))
            .await?
            .into_inner();
        let mut agent = Self { frames, answers };
        agent.say(Frame::Hello(hello)).await?;
        let welcome = agent.hear().await?;
        anyhow::ensure!(matches!(welcome, Answer::Welcome(_)), "{welcome:?}");
        Ok(agent)
    }

    /// Says something.
    pub(crate) async fn say(&self, frame: Frame) -> Result<()> {
        let request = SessionRequest { frame: Some(frame) };
        Ok(self.frames.send(request).await?)
    }

    /// The next frame of the hub.
    pub(crate) async fn hear(&mut self) -> Result<Answer> {
        let heard = tokio::time::timeout(LIMIT, self.answers.message()).await;
        let answer = heard.context("the hub says nothing")??;
        answer
            .context("the session ended")?
            .frame
            .context("an empty frame")
    }

    /// Observes an EventResponse with these parameters.
    pub(crate) async fn observe(&self, number: u32, parameters: Value) -> Result<String> {
        let mut spec = event_response(
            &format!("se-{number}"),
            "ugallu-gitops-responder",
            parameters,
        );
        spec["retryPolicy"] = json!({"initialDelay": "1h", "maxDelay": "1h", "maxAttempts": 5});
        let uid = uid(number);
        let name = format!("er-{number}");
        let object = json!({
            "apiVersion": "security.ugallu.io/v1alpha1",
            "kind": "EventResponse",
            "metadata": {"name": name, "uid": uid, "generation": 1},
            "spec": spec,
        });
        let event = json!({
            "metadata": {"name": format!("se-{number}")},
            "spec": security_event("ClusterAdminGranted", "evil-binding"),
        });
        self.say(Frame::Observed(Observed {
            r#ref: Some(ObjectRef {
                uid: uid.clone(),
                name,
            }),
            spec_hash: spec_hash(&spec).to_vec().into(),
            generation: 1,
            content: Some(observed::Content::Objects(ResponseObjects {
                event_response_json: object.to_string().into(),
                security_event_json: event.to_string().into(),
                ..ResponseObjects::default()
            })),
            ..Observed::default()
        }))
        .await?;
        Ok(uid)
    }

    /// Says that a revision of the status is stored.
    pub(crate) async fn applied(&self, uid: &str, revision: u64) -> Result<()> {
        self.say(Frame::Applied(Applied {
            uid: uid.to_owned(),
            revision,
        }))
        .await
    }

    /// Waits for a status of this UID for which `wanted` holds.
    pub(crate) async fn status(
        &mut self,
        uid: &str,
        wanted: impl Fn(&Status) -> bool,
    ) -> Result<Status> {
        loop {
            if let Answer::Status(status) = self.hear().await?
                && status.r#ref.as_ref().is_some_and(|about| about.uid == uid)
                && wanted(&status)
            {
                return Ok(status);
            }
        }
    }
}

/// The UID of the EventResponse of this number.
pub(crate) fn uid(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}
