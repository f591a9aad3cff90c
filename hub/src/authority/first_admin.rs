//! The first administrator's certificate, made on the hub's own machine: `nabu-hub init-admin`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use nabu_common::identity::is_name;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;

use super::HubAuthority;
use super::signer::RequestedKey;
use crate::config::AuthorityArgs;
use crate::pki;
use crate::store::AuditEvent;
use crate::store::identity::SharedIdentities;
use crate::store::sqlite::SqliteStore;

/// An administrator's certificate lives for so long, unless somebody asks for less.
pub const ADMIN_LIFETIME: Duration = Duration::from_hours(365 * 24);

/// Makes a key and a certificate for an administrator in a folder. Works beside a hub that runs on the same database.
///
/// # Errors
/// If the hub does not certify, or the folder cannot be written to.
pub async fn run(at: &AuthorityArgs, name: &str, out: &Path) -> anyhow::Result<()> {
    ensure!(
        is_name(name),
        "{name:?} is no name for a certificate: use letters, digits, '-', '_' and '.'"
    );
    let store = SqliteStore::open_beside(&at.store).await?;
    let identities: SharedIdentities = Arc::clone(&store) as SharedIdentities;
    // This run serves nothing; the hub that does has its names.
    let names = ["localhost".to_owned()];
    let opened = HubAuthority::open(at, &names, ADMIN_LIFETIME, Arc::clone(&identities));
    let authority = opened.await?.context(
        "this hub does not certify: give --ca-encryption-key-file as the hub has it, or use `nabuctl pki`",
    )?;
    let key = KeyPair::generate()?;
    let request = CertificateParams::new(Vec::new())?.serialize_request(&key)?;
    let requested = RequestedKey::of_request(request.der())?;
    let now = Timestamp::now();
    let issued = authority.certify_admin(name, &requested, now, ADMIN_LIFETIME)?;
    let event = AuditEvent {
        at: now,
        actor: "hub".to_owned(),
        action: "AdministratorCertified".to_owned(),
        detail: format!(
            "{} by init-admin, certificate {}",
            issued.record.identity, issued.record.fingerprint
        ),
    };
    identities
        .record_certificate(issued.record, Some(event))
        .await?;
    pki::create_folder(out)?;
    pki::write(&out.join("ca.crt"), &pem(&authority.bundle()), 0o644)?;
    pki::write(&out.join("tls.crt"), &pem(&[issued.certificate]), 0o644)?;
    pki::write(&out.join("tls.key"), &key.serialize_pem(), 0o600)?;
    crate::store::Store::close(store.as_ref()).await;
    Ok(())
}

/// Certificates as PEM, one after the other.
pub fn pem(certificates: &[CertificateDer<'_>]) -> String {
    use base64::Engine as _;
    let mut text = String::new();
    for certificate in certificates {
        let body = base64::engine::general_purpose::STANDARD.encode(certificate);
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let mut rest = body.as_str();
        while !rest.is_empty() {
            let (line, more) = rest.split_at(rest.len().min(64));
            text.push_str(line);
            text.push('\n');
            rest = more;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}
