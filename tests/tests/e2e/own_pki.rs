//! Certificates from files that somebody else replaces while hub and agent run: a kubelet, which swaps a link, or a person,
//! who writes over what is there.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use nabu_common::tls::{ClientTls, TlsFiles};
use nabu_tests::agent::TestAgent;
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::noop_config;
use nabu_tests::wait::eventually;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};

use crate::bed::{LIMIT, eu, unique};
use crate::refusals::{say_hello, uri};
use crate::under_load::Load;

/// How long a certificate lives that shall run out during the test.
const SHORT: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_hours(1);
const FILES: [&str; 3] = ["ca.crt", "tls.crt", "tls.key"];

/// An authority of the own PKI: its folder has `ca.crt` and `ca.key`.
struct Authority<'a>(&'a Path);

/// What is in the three files.
struct Material {
    texts: [String; 3],
    not_after: SystemTime,
}

impl Authority<'_> {
    fn certificate(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.0.join("ca.crt"))?)
    }

    /// A certificate, beside the authorities that its owner shall trust.
    fn certify(
        &self,
        name: &str,
        usage: ExtendedKeyUsagePurpose,
        lifetime: Duration,
        trusted: &str,
    ) -> Result<Material> {
        let key = KeyPair::from_pem(&std::fs::read_to_string(self.0.join("ca.key"))?)?;
        let issuer = Issuer::from_ca_cert_pem(&self.certificate()?, key)?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.subject_alt_names = vec![
            uri(&format!("spiffe://nabu/{name}"))?,
            SanType::IpAddress([127, 0, 0, 1].into()),
        ];
        params.extended_key_usages = vec![usage];
        let not_after = SystemTime::now() + lifetime;
        params.not_after = not_after.into();
        let key = KeyPair::generate()?;
        let made = params.signed_by(&key, &issuer)?;
        Ok(Material {
            texts: [trusted.to_owned(), made.pem(), key.serialize_pem()],
            not_after,
        })
    }

    fn certify_agent(&self, lifetime: Duration, trusted: &str) -> Result<Material> {
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        self.certify("cluster/prod-eu", usage, lifetime, trusted)
    }

    fn certify_hub(&self, trusted: &str) -> Result<Material> {
        let usage = ExtendedKeyUsagePurpose::ServerAuth;
        self.certify("hub/test", usage, LONG, trusted)
    }
}

impl Material {
    /// As a kubelet does: a new folder beside the old one, and the link `..data` is swapped in one step.
    fn swap_into(&self, folder: &Path) -> Result<()> {
        let name = unique("..version");
        std::fs::create_dir(folder.join(&name))?;
        for (file, text) in FILES.iter().zip(&self.texts) {
            std::fs::write(folder.join(&name).join(file), text)?;
            let link = folder.join(file);
            if !link.is_symlink() {
                let _ = std::fs::remove_file(&link);
                std::os::unix::fs::symlink(Path::new("..data").join(file), &link)?;
            }
        }
        std::os::unix::fs::symlink(&name, folder.join("..data_tmp"))?;
        Ok(std::fs::rename(
            folder.join("..data_tmp"),
            folder.join("..data"),
        )?)
    }

    /// As a person does who knows of nothing: one file after the other, in the place of the old one.
    fn write_over(&self, folder: &Path) -> Result<()> {
        for (file, text) in FILES.iter().zip(&self.texts) {
            std::fs::write(folder.join(file), text)?;
        }
        Ok(())
    }

    async fn ran_out(&self) {
        let left = self.not_after.duration_since(SystemTime::now());
        // A second is what certificates count in.
        tokio::time::sleep(left.unwrap_or_default() + Duration::from_secs(1)).await;
    }
}

fn count(log: &str, text: &str) -> usize {
    log.matches(text).count()
}

/// Waits until a process has read its files so many times again.
async fn read_again(times: usize, log: impl Fn() -> String) -> Result<()> {
    eventually("the files are read again", LIMIT, || async {
        (count(&log(), "TLS files were read again") >= times).then_some(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_hub_and_agent_are_replaced_under_load_and_no_session_is_dropped_for_it()
-> Result<()> {
    let documents = [("config.yaml", noop_config("o/r"))];
    let hub = TestHub::start(&documents, HubOptions::default()).await?;
    let (old, hub_files) = (hub.dir().join("pki"), hub.dir().join("tls"));
    let new = hub.dir().join("next-pki");
    nabu_hub::pki::Authority::create(&new, "nabu")?;
    let (old, new) = (Authority(&old), Authority(&new));
    let (only_old, only_new) = (old.certificate()?, new.certificate()?);
    let both = format!("{only_old}{only_new}");

    let responder = unique("responder");
    let arguments = ["--responder", &responder, "--leader-elect=false"];
    let mut agent = TestAgent::prepare(eu().await, "prod-eu", &hub, &arguments)?;
    let agent_files = hub.issue_agent("prod-eu")?;
    let first = old.certify_agent(SHORT, &only_old)?;
    first.swap_into(&agent_files)?;
    agent.start_again().await?;
    let load = Load::start(eu().await, &responder);

    // The hub learns of the new authority, and the agent gets a certificate of it, by links.
    old.certify_hub(&both)?.swap_into(&hub_files)?;
    read_again(1, || hub.log()).await?;
    let second = new.certify_agent(2 * SHORT, &both)?;
    second.swap_into(&agent_files)?;
    read_again(1, || agent.log()).await?;
    if SystemTime::now() < first.not_after {
        let sessions = count(&agent.log(), "session open");
        ensure!(sessions == 1, "{sessions} sessions: {}", agent.log());
    }
    first.ran_out().await;
    // Whoever is served now has shown the second certificate to a hub that trusts who made it.
    load.goes_on().await?;
    ensure!(count(&agent.log(), "certificate of this session has run out") == 1);

    // From now on only the new authority counts; files are written over, without links.
    let hubs = new.certify_hub(&only_new)?;
    let third = new.certify_agent(LONG, &only_new)?;
    hubs.write_over(&hub_files)?;
    read_again(2, || hub.log()).await?;
    third.write_over(&agent_files)?;
    read_again(2, || agent.log()).await?;
    second.ran_out().await;
    load.goes_on().await?;
    ensure!(count(&agent.log(), "certificate of this session has run out") == 2);

    // A good certificate of the authority that is gone opens no session any more.
    let outdated = hub.dir().join("outdated");
    std::fs::create_dir(&outdated)?;
    old.certify_agent(LONG, &only_new)?.write_over(&outdated)?;
    let tls = ClientTls::load(TlsFiles::in_folder(&outdated))?;
    ensure!(say_hello(&hub, &tls).await.is_err());

    let names = load.end().await?;
    for name in &names {
        let status = eu().await.finished(name, LIMIT).await?;
        ensure!(status["phase"] == "Succeeded", "{name}: {status:#}");
        ensure!(status["attempts"] == 1, "{name}: {status:#}");
    }
    let responses = hub.metric("ugallu_gitops_responder_attempts_total{outcome=\"succeeded\"}");
    let responses = responses.await.context("no metric")?;
    #[expect(clippy::cast_precision_loss, reason = "some hundred")]
    let wanted = names.len() as f64;
    ensure!((responses - wanted).abs() < 0.5, "{responses} of {wanted}");
    Ok(())
}
