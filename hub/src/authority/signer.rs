//! One authority with its key: makes certificates, and reads the requests for them.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use nabu_common::identity::{Identity, TrustDomain};
use nabu_common::tls::CaPin;
use rand::RngCore as _;
use rcgen::{
    CertificateSigningRequestParams, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PublicKey, PublicKeyData, SerialNumber,
};
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::pki::{self, Subject};
use crate::store::identity::CertificateRecord;

/// No request for a certificate is longer.
const LONGEST_REQUEST: usize = 8 * 1024;

/// Why no certificate can be made.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The request cannot be used.
    #[error("the certificate signing request cannot be used: {0}")]
    Request(String),
    /// The authority cannot be used.
    #[error("the authority's certificate and key cannot be used: {0}")]
    Authority(String),
    /// The certificate cannot be made.
    #[error(transparent)]
    Pki(#[from] pki::PkiError),
}

/// The public key of a request whose signature is right.
pub struct RequestedKey(PublicKey);

impl RequestedKey {
    /// Reads a request (PKCS #10, DER), and checks that who made it has the private key.
    ///
    /// # Errors
    /// If it cannot be read, its signature is wrong, or the key is of a kind that is not taken.
    pub fn of_request(der: &[u8]) -> Result<Self, SignError> {
        let wrong = |detail: &str| SignError::Request(detail.to_owned());
        if der.len() > LONGEST_REQUEST {
            return Err(wrong("it is too long"));
        }
        let request = CertificateSigningRequestDer::from(der);
        let request = CertificateSigningRequestParams::from_der(&request)
            .map_err(|error| SignError::Request(error.to_string()))?;
        let key = request.public_key;
        let taken = [
            &PKCS_ECDSA_P256_SHA256,
            &PKCS_ECDSA_P384_SHA384,
            &PKCS_ED25519,
        ];
        if !taken.contains(&key.algorithm()) {
            return Err(wrong("the key must be ECDSA P-256 or P-384, or Ed25519"));
        }
        Ok(Self(key))
    }

    /// SHA-256 of the key.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.der_bytes()).into()
    }
}

/// A certificate that was just made.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate alone.
    pub certificate: CertificateDer<'static>,
    /// What the store keeps of it.
    pub record: CertificateRecord,
}

/// One authority with its key.
pub struct Signer {
    certificate: CertificateDer<'static>,
    pin: CaPin,
    issuer: Issuer<'static, KeyPair>,
    not_after: Timestamp,
}

impl Signer {
    /// Makes an authority; gives it with its private key (PKCS #8, DER).
    ///
    /// # Errors
    /// If the random number generator fails.
    pub fn generate(domain: &TrustDomain, now: Timestamp) -> Result<(Self, Vec<u8>), SignError> {
        let key = KeyPair::generate().map_err(pki::PkiError::from)?;
        let mut params = pki::authority_params(domain).map_err(pki::PkiError::from)?;
        let now = SystemTime::from(now);
        params.not_before = (now - pki::BACKDATED).into();
        params.not_after = (now + pki::AUTHORITY_LIFETIME).into();
        let certificate = params.self_signed(&key).map_err(pki::PkiError::from)?;
        let secret = key.serialize_der();
        Ok((Self::new(certificate.der().clone(), key)?, secret))
    }

    /// An authority from its certificate and private key.
    ///
    /// # Errors
    /// If they are not those of one authority.
    pub fn new(certificate: CertificateDer<'static>, key: KeyPair) -> Result<Self, SignError> {
        let wrong = |detail: &str| SignError::Authority(detail.to_owned());
        let (_, parsed) = X509Certificate::from_der(&certificate)
            .map_err(|error| SignError::Authority(error.to_string()))?;
        if !parsed.is_ca() {
            return Err(wrong("the certificate is not one of an authority"));
        }
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(wrong("the key is not that of the certificate"));
        }
        let not_after = Timestamp::from_second(parsed.validity().not_after.timestamp())
            .map_err(|error| SignError::Authority(error.to_string()))?;
        let pin = CaPin::of_certificate(&certificate).ok_or_else(|| wrong("unreadable"))?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key)
            .map_err(|error| SignError::Authority(error.to_string()))?;
        Ok(Self {
            certificate,
            pin,
            issuer,
            not_after,
        })
    }

    /// Names the authority.
    pub fn pin(&self) -> CaPin {
        self.pin
    }

    /// Its certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// When it runs out.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// Certifies a key.
    ///
    /// # Errors
    /// If the subject's name cannot be certified.
    pub fn sign(
        &self,
        subject: &Subject,
        domain: &TrustDomain,
        key: &RequestedKey,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<Issued, SignError> {
        self.sign_key(subject, domain, &key.0, now, (pki::BACKDATED, lifetime))
    }

    /// When a certificate would run out: everything of [`Signer::sign`] that can be refused before a key is looked at.
    ///
    /// # Errors
    /// If the subject's name cannot be certified.
    pub fn until(
        &self,
        subject: &Subject,
        domain: &TrustDomain,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<Timestamp, SignError> {
        pki::leaf_params(subject, domain, now.into(), (pki::BACKDATED, lifetime))?;
        Ok(in_whole_seconds(now + lifetime))
    }

    /// The same for a key of our own, valid from `validity.0` before `now` to `validity.1` after it.
    pub(super) fn sign_key(
        &self,
        subject: &Subject,
        domain: &TrustDomain,
        key: &impl PublicKeyData,
        now: Timestamp,
        validity: (Duration, Duration),
    ) -> Result<Issued, SignError> {
        let mut params = pki::leaf_params(subject, domain, SystemTime::from(now), validity)?;
        let mut serial = [0; 16];
        rand::rng().fill_bytes(&mut serial);
        // A positive number without leading zeros.
        serial[0] = serial[0] & 0x7f | 0x40;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        let certificate = params
            .signed_by(key, &self.issuer)
            .map_err(pki::PkiError::from)?;
        let identity = subject.identity();
        let record = CertificateRecord {
            fingerprint: hex::encode(Sha256::digest(certificate.der())),
            serial: hex::encode(serial),
            identity: identity.to_string(),
            cluster: match identity {
                Identity::Cluster(id) => Some(id.clone()),
                _ => None,
            },
            authority: self.pin.to_string(),
            issued_at: now,
            not_after: in_whole_seconds(now + validity.1),
        };
        Ok(Issued {
            certificate: certificate.der().clone(),
            record,
        })
    }
}

/// As dates in certificates are.
fn in_whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use nabu_common::identity::identity_of_certificate;
    use rcgen::CertificateParams;

    use super::*;

    fn domain() -> TrustDomain {
        "nabu".parse().unwrap()
    }

    fn request(key: &KeyPair) -> Vec<u8> {
        let params = CertificateParams::new(Vec::new()).unwrap();
        params.serialize_request(key).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_is_for_the_name_that_the_hub_chooses_and_the_key_of_the_request() {
        let now = Timestamp::now();
        let (signer, secret) = Signer::generate(&domain(), now).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["evil.example".to_owned()]).unwrap();
        let evil = "spiffe://nabu/admin/root".try_into().unwrap();
        params.subject_alt_names.push(rcgen::SanType::URI(evil));
        let der = params.serialize_request(&key).unwrap().der().to_vec();
        let requested = RequestedKey::of_request(&der).unwrap();
        let subject = Subject::cluster(&"prod-eu".parse().unwrap());
        let hour = Duration::from_hours(1);
        let issued = signer
            .sign(&subject, &domain(), &requested, now, hour)
            .unwrap();
        let identity = identity_of_certificate(&issued.certificate, &domain()).unwrap();
        assert_eq!(identity.to_string(), "cluster/prod-eu");
        let (_, parsed) = X509Certificate::from_der(&issued.certificate).unwrap();
        assert_eq!(parsed.public_key().raw, key.subject_public_key_info());
        assert_eq!(
            parsed.validity().not_after.timestamp(),
            issued.record.not_after.as_second()
        );
        assert_eq!(hex::encode(parsed.raw_serial()), issued.record.serial);
        // The authority is the same when it is put together again.
        let kept = KeyPair::try_from(secret).unwrap();
        let again = Signer::new(signer.certificate().clone(), kept).unwrap();
        assert_eq!(again.pin(), signer.pin());
    }

    #[test]
    fn a_request_that_is_not_signed_by_its_key_is_refused() {
        let mut der = request(&KeyPair::generate().unwrap());
        let last = der.len() - 1;
        der[last] ^= 1;
        assert!(RequestedKey::of_request(&der).is_err());
        assert!(RequestedKey::of_request(b"").is_err());
        assert!(RequestedKey::of_request(&vec![0x30; LONGEST_REQUEST + 1]).is_err());
    }

    #[test]
    fn a_key_and_a_certificate_of_two_authorities_are_refused() {
        let now = Timestamp::now();
        let (one, _) = Signer::generate(&domain(), now).unwrap();
        let other = KeyPair::generate().unwrap();
        assert!(Signer::new(one.certificate().clone(), other).is_err());
    }
}
