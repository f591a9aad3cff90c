//! Who a certificate speaks for: exactly one URI SAN, `spiffe://<trust-domain>/<kind>/<name>`.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::ids::ClusterId;

/// The domain that all certificates of a fleet carry: a DNS name in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TrustDomain(String);

impl FromStr for TrustDomain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let letter =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '_');
        if (1..=255).contains(&text.len()) && text.chars().all(letter) {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!(
                "{text:?} is no trust domain: use a-z, 0-9, '.', '-' and '_', for example nabu.example.org"
            ))
        }
    }
}

impl TrustDomain {
    /// The domain that an authority of ours certifies: its one URI SAN is `spiffe://<trust-domain>`.
    ///
    /// # Errors
    /// If the certificate cannot be read or has no such name.
    pub fn of_authority(der: &CertificateDer<'_>) -> Result<Self, IdentityError> {
        let uris = uris_of_certificate(der)?;
        let [uri] = uris.as_slice() else {
            return Err(IdentityError::NotOneUri(uris.len()));
        };
        let domain = uri
            .strip_prefix("spiffe://")
            .and_then(|domain| domain.parse().ok());
        domain.ok_or_else(|| IdentityError::Unreadable(format!("{uri:?} names no trust domain")))
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who a certificate speaks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// The agent of a cluster.
    Cluster(ClusterId),
    /// An administrator, by name.
    Admin(String),
    /// A hub, by name.
    Hub(String),
}

impl Identity {
    /// The URI SAN of this identity.
    pub fn uri(&self, domain: &TrustDomain) -> String {
        format!("spiffe://{domain}/{self}")
    }

    /// Reads a URI SAN.
    ///
    /// # Errors
    /// If the URI is not of this trust domain, or names no identity.
    pub fn from_uri(uri: &str, domain: &TrustDomain) -> Result<Self, IdentityError> {
        let wrong = || IdentityError::WrongUri {
            uri: uri.chars().take(200).collect(),
            domain: domain.to_string(),
        };
        let path = uri
            .strip_prefix("spiffe://")
            .and_then(|rest| rest.strip_prefix(domain.0.as_str()))
            .and_then(|rest| rest.strip_prefix('/'))
            .ok_or_else(wrong)?;
        let (kind, name) = path.split_once('/').ok_or_else(wrong)?;
        match kind {
            "cluster" => name.parse().map(Self::Cluster).map_err(|_| wrong()),
            "admin" if is_name(name) => Ok(Self::Admin(name.to_owned())),
            "hub" if is_name(name) => Ok(Self::Hub(name.to_owned())),
            _ => Err(wrong()),
        }
    }
}

/// Names of administrators and hubs: what a path segment of a SPIFFE id may hold.
pub fn is_name(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && !matches!(name, "." | "..")
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(id) => write!(f, "cluster/{id}"),
            Self::Admin(name) => write!(f, "admin/{name}"),
            Self::Hub(name) => write!(f, "hub/{name}"),
        }
    }
}

/// Why a certificate speaks for nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// It is no X.509 certificate.
    #[error("the certificate cannot be read: {0}")]
    Unreadable(String),
    /// It has no URI SAN, or several.
    #[error("the certificate has {0} URI SANs; exactly one must say who it speaks for")]
    NotOneUri(usize),
    /// Its URI SAN is not one of ours.
    #[error(
        "the URI SAN {uri:?} names nobody: expected spiffe://{domain}/cluster/<id>, /admin/<name> or /hub/<name>"
    )]
    WrongUri {
        /// The URI, shortened.
        uri: String,
        /// The trust domain that was expected.
        domain: String,
    },
    /// Its URI SAN fits none of the templates.
    #[error("the URI SAN {uri:?} names nobody: expected {cluster} or {admin}")]
    NamesNobody {
        /// The URI, shortened.
        uri: String,
        /// How clusters are named.
        cluster: String,
        /// How administrators are named.
        admin: String,
    },
}

/// Who a (verified) certificate speaks for.
///
/// # Errors
/// If it cannot be read, or does not carry exactly one URI SAN of this trust domain.
pub fn identity_of_certificate(
    der: &CertificateDer<'_>,
    domain: &TrustDomain,
) -> Result<Identity, IdentityError> {
    let uris = uris_of_certificate(der)?;
    match uris.as_slice() {
        [uri] => Identity::from_uri(uri, domain),
        other => Err(IdentityError::NotOneUri(other.len())),
    }
}

/// When a certificate runs out.
///
/// # Errors
/// If it cannot be read.
pub fn valid_until(der: &CertificateDer<'_>) -> Result<SystemTime, IdentityError> {
    let (_, certificate) = X509Certificate::from_der(der)
        .map_err(|error| IdentityError::Unreadable(error.to_string()))?;
    let seconds = certificate.validity().not_after.timestamp();
    // Nothing of ours ran out before 1970.
    let seconds = u64::try_from(seconds).unwrap_or(0);
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

pub(crate) fn uris_of_certificate(der: &CertificateDer<'_>) -> Result<Vec<String>, IdentityError> {
    let (_, certificate) = X509Certificate::from_der(der)
        .map_err(|error| IdentityError::Unreadable(error.to_string()))?;
    let names = certificate
        .subject_alternative_name()
        .map_err(|error| IdentityError::Unreadable(error.to_string()))?
        .map(|extension| extension.value.general_names.as_slice())
        .unwrap_or_default();
    let uris = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        _ => None,
    });
    Ok(uris.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(uris: &[&str]) -> CertificateDer<'static> {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["example.org".to_owned()]).unwrap();
        for uri in uris {
            params
                .subject_alt_names
                .push(rcgen::SanType::URI((*uri).try_into().unwrap()));
        }
        params.self_signed(&key).unwrap().der().clone()
    }

    fn domain() -> TrustDomain {
        "nabu".parse().unwrap()
    }

    #[test]
    fn every_identity_comes_back_from_its_certificate() {
        for identity in [
            Identity::Cluster("prod-eu".parse().unwrap()),
            Identity::Admin("ada.l".into()),
            Identity::Hub("hub-0".into()),
        ] {
            let certificate = certificate(&[&identity.uri(&domain())]);
            assert_eq!(
                identity_of_certificate(&certificate, &domain()),
                Ok(identity)
            );
        }
    }

    #[test]
    fn a_certificate_without_exactly_one_uri_speaks_for_nobody() {
        assert_eq!(
            identity_of_certificate(&certificate(&[]), &domain()),
            Err(IdentityError::NotOneUri(0))
        );
        let two = certificate(&["spiffe://nabu/cluster/a", "spiffe://nabu/cluster/b"]);
        assert_eq!(
            identity_of_certificate(&two, &domain()),
            Err(IdentityError::NotOneUri(2))
        );
    }

    #[test]
    fn a_uri_of_another_form_speaks_for_nobody() {
        for uri in [
            "spiffe://other/cluster/a",
            "spiffe://nabu.evil/cluster/a",
            "spiffe://nabu/cluster/A",
            "spiffe://nabu/cluster/a/b",
            "spiffe://nabu/cluster/",
            "spiffe://nabu/admin/..",
            "spiffe://nabu/admin/a%2fb",
            "spiffe://nabu/agent/a",
            "https://nabu/cluster/a",
        ] {
            let result = identity_of_certificate(&certificate(&[uri]), &domain());
            assert!(
                matches!(result, Err(IdentityError::WrongUri { .. })),
                "{uri}: {result:?}"
            );
        }
    }
}
