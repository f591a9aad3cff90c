//! The first administrator's certificate, made on the hub's own machine: `nabu-hub init-admin`.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use nabu_common::identity::is_name;
use rcgen::{CertificateParams, KeyPair};
use secrecy::ExposeSecret as _;

use super::HubAuthority;
use super::signer::RequestedKey;
use crate::config::AuthorityArgs;
use crate::pki::credentials::{Credentials, pem};
use crate::store::AuditEvent;
use crate::store::identity::SharedIdentities;
use crate::store::sqlite::SqliteStore;

/// An administrator's certificate lives for so long, unless somebody asks for less.
pub const ADMIN_LIFETIME: Duration = Duration::from_hours(365 * 24);

/// Makes a key and a certificate for an administrator in a folder, or for `-` on standard output. Works beside a hub that runs on the same database.
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
    let credentials = Credentials {
        ca: pem(&authority.bundle()),
        certificate: pem(&[issued.certificate]),
        key: key.serialize_pem().into(),
    };
    if out == Path::new("-") {
        std::io::stdout().write_all(credentials.to_text().expose_secret().as_bytes())?;
    } else {
        credentials.write_into(out)?;
    }
    crate::store::Store::close(store.as_ref()).await;
    Ok(())
}
