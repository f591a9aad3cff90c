//! Certificates as files: an authority of our own, and certificates for hubs, agents and administrators.
//!
//! This is the simplest of the ways to get certificates: an administrator makes them and carries them to where they are
//! used. Agents that enrol by themselves, and authorities of others, give certificates of the same form.

pub mod credentials;

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nabu_common::identity::{Identity, IdentityError, TrustDomain, is_name};
use nabu_common::ids::ClusterId;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

const AUTHORITY_CERTIFICATE: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const DAY: Duration = Duration::from_hours(24);
/// An authority lives ten years.
pub(crate) const AUTHORITY_LIFETIME: Duration = DAY.saturating_mul(3650);
/// Certificates are valid from a little earlier on, for clocks that go slow.
pub(crate) const BACKDATED: Duration = Duration::from_mins(5);
/// The lifetime of a certificate where nobody says another, in days.
pub const DEFAULT_DAYS: u32 = 365;

/// Why a certificate cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// There is an authority already.
    #[error("{} exists; an authority is never overwritten. Choose another folder", .0.display())]
    Exists(PathBuf),
    /// A file cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A name that cannot be certified.
    #[error("{0:?} is no name for a certificate: use letters, digits, '-', '_' and '.'")]
    Name(String),
    /// The folder holds no authority of ours.
    #[error("{} is no authority of nabuctl: {detail}; make one with `nabuctl pki init`", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// The library refuses.
    #[error("cannot make the certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// Who a certificate is for.
#[derive(Clone, Debug)]
pub struct Subject {
    identity: Identity,
    dns: Vec<String>,
    ips: Vec<IpAddr>,
    days: u32,
}

impl Subject {
    /// Whom this identity names.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    fn new(identity: Identity) -> Self {
        Self {
            identity,
            dns: Vec::new(),
            ips: Vec::new(),
            days: DEFAULT_DAYS,
        }
    }

    /// A hub; agents check the names under which they dial it.
    pub fn hub(name: &str) -> Self {
        Self::new(Identity::Hub(name.to_owned()))
    }

    /// An administrator.
    pub fn admin(name: &str) -> Self {
        Self::new(Identity::Admin(name.to_owned()))
    }

    /// The agent of a cluster.
    pub fn cluster(id: &ClusterId) -> Self {
        Self::new(Identity::Cluster(id.clone()))
    }

    /// Adds a DNS name.
    pub fn with_dns(mut self, name: &str) -> Self {
        self.dns.push(name.to_owned());
        self
    }

    /// Adds an IP address; a text that is none is taken as a DNS name.
    pub fn with_ip(mut self, address: &str) -> Self {
        match address.parse() {
            Ok(address) => self.ips.push(address),
            Err(_) => self.dns.push(address.to_owned()),
        }
        self
    }

    /// Sets the lifetime.
    pub fn with_days(self, days: u32) -> Self {
        Self { days, ..self }
    }
}

/// A certificate authority in a folder.
pub struct Authority {
    domain: TrustDomain,
    certificate_pem: String,
    key: KeyPair,
}

impl Authority {
    /// Makes an authority in a folder, which must not hold one: `ca.crt`, and `ca.key` for its owner only.
    ///
    /// # Errors
    /// If there is one already, or the folder cannot be written to.
    pub fn create(folder: &Path, trust_domain: &str) -> Result<Self, PkiError> {
        let domain = Self::check_new(folder, trust_domain)?;
        let path = folder.join(AUTHORITY_KEY);
        let key = KeyPair::generate()?;
        let now = SystemTime::now();
        let mut params = authority_params(&domain)?;
        params.not_before = (now - BACKDATED).into();
        params.not_after = (now + AUTHORITY_LIFETIME).into();
        let certificate_pem = params.self_signed(&key)?.pem();
        create_folder(folder)?;
        write(&path, &key.serialize_pem(), 0o600)?;
        write(&folder.join(AUTHORITY_CERTIFICATE), &certificate_pem, 0o644)?;
        Ok(Self {
            domain,
            certificate_pem,
            key,
        })
    }

    /// Whether [`Authority::create`] may make one; gives the trust domain that it would have.
    ///
    /// # Errors
    /// If there is one already, or there can be no such folder.
    pub fn check_new(folder: &Path, trust_domain: &str) -> Result<TrustDomain, PkiError> {
        let domain: TrustDomain = trust_domain
            .parse()
            .map_err(|_| PkiError::Name(trust_domain.to_owned()))?;
        let path = folder.join(AUTHORITY_KEY);
        if path.exists() {
            return Err(PkiError::Exists(path));
        }
        check_folder(folder)?;
        Ok(domain)
    }

    /// Opens the authority of a folder.
    ///
    /// # Errors
    /// If the folder holds none of ours.
    pub fn open(folder: &Path) -> Result<Self, PkiError> {
        let path = folder.join(AUTHORITY_CERTIFICATE);
        let wrong = |detail: String| PkiError::Authority {
            path: path.clone(),
            detail,
        };
        let certificate_pem = read(&path)?;
        let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|error| wrong(error.to_string()))?;
        let domain = TrustDomain::of_authority(&der)
            .map_err(|error: IdentityError| wrong(error.to_string()))?;
        let key = KeyPair::from_pem(&read(&folder.join(AUTHORITY_KEY))?)?;
        Ok(Self {
            domain,
            certificate_pem,
            key,
        })
    }

    /// The trust domain of everything that it certifies.
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.domain
    }

    /// Whether [`Authority::issue_into`] may be; gives what the certificate would say.
    ///
    /// # Errors
    /// If the name cannot be certified, or there can be no such folder.
    pub fn check_issue(
        &self,
        subject: &Subject,
        folder: &Path,
    ) -> Result<CertificateParams, PkiError> {
        if let Identity::Admin(name) | Identity::Hub(name) = &subject.identity
            && !is_name(name)
        {
            return Err(PkiError::Name(name.clone()));
        }
        let validity = (BACKDATED, DAY.saturating_mul(subject.days));
        let params = leaf_params(subject, &self.domain, SystemTime::now(), validity)?;
        check_folder(folder)?;
        Ok(params)
    }

    /// Makes a key and its certificate in a folder: `ca.crt`, `tls.crt`, and `tls.key` for its owner only. What was
    /// there is replaced, each file in one step.
    ///
    /// # Errors
    /// If the name cannot be certified or the folder cannot be written to.
    pub fn issue_into(&self, subject: &Subject, folder: &Path) -> Result<(), PkiError> {
        let params = self.check_issue(subject, folder)?;
        let key = KeyPair::generate()?;
        let own = authority_params(&self.domain)?;
        let issuer = Issuer::from_params(&own, &self.key);
        let certificate = params.signed_by(&key, &issuer)?;
        create_folder(folder)?;
        write(
            &folder.join(AUTHORITY_CERTIFICATE),
            &self.certificate_pem,
            0o644,
        )?;
        write(&folder.join("tls.crt"), &certificate.pem(), 0o644)?;
        write(&folder.join("tls.key"), &key.serialize_pem(), 0o600)
    }
}

/// The folder itself is made by [`create_folder`]; here it is only seen whether that can be.
pub(crate) fn check_folder(folder: &Path) -> Result<(), PkiError> {
    let there = folder.ancestors().find(|part| part.exists());
    match there {
        Some(part) if !part.is_dir() => Err(PkiError::File {
            action: "make the folder",
            path: folder.to_owned(),
            source: io::ErrorKind::NotADirectory.into(),
        }),
        _ => Ok(()),
    }
}

/// Whether a folder has files that a new certificate would replace.
pub(crate) fn holds_certificate(folder: &Path) -> bool {
    let names = [AUTHORITY_CERTIFICATE, "tls.crt", "tls.key"];
    names.iter().any(|name| folder.join(name).exists())
}

/// Everything of the authority but its key and dates; the same whenever it is opened.
pub(crate) fn authority_params(domain: &TrustDomain) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, format!("Nabu authority of {domain}"));
    params.distinguished_name = name;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.subject_alt_names = vec![SanType::URI(
        format!("spiffe://{domain}").as_str().try_into()?,
    )];
    Ok(params)
}

/// Everything of a certificate but its key: names, usages, and that it is valid from `now` (and a little before) on.
pub(crate) fn leaf_params(
    subject: &Subject,
    domain: &TrustDomain,
    now: SystemTime,
    (backdated, lifetime): (Duration, Duration),
) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, subject.identity.to_string());
    params.distinguished_name = name;
    params.not_before = (now - backdated).into();
    params.not_after = (now + lifetime).into();
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = match subject.identity {
        Identity::Hub(_) => vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ],
        Identity::Cluster(_) | Identity::Admin(_) => vec![ExtendedKeyUsagePurpose::ClientAuth],
    };
    params.subject_alt_names = vec![SanType::URI(
        subject.identity.uri(domain).as_str().try_into()?,
    )];
    for dns in &subject.dns {
        params
            .subject_alt_names
            .push(SanType::DnsName(dns.as_str().try_into()?));
    }
    params
        .subject_alt_names
        .extend(subject.ips.iter().copied().map(SanType::IpAddress));
    Ok(params)
}

pub(crate) fn create_folder(folder: &Path) -> Result<(), PkiError> {
    std::fs::create_dir_all(folder).map_err(|source| PkiError::File {
        action: "make the folder",
        path: folder.to_owned(),
        source,
    })
}

fn read(path: &Path) -> Result<String, PkiError> {
    std::fs::read_to_string(path).map_err(|source| PkiError::File {
        action: "read",
        path: path.to_owned(),
        source,
    })
}

/// Writes a file in one step: whoever reads it sees the old or the new one.
pub(crate) fn write(path: &Path, text: &str, mode: u32) -> Result<(), PkiError> {
    let new = path.with_extension("new");
    let written = || {
        // What an earlier run left half done may have another mode.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(mode)
            .open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        // The name is in the folder, which is written by itself.
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    written().map_err(|source| PkiError::File {
        action: "write",
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use nabu_common::identity::identity_of_certificate;
    use nabu_common::tls::{ServerTls, TlsFiles, install_crypto_provider};

    use super::*;

    #[test]
    fn certificates_say_who_they_are_for_and_can_be_served_with() {
        install_crypto_provider();
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::create(folder.path(), "nabu.example.org").unwrap();
        let id: ClusterId = "prod-eu".parse().unwrap();
        for (subject, identity) in [
            (Subject::cluster(&id), Identity::Cluster(id)),
            (Subject::admin("ada"), Identity::Admin("ada".to_owned())),
            (
                Subject::hub("hub-0")
                    .with_dns("nabu-hub")
                    .with_ip("127.0.0.1"),
                Identity::Hub("hub-0".to_owned()),
            ),
        ] {
            let out = folder.path().join(identity.to_string());
            authority.issue_into(&subject, &out).unwrap();
            let der = CertificateDer::from_pem_file(out.join("tls.crt")).unwrap();
            assert_eq!(
                identity_of_certificate(&der, authority.trust_domain()),
                Ok(identity)
            );
            ServerTls::load(TlsFiles::in_folder(&out), authority.trust_domain().clone()).unwrap();
            assert_eq!(
                std::fs::metadata(out.join("tls.key"))
                    .unwrap()
                    .permissions()
                    .mode()
                    & 0o777,
                0o600
            );
        }
    }

    #[test]
    fn an_authority_is_opened_again_and_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        Authority::create(folder.path(), "nabu").unwrap();
        let key = std::fs::read(folder.path().join("ca.key")).unwrap();
        assert!(matches!(
            Authority::create(folder.path(), "nabu"),
            Err(PkiError::Exists(_))
        ));
        assert_eq!(std::fs::read(folder.path().join("ca.key")).unwrap(), key);
        let again = Authority::open(folder.path()).unwrap();
        assert_eq!(again.trust_domain().to_string(), "nabu");
    }

    #[test]
    fn a_name_that_would_change_the_identity_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::create(folder.path(), "nabu").unwrap();
        for name in ["", "a/b", "..", "a b"] {
            let result = authority.issue_into(&Subject::admin(name), &folder.path().join("out"));
            assert!(matches!(result, Err(PkiError::Name(_))), "{name:?}");
        }
    }
}
