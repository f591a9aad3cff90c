//! What becomes of sessions when their authority goes, and of certificates that the hub has never made.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use nabu_hub::authority::seal::SealingKey;
use nabu_hub::pki::Authority;
use nabu_hub::pki::credentials::pem;
use nabu_proto::agent_v1::agent_service_client::AgentServiceClient;
use nabu_proto::agent_v1::session_request::Frame;
use nabu_proto::agent_v1::session_response::Frame as Answer;
use nabu_proto::agent_v1::{
    GoodbyeReason, Heartbeat, RenewCertificate, SessionRequest, SessionResponse,
};
use nabu_tests::agent::TestAgent;
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::{event_response, noop_config};
use nabu_tests::wait::eventually;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use crate::bed::{LIMIT, eu, small_change, unique};
use crate::hostile::until;
use crate::identity::{Liar, channel, hello, sqlite};
use crate::refusals::{certificate_into, enrol, say_hello, uri};

async fn certifying() -> Result<TestHub> {
    let documents = [("config.yaml", noop_config("o/r"))];
    TestHub::start(&documents, HubOptions::certifying(&[])).await
}

/// What somebody can make who has stolen the key of the built-in authority.
fn forge(hub: &TestHub, name: &str, folder: &Path) -> Result<()> {
    let query = "SELECT pin || ' ' || sealing_key_id || ' ' || hex(certificate) || ' ' || hex(sealed_key) FROM authorities";
    let row = sqlite(hub, query)?;
    let [pin, id, certificate, sealed] = row.split_whitespace().collect::<Vec<_>>()[..] else {
        anyhow::bail!("{row}")
    };
    let sealing = SealingKey::from_file(&hub.dir().join("sealing.key"))?;
    let key = KeyPair::try_from(sealing.open(pin, id, &hex::decode(sealed)?)?)?;
    let authority = CertificateDer::from(hex::decode(certificate)?);
    let issuer = Issuer::from_ca_cert_der(&authority, key)?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.subject_alt_names = vec![uri(&format!("spiffe://nabu/{name}"))?];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    let made = params.signed_by(&key, &issuer)?;
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("ca.crt"), pem(std::slice::from_ref(&authority)))?;
    std::fs::write(folder.join("tls.crt"), made.pem())?;
    Ok(std::fs::write(folder.join("tls.key"), key.serialize_pem())?)
}

async fn ended_as_outdated(liar: &mut Liar) -> Result<()> {
    let goodbye = until(liar, |answer| match answer {
        Answer::Goodbye(goodbye) => Some(goodbye),
        _ => None,
    });
    let goodbye = tokio::time::timeout(LIMIT, goodbye).await??;
    ensure!(
        goodbye.reason() == GoodbyeReason::CertificateOutdated,
        "{goodbye:?}"
    );
    ensure!(
        goodbye.message.contains("not trusted any more"),
        "{goodbye:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_certificate_is_never_renewed_and_its_session_ends_with_the_authority()
-> Result<()> {
    let hub = certifying().await?;
    let folder = hub.dir().join("forged");
    forge(&hub, "cluster/prod-eu", &folder)?;
    let mut liar = Liar::connect_with(&hub, &folder, hello("a")).await?;
    ensure!(matches!(liar.hear().await?, Answer::Welcome(_)));
    let key = KeyPair::generate()?;
    let csr = CertificateParams::new(Vec::new())?.serialize_request(&key)?;
    let csr_der = csr.der().to_vec().into();
    liar.say(Frame::RenewCertificate(RenewCertificate { csr_der }))
        .await?;
    let refused = until(&mut liar, |answer| match answer {
        Answer::RenewalRefused(refused) => Some(refused.message),
        Answer::CertificateIssued(_) => Some("it was renewed".to_owned()),
        _ => None,
    });
    let refused = refused.await?;
    ensure!(
        refused.contains("has not made the certificate"),
        "{refused}"
    );

    // Somebody with the stolen key makes an administrator too.
    let admin = hub.dir().join("forged-admin");
    forge(&hub, "admin/evil", &admin)?;
    let channel = channel(hub.admin_url(), &admin).await?;
    let mut evil = nabu_proto::admin_v1::admin_service_client::AdminServiceClient::new(channel);
    let request = nabu_proto::admin_v1::ListClustersRequest::default();
    evil.list_clusters(request.clone()).await?;

    hub.nabuctl(&["ca", "rotate", "start"])?;
    let added = hub.add_cluster("prod-us", &[])?;
    let honest = enrol(&hub, &added, "prod-us").await?;
    let (answer, frames, mut answers) = say_hello(&hub, &honest).await?;
    ensure!(matches!(answer, Answer::Welcome(_)), "{answer:?}");
    hub.nabuctl(&["ca", "rotate", "finish", "--force"])?;
    ended_as_outdated(&mut liar).await?;
    let refused = evil.list_clusters(request).await.unwrap_err();
    ensure!(refused.code() == tonic::Code::PermissionDenied, "{refused}");
    ensure!(refused.message().contains("not trusted"), "{refused}");

    let beat = Some(Frame::Heartbeat(Heartbeat::default()));
    frames.send(SessionRequest { frame: beat }).await?;
    loop {
        let answer = answers.message().await?.context("it ended as well")?;
        match answer.frame {
            Some(Answer::HeartbeatAck(_)) => return Ok(()),
            Some(Answer::Goodbye(goodbye)) => anyhow::bail!("it ended as well: {goodbye:?}"),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_from_files_is_replaced_without_a_restart() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    Authority::create(&folder.path().join("ca"), "nabu")?;
    Authority::create(&folder.path().join("next"), "nabu")?;
    let (cert, key, socket) = (path("ca/ca.crt"), path("ca/ca.key"), path("admin.sock"));
    let arguments = [
        "--ca-cert-file",
        &cert,
        "--ca-key-file",
        &key,
        "--server-name",
        "127.0.0.1",
        "--admin-socket",
        &socket,
    ];
    let options = HubOptions {
        arguments: arguments.map(str::to_owned).to_vec(),
        ..HubOptions::default()
    };
    let hub = TestHub::start(&[("config.yaml", noop_config("o/r"))], options).await?;
    let at_socket = |arguments: &[&str]| -> Result<Value> {
        let printed = hub.nabuctl_at(
            &format!("unix:{socket}"),
            &[&["-o", "json"], arguments].concat(),
        )?;
        Ok(serde_json::from_str(&printed)?)
    };
    let url = hub.agents_url();
    let add = |cluster: &str| at_socket(&["cluster", "add", cluster, "--agents-url", &url]);
    let old = enrol(&hub, &add("prod-eu")?, "prod-eu").await?;
    let (answer, frames, mut answers) = say_hello(&hub, &old).await?;
    ensure!(matches!(answer, Answer::Welcome(_)), "{answer:?}");
    let before = at_socket(&["ca", "rotate", "status"])?["authorities"][0]["pin"].clone();

    // Both are trusted, and the new one certifies.
    let text = |name: &str| std::fs::read_to_string(path(name));
    let (first, next) = (text("ca/ca.crt")?, text("next/ca.crt")?);
    std::fs::write(&cert, format!("{first}{next}"))?;
    std::fs::write(&key, text("next/ca.key")?)?;
    eventually("the new authority certifies", LIMIT, || async {
        let pin = at_socket(&["ca", "rotate", "status"]).ok()?["authorities"][0]["pin"].clone();
        (pin != before).then_some(())
    })
    .await?;
    let new = enrol(&hub, &add("prod-us")?, "prod-us").await?;
    let (answer, ..) = say_hello(&hub, &new).await?;
    ensure!(matches!(answer, Answer::Welcome(_)), "{answer:?}");
    let beat = Some(Frame::Heartbeat(Heartbeat::default()));
    frames.send(SessionRequest { frame: beat }).await?;

    // Only the new one is trusted: sessions of the old one end.
    std::fs::write(&cert, next)?;
    let ended = async {
        loop {
            let answer = answers.message().await?.context("no Goodbye")?;
            if let Some(Answer::Goodbye(goodbye)) = answer.frame {
                return anyhow::Ok(goodbye);
            }
        }
    };
    let goodbye = tokio::time::timeout(LIMIT, ended).await??;
    ensure!(
        goodbye.reason() == GoodbyeReason::CertificateOutdated,
        "{goodbye:?}"
    );
    ensure!(say_hello(&hub, &old).await.is_err());
    let (answer, ..) = say_hello(&hub, &new).await?;
    ensure!(matches!(answer, Answer::Welcome(_)), "{answer:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_files_that_meets_a_failing_store_is_taken_up_later() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    Authority::create(&folder.path().join("ca"), "nabu")?;
    Authority::create(&folder.path().join("next"), "nabu")?;
    let (cert, key, socket) = (path("ca/ca.crt"), path("ca/ca.key"), path("admin.sock"));
    let arguments = [
        "--ca-cert-file",
        &cert,
        "--ca-key-file",
        &key,
        "--server-name",
        "127.0.0.1",
        "--admin-socket",
        &socket,
    ];
    let options = HubOptions {
        arguments: arguments.map(str::to_owned).to_vec(),
        ..HubOptions::default()
    };
    let hub = TestHub::start(&[("config.yaml", noop_config("o/r"))], options).await?;
    let pin = || -> Result<Value> {
        let url = format!("unix:{socket}");
        let printed = hub.nabuctl_at(&url, &["-o", "json", "ca", "rotate", "status"])?;
        let status: Value = serde_json::from_str(&printed)?;
        Ok(status["authorities"][0]["pin"].clone())
    };
    let before = pin()?;
    let fails = "CREATE TRIGGER fails BEFORE INSERT ON certificates \
        BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    sqlite(&hub, fails)?;
    let text = |name: &str| std::fs::read_to_string(path(name));
    std::fs::write(
        &cert,
        format!("{}{}", text("ca/ca.crt")?, text("next/ca.crt")?),
    )?;
    std::fs::write(&key, text("next/ca.key")?)?;
    eventually("the hub cannot take it up", LIMIT, || async {
        let told = hub.log().contains("cannot be brought up to date");
        told.then_some(())
    })
    .await?;
    ensure!(pin()? == before, "what is not stored is not in force");
    sqlite(&hub, "DROP TRIGGER fails")?;
    eventually("the new authority certifies", LIMIT, || async {
        (pin().ok()? != before).then_some(())
    })
    .await
}

/// Opens a session on a connection; gives the hub's answer to Hello, and what keeps the session open.
async fn session_on(
    channel: &Channel,
) -> Result<(
    Answer,
    mpsc::Sender<SessionRequest>,
    Streaming<SessionResponse>,
)> {
    let (frames, outgoing) = mpsc::channel(4);
    let hello = Some(Frame::Hello(hello("a")));
    frames.send(SessionRequest { frame: hello }).await?;
    let mut client = AgentServiceClient::new(channel.clone());
    let answers = client.session(ReceiverStream::new(outgoing)).await?;
    let mut answers = answers.into_inner();
    let answer = answers.message().await?.and_then(|answer| answer.frame);
    Ok((answer.context("no answer")?, frames, answers))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_a_retired_authority_opens_no_session_on_a_connection_from_before()
-> Result<()> {
    let hub = certifying().await?;
    let added = hub.add_cluster("prod-eu", &[])?;
    let tls = enrol(&hub, &added, "prod-eu").await?;
    let endpoint = Endpoint::from_shared(hub.agents_url())?;
    let channel = endpoint.connect_with_connector(tls.connector(None)).await?;
    let (answer, ..) = session_on(&channel).await?;
    ensure!(matches!(answer, Answer::Welcome(_)), "{answer:?}");
    hub.nabuctl(&["ca", "rotate", "start"])?;
    hub.nabuctl(&["ca", "rotate", "finish", "--force"])?;
    // On another connection it would not have come as far as an answer.
    let (answer, ..) = session_on(&channel).await?;
    let Answer::Goodbye(goodbye) = answer else {
        anyhow::bail!("{answer:?}")
    };
    ensure!(
        goodbye.reason() == GoodbyeReason::CertificateOutdated
            && goodbye.message.contains("not trusted any more"),
        "{goodbye:?}"
    );
    ensure!(say_hello(&hub, &tls).await.is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_another_pki_are_known_by_its_own_form_of_names() -> Result<()> {
    let agents = "spiffe://corp.example/ns/nabu/sa/{id}";
    let arguments = [
        "--cluster-san",
        agents,
        "--admin-san",
        "https://sso.example/{name}",
    ];
    let options = HubOptions {
        arguments: arguments.map(str::to_owned).to_vec(),
        ..HubOptions::default()
    };
    let hub = TestHub::start(&[("config.yaml", noop_config("o/r"))], options).await?;
    // The form of our own is that of nobody any more.
    let folder = hub.issue_agent("prod-eu")?;
    ensure!(Liar::connect_with(&hub, &folder, hello("a")).await.is_err());

    let responder = unique("responder");
    let arguments = [
        "--responder",
        &responder,
        "--leader-elect=false",
        "--cluster-san",
        agents,
    ];
    let mut agent = TestAgent::prepare(eu().await, "prod-eu", &hub, &arguments)?;
    certificate_into(&hub, &folder, |params| {
        params.subject_alt_names = vec![uri("spiffe://corp.example/ns/nabu/sa/prod-eu").unwrap()];
    })?;
    agent.start_again().await?;
    let name = unique("er");
    let spec = event_response("se", &responder, small_change());
    eu().await.create_event_response(&name, spec).await?;
    let status = eu().await.finished(&name, LIMIT).await?;
    ensure!(status["phase"] == "Succeeded", "{status:#}");

    certificate_into(&hub, &hub.admin_tls(), |params| {
        params.subject_alt_names = vec![uri("https://sso.example/ada").unwrap()];
    })?;
    let listed = hub.nabuctl(&["-o", "name", "cluster", "list"])?;
    ensure!(listed.contains("prod-eu"), "{listed}");
    // The check goes by the hub's rules, and knows none of its own for such a name.
    let checked = hub.nabuctl(&["check"])?;
    ensure!(
        checked.contains("for admin/ada until") && !checked.contains("to mend it"),
        "{checked}"
    );
    // An agent's name opens no door for administrators.
    certificate_into(&hub, &hub.admin_tls(), |params| {
        params.subject_alt_names = vec![uri("spiffe://corp.example/ns/nabu/sa/ada").unwrap()];
    })?;
    ensure!(hub.nabuctl(&["cluster", "list"]).is_err());
    Ok(())
}
