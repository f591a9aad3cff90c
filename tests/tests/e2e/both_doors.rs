//! What the agents' door and the administrators' door have in common: who is refused in the handshake, in which words.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use nabu_common::tls::{CaPin, ClientTls};
use nabu_hub::pki::{Authority, Subject};
use nabu_proto::admin_v1::admin_service_client::AdminServiceClient;
use nabu_proto::admin_v1::{ListClustersRequest, ListResponsesRequest};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::noop_config;
use nabu_tests::wait::eventually;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::io::AsyncReadExt as _;
use tonic::Code;
use tower::Service as _;

use crate::bed::LIMIT;
use crate::identity::hub;
use crate::refusals::{certificate, uri};

const HOUR: Duration = Duration::from_hours(1);

/// What a server does right after a handshake, before it is asked for anything.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// It begins to speak HTTP/2: the peer is in.
    Welcome,
    /// It ends the connection with a TLS alert of this name.
    Alert(String),
    /// It ends the connection without a word.
    Nothing,
}

/// Shakes hands and listens. Nothing is sent: a server that has gone answers that with a reset, which would take its alert
/// along.
async fn said(url: &str, tls: &ClientTls) -> Result<Said> {
    let stream = tls.connector(None).call(url.parse()?).await;
    let stream = stream.context("the client itself ended the handshake")?;
    let mut stream = stream.into_inner();
    let mut first = [0; 1];
    let read = tokio::time::timeout(LIMIT, stream.read(&mut first)).await?;
    Ok(match read {
        Ok(0) => Said::Nothing,
        Ok(_) => Said::Welcome,
        Err(error) => match error.to_string().strip_prefix("received fatal alert: ") {
            Some(alert) => Said::Alert(alert.to_owned()),
            None => Said::Nothing,
        },
    })
}

/// The doors of a hub, with the kind of name that each is for.
fn doors(hub: &TestHub) -> [(&'static str, String); 2] {
    [
        ("cluster/prod-eu", hub.agents_url()),
        ("admin/ada", hub.admin_url()),
    ]
}

/// What makes a certificate another one.
type Change = Box<dyn Fn(&mut CertificateParams)>;

/// Certificates that are wrong in one way: the alert of the server, if it has one for that, and what its log says.
fn wrong(name: &'static str) -> Vec<(Change, Option<&'static str>, &'static str)> {
    let now = SystemTime::now();
    vec![
        (
            Box::new(move |params| {
                params.not_before = (now - 2 * HOUR).into();
                params.not_after = (now - HOUR).into();
            }),
            Some("CertificateExpired"),
            "certificate expired",
        ),
        (
            Box::new(move |params| params.not_before = (now + HOUR).into()),
            // TLS has none of its own for that.
            Some("CertificateExpired"),
            "certificate not valid yet",
        ),
        (
            Box::new(|params| {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            }),
            Some("UnsupportedCertificate"),
            "extended key usage",
        ),
        (
            Box::new(move |params| {
                let other = uri(&format!("spiffe://nabu/{name}-2")).unwrap();
                params.subject_alt_names.push(other);
            }),
            None,
            "has 2 URI SANs",
        ),
        (
            Box::new(move |params| {
                let other = uri(&format!("spiffe://other/{name}")).unwrap();
                params.subject_alt_names = vec![other];
            }),
            None,
            "names nobody",
        ),
        (
            Box::new(|params| params.subject_alt_names.clear()),
            None,
            "has 0 URI SANs",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_door_lets_in_a_certificate_that_is_wrong_in_any_way_and_the_log_says_in_which()
-> Result<()> {
    let hub = hub().await?;
    for (name, url) in doors(&hub) {
        let named = |params: &mut CertificateParams| {
            params.subject_alt_names = vec![uri(&format!("spiffe://nabu/{name}")).unwrap()];
        };
        let good = certificate(&hub, named)?;
        ensure!(said(&url, &good).await? == Said::Welcome, "{name}");
        for (change, alert, logged) in wrong(name) {
            let tls = certificate(&hub, |params| {
                named(params);
                change(params);
            })?;
            let before = hub.log().len();
            let wanted = alert.map_or(Said::Nothing, |alert| Said::Alert(alert.to_owned()));
            let said = said(&url, &tls).await?;
            ensure!(said == wanted, "{name}: {said:?}, not {wanted:?}");
            let logged_it = || async {
                let log = hub.log();
                let mut lines = log.get(before..)?.lines();
                let told = lines.find(|line| line.contains("refused a connection"))?;
                Some(told.to_owned())
            };
            let line = eventually("the refusal is logged", LIMIT, logged_it).await?;
            ensure!(line.contains(logged), "{name}: {line}, not {logged}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_door_lets_in_a_certificate_of_another_authority_or_none() -> Result<()> {
    let documents = [("config.yaml", noop_config("o/r"))];
    let mut hub = TestHub::prepare(&documents, HubOptions::default())?;
    // Whoever comes with nothing but a pin wants to see the authority in the chain.
    let ca = std::fs::read(hub.admin_tls().join("ca.crt"))?;
    let own = hub.dir().join("tls/tls.crt");
    std::fs::write(&own, [std::fs::read(&own)?, ca.clone()].concat())?;
    hub.start_again().await?;
    let pin = CaPin::of_certificate(&CertificateDer::from_pem_slice(&ca)?).context("no key")?;
    let bare = ClientTls::pinned(&[pin])?;
    let folder = tempfile::tempdir()?;
    let [same_name, other_name] = ["nabu", "other"].map(|domain| {
        let pki = folder.path().join("pki").join(domain);
        Authority::create(&pki, domain).unwrap()
    });
    let subjects = [Subject::cluster(&"prod-eu".parse()?), Subject::admin("ada")];
    for ((name, url), subject) in doors(&hub).into_iter().zip(subjects) {
        for (authority, alert) in [(&same_name, "DecryptError"), (&other_name, "UnknownCA")] {
            let out = folder.path().join(alert).join(name);
            authority.issue_into(&subject, &out)?;
            // It trusts the hub, but the hub does not trust it.
            std::fs::write(out.join("ca.crt"), &ca)?;
            let tls = ClientTls::load(nabu_common::tls::TlsFiles::in_folder(&out))?;
            let said = said(&url, &tls).await?;
            ensure!(said == Said::Alert(alert.to_owned()), "{name}: {said:?}");
        }
        let said_to_it = said(&url, &bare).await?;
        ensure!(
            said_to_it == Said::Alert("CertificateRequired".to_owned()),
            "{name}: {said_to_it:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_door_for_administrators_has_no_room_for_strangers_on_a_hub_that_certifies()
-> Result<()> {
    let hub = crate::enrolment::hub(&[]).await?;
    let added = hub.add_cluster("prod-eu", &[])?;
    let pin = added["caPins"][0].as_str().context("no pin")?;
    let bare = ClientTls::pinned(&[pin.parse().map_err(anyhow::Error::msg)?])?;
    ensure!(said(&hub.agents_url(), &bare).await? == Said::Welcome);
    let said = said(&hub.admin_url(), &bare).await?;
    ensure!(
        said == Said::Alert("CertificateRequired".to_owned()),
        "{said:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_to_the_admin_door_that_is_too_large_is_refused_and_the_next_one_answered()
-> Result<()> {
    let hub = hub().await?;
    let channel = hub.admin_channel().await?;
    let mut client = AdminServiceClient::new(channel).max_encoding_message_size(64 * 1024 * 1024);
    let request = ListResponsesRequest {
        page_token: "x".repeat(16 * 1024 * 1024),
        ..ListResponsesRequest::default()
    };
    let refused = client.list_responses(request).await.err();
    let refused = refused.context("16 MiB were taken")?;
    ensure!(refused.code() == Code::OutOfRange, "{refused:?}");
    ensure!(refused.message().contains("too large"), "{refused:?}");
    client.list_clusters(ListClustersRequest::default()).await?;
    Ok(())
}
