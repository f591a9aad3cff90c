//! Mutual TLS from files or from memory: TLS 1.3 only, one crypto provider, certificates swapped without dropping a
//! connection.
//!
//! A new connection takes the newest certificates; one that is open keeps what it was made with. Who a peer is says
//! [`crate::identity`].

mod client;
mod connection;
mod crowd;
mod pin;
mod pinned;
mod proxy;
mod refusals;
mod server;
mod shares;
mod strangers;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use client::{ClientTls, Connector};
pub use connection::{Heard, PeerIdentity, Shown, TlsConnection};
pub use crowd::{CrowdLimits, Doorway, Standing};
pub use pin::CaPin;
pub use proxy::HttpProxy;
pub use refusals::{Refusal, RefusalMetrics, Refusals};
pub use server::{IncomingLimits, ServerTls, incoming};
pub use strangers::{
    StrangerAddress, StrangerConnection, StrangerLimits, incoming_with_strangers, network,
};

/// How often files are looked at for changes. A mount of a Secret follows its object within about a minute anyway.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);

/// Makes aws-lc-rs the crypto provider of the process; later calls change nothing.
pub fn install_crypto_provider() {
    // An error only says that one is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The PEM files of one side of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authorities that the other side must be certified by.
    pub ca: PathBuf,
    /// Our certificate chain.
    pub cert: PathBuf,
    /// Our private key.
    pub key: PathBuf,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read the TLS file {}; check the path and its mode", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file holds no usable PEM.
    #[error("the TLS file {} holds no {what} in PEM: {detail}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// The files do not fit together.
    #[error("the TLS files {} and {} do not fit together: {detail}", cert.display(), key.display())]
    Mismatch {
        /// The certificate file.
        cert: PathBuf,
        /// The key file.
        key: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// Certificates in memory do not fit together.
    #[error("the certificate and its key cannot be used: {0}")]
    Unusable(String),
}

/// Certificates in memory: what one side of a connection shows and trusts.
#[derive(Debug)]
pub struct TlsCredentials {
    /// Certificates of the authorities that the other side must be certified by.
    pub roots: Vec<CertificateDer<'static>>,
    /// Our certificate chain.
    pub chain: Vec<CertificateDer<'static>>,
    /// Our private key.
    pub key: PrivateKeyDer<'static>,
}

/// What a configuration is made of.
struct Material {
    roots: RootCertStore,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    digest: [u8; 32],
}

impl TryFrom<TlsCredentials> for Material {
    type Error = TlsError;

    fn try_from(credentials: TlsCredentials) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for root in credentials.roots {
            roots
                .add(root)
                .map_err(|error| TlsError::Unusable(error.to_string()))?;
        }
        Ok(Self {
            roots,
            chain: credentials.chain,
            key: credentials.key,
            digest: [0; 32],
        })
    }
}

impl TlsFiles {
    /// The usual three names in one folder: `ca.crt`, `tls.crt`, `tls.key`.
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            ca: folder.join("ca.crt"),
            cert: folder.join("tls.crt"),
            key: folder.join("tls.key"),
        }
    }

    fn read(&self) -> Result<Material, TlsError> {
        let ca = read(&self.ca)?;
        let cert = read(&self.cert)?;
        let key = read(&self.key)?;
        let mut hasher = Sha256::new();
        for part in [&ca, &cert, &key] {
            hasher.update(Sha256::digest(part));
        }
        let mut roots = RootCertStore::empty();
        for root in certificates(&self.ca, &ca)? {
            roots
                .add(root)
                .map_err(|error| pem(&self.ca, "certificate", &error))?;
        }
        Ok(Material {
            roots,
            chain: certificates(&self.cert, &cert)?,
            key: PrivateKeyDer::from_pem_slice(&key)
                .map_err(|error| pem(&self.key, "private key", &error))?,
            digest: hasher.finalize().into(),
        })
    }

    fn mismatch(&self, detail: String) -> TlsError {
        TlsError::Mismatch {
            cert: self.cert.clone(),
            key: self.key.clone(),
            detail,
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}

fn pem(path: &Path, what: &'static str, error: &dyn std::fmt::Display) -> TlsError {
    TlsError::Pem {
        path: path.to_owned(),
        what,
        detail: error.to_string(),
    }
}

fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_slice_iter(text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| pem(path, "certificate", &error))?;
    if found.is_empty() {
        return Err(pem(path, "certificate", &"no CERTIFICATE section"));
    }
    Ok(found)
}

/// Makes a configuration; the error says what does not fit together.
type Build<C> = fn(Material) -> Result<C, String>;

/// Where certificates come from, and the configuration that they gave last.
struct Reloading<C> {
    /// `None` if somebody hands them over.
    files: Option<TlsFiles>,
    build: Build<C>,
    loaded: ArcSwap<Loaded<C>>,
}

impl<C: Send + Sync + 'static> Reloading<C> {
    fn load(files: TlsFiles, build: Build<C>) -> Result<Self, TlsError> {
        let loaded = load(&files, build)?;
        Ok(Self {
            files: Some(files),
            build,
            loaded: ArcSwap::from_pointee(loaded),
        })
    }

    fn hold(credentials: TlsCredentials, build: Build<C>) -> Result<Self, TlsError> {
        Ok(Self {
            files: None,
            build,
            loaded: ArcSwap::from_pointee(held(credentials, build)?),
        })
    }

    fn config(&self) -> Arc<C> {
        Arc::clone(&self.loaded.load().config)
    }

    fn replace(&self, credentials: TlsCredentials) -> Result<(), TlsError> {
        self.loaded.store(Arc::new(held(credentials, self.build)?));
        Ok(())
    }

    /// Takes changed files over; `true` if they had changed.
    fn reload(&self) -> Result<bool, TlsError> {
        let Some(files) = &self.files else {
            return Ok(false);
        };
        let loaded = load(files, self.build)?;
        let changed = loaded.digest != self.loaded.load().digest;
        if changed {
            self.loaded.store(Arc::new(loaded));
        }
        Ok(changed)
    }

    async fn keep_fresh(&self, shutdown: CancellationToken) {
        let Some(files) = &self.files else {
            return;
        };
        let mut reported = None;
        while shutdown
            .run_until_cancelled(tokio::time::sleep(RELOAD_INTERVAL))
            .await
            .is_some()
        {
            match self.reload() {
                Ok(changed) => {
                    if changed {
                        info!(cert = %files.cert.display(), "TLS files were read again");
                    }
                    reported = None;
                }
                Err(error) => {
                    let text = error.to_string();
                    if reported.as_ref() != Some(&text) {
                        warn!(
                            error = text,
                            "TLS files have changed and cannot be used; the last good ones stay"
                        );
                        reported = Some(text);
                    }
                }
            }
        }
    }
}

/// A rustls configuration, and the digest of the files that it was made of.
struct Loaded<C> {
    config: Arc<C>,
    digest: [u8; 32],
}

fn load<C>(files: &TlsFiles, build: Build<C>) -> Result<Loaded<C>, TlsError> {
    let material = files.read()?;
    let digest = material.digest;
    let config = build(material).map_err(|detail| files.mismatch(detail))?;
    Ok(Loaded {
        config: Arc::new(config),
        digest,
    })
}

fn held<C>(credentials: TlsCredentials, build: Build<C>) -> Result<Loaded<C>, TlsError> {
    let material = Material::try_from(credentials)?;
    let digest = material.digest;
    let config = build(material).map_err(TlsError::Unusable)?;
    Ok(Loaded {
        config: Arc::new(config),
        digest,
    })
}
