//! Who may say what: a cluster is what its certificate says, and nothing else.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use nabu_common::canonical::spec_hash;
use nabu_common::tls::{ClientTls, TlsFiles};
use nabu_hub::pki::{Authority, Subject};
use nabu_proto::PROTOCOL_VERSION;
use nabu_proto::admin_v1::ListClustersRequest;
use nabu_proto::admin_v1::admin_service_client::AdminServiceClient;
use nabu_proto::agent_v1::agent_service_client::AgentServiceClient;
use nabu_proto::agent_v1::session_request::Frame;
use nabu_proto::agent_v1::session_response::Frame as Answer;
use nabu_proto::agent_v1::{
    GoodbyeReason, Heartbeat, Hello, ObjectRef, Observed, RefusalCode, ResponseObjects,
    SessionRequest, SessionResponse, SnapshotBegin, SnapshotEnd, observed,
};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::{event_response, noop_config};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use crate::bed::small_change;

/// An agent that says whatever a test wants.
pub(crate) struct Liar {
    frames: mpsc::Sender<SessionRequest>,
    answers: Streaming<SessionResponse>,
}

pub(crate) async fn channel(url: String, tls: &Path) -> Result<Channel> {
    nabu_common::tls::install_crypto_provider();
    let tls = ClientTls::load(TlsFiles::in_folder(tls))?;
    let endpoint = Endpoint::from_shared(url)?;
    Ok(endpoint.connect_with_connector(tls.connector(None)).await?)
}

impl Liar {
    pub(crate) async fn connect(hub: &TestHub, certificate: &str, hello: Hello) -> Result<Self> {
        Self::connect_with(hub, &hub.issue_agent(certificate)?, hello).await
    }

    /// The same with the certificate in a folder.
    pub(crate) async fn connect_with(hub: &TestHub, folder: &Path, hello: Hello) -> Result<Self> {
        let channel = channel(hub.agents_url(), folder).await?;
        let (frames, outgoing) = mpsc::channel(16);
        let liar = Self {
            frames,
            answers: AgentServiceClient::new(channel)
                .session(ReceiverStream::new(outgoing))
                .await?
                .into_inner(),
        };
        liar.say(Frame::Hello(hello)).await?;
        Ok(liar)
    }

    pub(crate) async fn say(&self, frame: Frame) -> Result<()> {
        Ok(self
            .frames
            .send(SessionRequest { frame: Some(frame) })
            .await?)
    }

    pub(crate) async fn hear(&mut self) -> Result<Answer> {
        let answer = self.answers.message().await?.context("the stream ended")?;
        answer.frame.context("an empty frame")
    }
}

pub(crate) fn hello(kube_system_uid: &str) -> Hello {
    Hello {
        protocol_version: PROTOCOL_VERSION,
        kube_system_uid: kube_system_uid.to_owned(),
        ..Hello::default()
    }
}

pub(crate) async fn hub() -> Result<TestHub> {
    TestHub::start(
        &[("config.yaml", noop_config("o/r"))],
        HubOptions::default(),
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_names_another_cluster_is_refused_audited_and_served_by_no_forge() -> Result<()>
{
    let hub = hub().await?;
    let mut liar = Liar::connect(&hub, "prod-eu", hello("a")).await?;
    assert!(matches!(liar.hear().await?, Answer::Welcome(_)));
    let spec = event_response("se", "ugallu-gitops-responder", small_change());
    let uid = "00000000-0000-4000-8000-000000000001";
    let object = json!({"metadata": {"name": "er-1", "uid": uid}, "spec": spec});
    liar.say(Frame::Observed(Observed {
        r#ref: Some(ObjectRef {
            uid: uid.to_owned(),
            name: "er-1".to_owned(),
        }),
        cluster_id: "prod-us".to_owned(),
        spec_hash: spec_hash(&spec).to_vec().into(),
        content: Some(observed::Content::Objects(ResponseObjects {
            event_response_json: object.to_string().into(),
            ..ResponseObjects::default()
        })),
        ..Observed::default()
    }))
    .await?;
    let Answer::Refused(refused) = liar.hear().await? else {
        anyhow::bail!("it was not refused")
    };
    assert_eq!(refused.code(), RefusalCode::NotAllowed);
    assert!(refused.message.contains("prod-us"), "{}", refused.message);
    assert_eq!(hub.nabuctl(&["response", "list", "-o", "name"])?, "");
    let attempts = hub.metric("ugallu_gitops_responder_attempts_total{outcome=\"succeeded\"}");
    assert!(attempts.await?.abs() < f64::EPSILON);
    let audited = sqlite(&hub, "SELECT action, actor, detail FROM audit")?;
    assert!(
        audited.contains("FrameRefused|agent/prod-eu|") && audited.contains("prod-us"),
        "{audited}"
    );
    Ok(())
}

/// What a statement finds in the hub's database, as an administrator would look with SQLite's own shell.
pub(crate) fn sqlite(hub: &TestHub, statement: &str) -> Result<String> {
    let output = std::process::Command::new("sqlite3")
        .args(["-cmd", ".timeout 5000"])
        .arg(hub.store_path())
        .arg(statement)
        .output()
        .context("sqlite3 cannot be run")?;
    let failure = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{statement}: {failure}");
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_configured_for_another_cluster_is_turned_away() -> Result<()> {
    let hub = hub().await?;
    let wrong = Hello {
        cluster_id: "prod-us".to_owned(),
        ..hello("a")
    };
    let mut liar = Liar::connect(&hub, "prod-eu", wrong).await?;
    let Answer::Goodbye(goodbye) = liar.hear().await? else {
        anyhow::bail!("it was let in")
    };
    assert_eq!(goodbye.reason(), GoodbyeReason::IdentityMismatch);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_id_stays_bound_to_the_cluster_that_had_it_first() -> Result<()> {
    let hub = hub().await?;
    let mut first = Liar::connect(&hub, "prod-eu", hello("first")).await?;
    assert!(matches!(first.hear().await?, Answer::Welcome(_)));
    let mut second = Liar::connect(&hub, "prod-eu", hello("second")).await?;
    let Answer::Goodbye(goodbye) = second.hear().await? else {
        anyhow::bail!("it was let in")
    };
    assert_eq!(goodbye.reason(), GoodbyeReason::IdentityMismatch);
    assert!(goodbye.message.contains("bound to another cluster"));
    let actions = "SELECT actor, detail FROM audit WHERE action = 'SessionRefused'";
    let audited = sqlite(&hub, actions)?;
    assert!(
        audited.starts_with("agent/prod-eu|") && audited.contains("the kube-system UID second"),
        "{audited}"
    );
    // The first one has noticed nothing.
    first.say(Frame::Heartbeat(Heartbeat::default())).await?;
    assert!(matches!(first.hear().await?, Answer::HeartbeatAck(_)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_session_takes_over_and_the_older_one_is_told() -> Result<()> {
    let hub = hub().await?;
    let mut first = Liar::connect(&hub, "prod-eu", hello("a")).await?;
    assert!(matches!(first.hear().await?, Answer::Welcome(_)));
    let mut second = Liar::connect(&hub, "prod-eu", hello("a")).await?;
    assert!(matches!(second.hear().await?, Answer::Welcome(_)));
    let Answer::Goodbye(goodbye) = first.hear().await? else {
        anyhow::bail!("it was not told")
    };
    assert_eq!(goodbye.reason(), GoodbyeReason::Superseded);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_protocol_version_that_is_not_served_is_turned_away_with_the_remedy() -> Result<()> {
    let hub = hub().await?;
    let future = Hello {
        protocol_version: PROTOCOL_VERSION + 1,
        ..hello("a")
    };
    let mut agent = Liar::connect(&hub, "prod-eu", future).await?;
    let Answer::Goodbye(goodbye) = agent.hear().await? else {
        anyhow::bail!("it was let in")
    };
    assert_eq!(goodbye.reason(), GoodbyeReason::UnsupportedVersion);
    assert!(goodbye.message.contains("upgrade the hub first"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_door_is_for_its_own_certificates() -> Result<()> {
    let hub = hub().await?;
    let agent = hub.issue_agent("prod-eu")?;
    let refused = AdminServiceClient::new(channel(hub.admin_url(), &agent).await?)
        .list_clusters(ListClustersRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied);

    let admin = channel(hub.agents_url(), &hub.admin_tls()).await?;
    let (_frames, outgoing) = mpsc::channel(1);
    let refused = AgentServiceClient::new(admin)
        .session(ReceiverStream::new(outgoing))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_authority_gets_no_connection() -> Result<()> {
    let hub = hub().await?;
    let folder = tempfile::tempdir()?;
    let other = Authority::create(&folder.path().join("pki"), "nabu")?;
    let out = folder.path().join("out");
    other.issue_into(&Subject::cluster(&"prod-eu".parse()?), &out)?;
    // It trusts the hub, but the hub does not trust it.
    std::fs::copy(hub.admin_tls().join("ca.crt"), out.join("ca.crt"))?;
    let refused = async {
        let (frames, outgoing) = mpsc::channel(1);
        let channel = channel(hub.agents_url(), &out).await?;
        frames.send(SessionRequest { frame: None }).await?;
        AgentServiceClient::new(channel)
            .session(ReceiverStream::new(outgoing))
            .await?;
        anyhow::Ok(())
    };
    assert!(refused.await.is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_agent_that_can_watch_what_is_finished_is_told_of_it() -> Result<()> {
    let hub = hub().await?;
    for (cluster, capability) in [("prod-eu", None), ("prod-us", Some("watch-finished"))] {
        let capabilities = capability.into_iter().map(str::to_owned).collect();
        let hello = Hello {
            capabilities,
            ..hello(cluster)
        };
        let mut agent = Liar::connect(&hub, cluster, hello).await?;
        assert!(matches!(agent.hear().await?, Answer::Welcome(_)));
        let (snapshot_id, count) = (1, 0);
        agent
            .say(Frame::SnapshotBegin(SnapshotBegin { snapshot_id }))
            .await?;
        agent
            .say(Frame::SnapshotEnd(SnapshotEnd { snapshot_id, count }))
            .await?;
        // What is not readable is refused, behind whatever the inventory brought.
        agent.say(Frame::Observed(Observed::default())).await?;
        let watching = match agent.hear().await? {
            Answer::Watching(watching) => Some((watching.responses.len(), watching.more)),
            Answer::Refused(_) => None,
            other => anyhow::bail!("{other:?}"),
        };
        assert_eq!(watching, capability.map(|_| (0, false)), "{cluster}");
    }
    Ok(())
}
