//! What becomes of connections that are turned away: counted for each door by reason, and told in the log now and then.
//!
//! Whoever is turned away can come again as often as it likes. So there are few reasons, and few lines for each.

use std::collections::HashMap;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use rustls::CertificateError;
use tokio::time::Instant;
use tracing::{debug, warn};

/// Lines of the log for one reason at one door within a [`WINDOW`].
const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);

/// Why a connection came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Its address has its share of those that have not shown who they are.
    AddressShare,
    /// It made room for another.
    GaveWay,
    /// There was no room for a peer without a certificate.
    NoRoom,
    /// One identity has too many connections.
    PeerShare,
    /// The handshake, or a connection without a certificate, took too long.
    TimedOut,
    /// No request came after the handshake.
    NoRequest,
    /// The peer went away during the handshake, or broke it off.
    BrokenOff,
    /// The peer does not take our certificate.
    RefusedByPeer,
    /// What came is not TLS 1.3, or not ours.
    Protocol,
    /// A certificate is needed, and none was shown.
    NoCertificate,
    /// No authority that we trust has certified it.
    UnknownAuthority,
    /// Its certificate has run out.
    Expired,
    /// Its certificate is not valid yet.
    NotYetValid,
    /// Its certificate has no name that we know, or more than one.
    WrongName,
    /// Its certificate is not good for another reason.
    BadCertificate,
    /// Something else.
    Other,
}

impl Refusal {
    /// All there are.
    pub const ALL: [Self; 16] = [
        Self::AddressShare,
        Self::GaveWay,
        Self::NoRoom,
        Self::PeerShare,
        Self::TimedOut,
        Self::NoRequest,
        Self::BrokenOff,
        Self::RefusedByPeer,
        Self::Protocol,
        Self::NoCertificate,
        Self::UnknownAuthority,
        Self::Expired,
        Self::NotYetValid,
        Self::WrongName,
        Self::BadCertificate,
        Self::Other,
    ];

    /// The value of the label `reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AddressShare => "AddressShare",
            Self::GaveWay => "GaveWay",
            Self::NoRoom => "NoRoom",
            Self::PeerShare => "PeerShare",
            Self::TimedOut => "TimedOut",
            Self::NoRequest => "NoRequest",
            Self::BrokenOff => "BrokenOff",
            Self::RefusedByPeer => "RefusedByPeer",
            Self::Protocol => "Protocol",
            Self::NoCertificate => "NoCertificate",
            Self::UnknownAuthority => "UnknownAuthority",
            Self::Expired => "Expired",
            Self::NotYetValid => "NotYetValid",
            Self::WrongName => "WrongName",
            Self::BadCertificate => "BadCertificate",
            Self::Other => "Other",
        }
    }

    /// Why a handshake failed.
    pub(super) fn of_handshake(error: &io::Error) -> Self {
        let source = error.get_ref().and_then(|source| source.downcast_ref());
        match source {
            Some(error) => Self::of_tls(error),
            None => match error.kind() {
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe => Self::BrokenOff,
                _ => Self::Other,
            },
        }
    }

    fn of_tls(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::NoCertificatesPresented => Self::NoCertificate,
            rustls::Error::InvalidCertificate(error) => Self::of_certificate(error),
            rustls::Error::AlertReceived(_) => Self::RefusedByPeer,
            rustls::Error::InvalidMessage(_)
            | rustls::Error::InappropriateMessage { .. }
            | rustls::Error::InappropriateHandshakeMessage { .. }
            | rustls::Error::PeerIncompatible(_)
            | rustls::Error::PeerMisbehaved(_)
            | rustls::Error::NoApplicationProtocol
            | rustls::Error::DecryptError => Self::Protocol,
            _ => Self::Other,
        }
    }

    fn of_certificate(error: &CertificateError) -> Self {
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotYetValid
            }
            // The right name of an authority with another key is none that we trust.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Self::UnknownAuthority
            }
            _ => Self::BadCertificate,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    door: &'static str,
    reason: &'static str,
}

/// The counters of all doors; clones share them.
#[derive(Clone, Debug, Default)]
pub struct RefusalMetrics(Family<Labels, Counter>);

impl RefusalMetrics {
    /// Registers them under this name.
    pub fn register(registry: &mut Registry, name: &str) -> Self {
        let metrics = Self::default();
        let help =
            "Connections that were refused or cut before anything was asked, by door and reason";
        registry.register(name, help, metrics.0.clone());
        metrics
    }

    /// For one door.
    pub fn at(&self, door: &'static str) -> Refusals {
        // From the start, so that the first of a kind is an increase.
        for reason in Refusal::ALL {
            let reason = reason.as_str();
            drop(self.0.get_or_create(&Labels { door, reason }));
        }
        Refusals {
            metrics: self.clone(),
            door,
            lines: Arc::default(),
        }
    }
}

/// Who was turned away at one door; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    metrics: RefusalMetrics,
    door: &'static str,
    lines: Arc<Mutex<HashMap<Refusal, Lines>>>,
}

/// What the log has of a reason.
#[derive(Clone, Copy, Debug)]
struct Lines {
    begun: Instant,
    written: u32,
    unwritten: u64,
}

impl Refusals {
    /// Counts one, and tells of it if not too much was told lately.
    pub fn refuse(&self, reason: Refusal, remote: SocketAddr, detail: impl Display) {
        let labels = Labels {
            door: self.door,
            reason: reason.as_str(),
        };
        self.metrics.0.get_or_create(&labels).inc();
        let (door, reason_text) = (self.door, reason.as_str());
        match self.line(reason, Instant::now()) {
            Some(others) => {
                warn!(door, reason = reason_text, %remote, %detail, others, "refused a connection");
            }
            None => {
                debug!(door, reason = reason_text, %remote, %detail, "refused a connection");
            }
        }
    }

    /// How many were not told of before this one, if this one is to be.
    fn line(&self, reason: Refusal, now: Instant) -> Option<u64> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = lines.entry(reason).or_insert(Lines {
            begun: now,
            written: 0,
            unwritten: 0,
        });
        if now.saturating_duration_since(lines.begun) >= WINDOW {
            lines.begun = now;
            lines.written = 0;
        }
        if lines.written >= LINES {
            lines.unwritten += 1;
            return None;
        }
        lines.written += 1;
        Some(std::mem::take(&mut lines.unwritten))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_log_has_some_lines_of_each_reason_and_the_number_of_the_others() {
        let (refusals, now) = (RefusalMetrics::default().at("agents"), Instant::now());
        let written = (0..1000).filter(|_| refusals.line(Refusal::Expired, now).is_some());
        assert_eq!(written.count(), LINES as usize);
        assert_eq!(refusals.line(Refusal::WrongName, now), Some(0));
        let later = now + WINDOW;
        let others = Some(1000 - u64::from(LINES));
        assert_eq!(refusals.line(Refusal::Expired, later), others);
        assert_eq!(refusals.line(Refusal::Expired, later), Some(0));
    }

    #[test]
    fn every_reason_has_a_name_of_its_own() {
        let names: std::collections::HashSet<_> = Refusal::ALL.map(Refusal::as_str).into();
        assert_eq!(names.len(), Refusal::ALL.len());
    }

    #[test]
    fn what_went_wrong_in_a_handshake_is_told_apart() {
        let of = |error| Refusal::of_handshake(&io::Error::new(io::ErrorKind::InvalidData, error));
        let certificate = |error| of(rustls::Error::InvalidCertificate(error));
        assert_eq!(
            of(rustls::Error::NoCertificatesPresented),
            Refusal::NoCertificate
        );
        assert_eq!(certificate(CertificateError::Expired), Refusal::Expired);
        assert_eq!(
            certificate(CertificateError::NotValidYet),
            Refusal::NotYetValid
        );
        assert_eq!(
            certificate(CertificateError::UnknownIssuer),
            Refusal::UnknownAuthority
        );
        assert_eq!(
            certificate(CertificateError::InvalidPurpose),
            Refusal::BadCertificate
        );
        let gone = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert_eq!(Refusal::of_handshake(&gone), Refusal::BrokenOff);
    }
}
