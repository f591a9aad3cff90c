//! What somebody needs to dial a hub (the authority, a certificate and its key), as three files in a folder or as one text.

use std::path::Path;

use base64::Engine as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{PemObject as _, SectionKind};
use secrecy::{ExposeSecret as _, SecretString};

use super::{PkiError, create_folder, write};

/// A certificate, its key, and the authorities that the other side is certified by. All in PEM.
pub struct Credentials {
    /// The authorities.
    pub ca: String,
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: SecretString,
}

/// Why a text is not the credentials of an administrator.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CredentialsError {
    /// It is no PEM.
    #[error("it is no PEM: {0}; give what `nabu-hub init-admin --out -` has written, whole")]
    Form(String),
    /// A part is missing, or there are too many.
    #[error(
        "it has {keys} keys and {certificates} certificates; give what `nabu-hub init-admin --out -` has written, whole"
    )]
    Parts {
        /// Private keys in it: one is wanted.
        keys: usize,
        /// Certificates in it: the key's own, and at least one authority, are wanted.
        certificates: usize,
    },
}

impl Credentials {
    /// The key, its certificate and the authorities, after one another.
    pub fn to_text(&self) -> SecretString {
        format!(
            "{}{}{}",
            self.key.expose_secret(),
            self.certificate,
            self.ca
        )
        .into()
    }

    /// Reads [`Credentials::to_text`]. The first certificate is the key's, the others are authorities.
    ///
    /// # Errors
    /// If it is something else.
    pub fn from_text(text: &SecretString) -> Result<Self, CredentialsError> {
        let mut certificates = Vec::new();
        let mut keys = Vec::new();
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(text.expose_secret().as_bytes()) {
            let (kind, der) = section.map_err(|error| CredentialsError::Form(error.to_string()))?;
            match kind {
                SectionKind::Certificate => certificates.push(CertificateDer::from(der)),
                SectionKind::PrivateKey => keys.push(der),
                _ => {}
            }
        }
        let parts = CredentialsError::Parts {
            keys: keys.len(),
            certificates: certificates.len(),
        };
        let ([key], [own, authorities @ ..]) = (keys.as_slice(), certificates.as_slice()) else {
            return Err(parts);
        };
        if authorities.is_empty() {
            return Err(parts);
        }
        Ok(Self {
            ca: pem(authorities),
            certificate: pem(std::slice::from_ref(own)),
            key: section("PRIVATE KEY", key).into(),
        })
    }

    /// Writes `ca.crt`, `tls.crt` and `tls.key`, the key for its owner only.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    pub fn write_into(&self, folder: &Path) -> Result<(), PkiError> {
        create_folder(folder)?;
        write(&folder.join("ca.crt"), &self.ca, 0o644)?;
        write(&folder.join("tls.crt"), &self.certificate, 0o644)?;
        write(&folder.join("tls.key"), self.key.expose_secret(), 0o600)
    }
}

/// Certificates as PEM, one after the other.
pub fn pem(certificates: &[CertificateDer<'_>]) -> String {
    let one = |certificate: &CertificateDer<'_>| section("CERTIFICATE", certificate);
    certificates.iter().map(one).collect()
}

fn section(label: &str, der: &[u8]) -> String {
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = more;
    }
    text + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn made() -> Credentials {
        let certificate = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new([name.to_owned()]).unwrap();
            (params.self_signed(&key).unwrap().pem(), key)
        };
        let (own, key) = certificate("alice");
        Credentials {
            ca: certificate("old").0 + &certificate("new").0,
            certificate: own,
            key: key.serialize_pem().into(),
        }
    }

    #[test]
    fn one_text_becomes_the_three_files_that_it_was_made_of() {
        let whole = made();
        let text = whole
            .to_text()
            .expose_secret()
            .replace("-----BEGIN", "\nwords\n-----BEGIN");
        let read = Credentials::from_text(&text.replace('\n', "\r\n").into()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        read.write_into(folder.path()).unwrap();
        let file = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let unix = |text: &str| text.replace("\r\n", "\n");
        assert_eq!(file("ca.crt"), unix(&whole.ca));
        assert_eq!(file("tls.crt"), unix(&whole.certificate));
        assert_eq!(file("tls.key"), unix(whole.key.expose_secret()));
    }

    #[test]
    fn half_a_text_is_refused_with_what_is_missing() {
        let whole = made();
        let key = whole.key.expose_secret();
        for (text, keys, certificates) in [
            (String::new(), 0, 0),
            (format!("{key}{}", whole.certificate), 1, 1),
            (format!("{}{}", whole.certificate, whole.ca), 0, 3),
            (format!("{key}{key}{}{}", whole.certificate, whole.ca), 2, 3),
        ] {
            let error = Credentials::from_text(&text.into()).err();
            let wanted = CredentialsError::Parts { keys, certificates };
            assert_eq!(error, Some(wanted));
        }
        let cut = whole.to_text().expose_secret()[..200].to_owned();
        let error = Credentials::from_text(&cut.into()).err();
        assert!(
            matches!(error, Some(CredentialsError::Form(_))),
            "{error:?}"
        );
    }
}
