//! What the tests of a whole agent need: an API server and a hub, both in this process, on loopback.

pub(crate) mod api;
pub(crate) mod hub;

use std::path::Path;
use std::time::Duration;

use nabu_common::tls::TlsFiles;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};

/// No test waits longer for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// A certificate authority that lives as long as its test.
pub(crate) struct Ca {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { params, key, pem }
    }

    /// Writes the files of one side.
    pub(crate) fn issue(&self, folder: &Path, name: SanType) -> TlsFiles {
        std::fs::create_dir_all(folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = vec![name];
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let files = TlsFiles::in_folder(folder);
        std::fs::write(&files.ca, &self.pem).unwrap();
        std::fs::write(&files.cert, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }
}

pub(crate) fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

pub(crate) fn loopback() -> SanType {
    SanType::IpAddress([127, 0, 0, 1].into())
}
