//! Who may do nothing any more though the certificate is good: revoked administrators, and those whose authority is gone.
//!
//! Every call asks, so that a connection that is open already is worth nothing. Revocations of other replicas are seen
//! within a second.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use nabu_common::identity::Identity;
use nabu_common::tls::{PeerIdentity, ServerTls};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tracing::error;

use crate::store::StoreError;
use crate::store::administrators::{Barred, Certified};
use crate::store::identity::SharedIdentities;

/// How often the store is asked, and how often an answer that goes on looks whether it may.
const LOOK: Duration = Duration::from_secs(1);

/// Why somebody with a certificate may do nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The name or the certificate is revoked.
    Revoked,
    /// The certificate ran out on a connection that is open.
    RanOut,
    /// Its authority is not trusted any more.
    Distrusted,
}

impl Reason {
    /// The word for programs.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Revoked => "REVOKED",
            Self::RanOut => "CERTIFICATE_RAN_OUT",
            Self::Distrusted => "AUTHORITY_RETIRED",
        }
    }

    /// What to tell them.
    pub(super) fn message(self, actor: &str) -> String {
        match self {
            Self::Revoked => format!(
                "{actor} or this certificate is revoked; another administrator can take that back with `nabuctl admin \
                restore`"
            ),
            Self::RanOut => format!("the certificate of {actor} has run out"),
            Self::Distrusted => format!(
                "the authority that certified {actor} is not trusted any more; `nabuctl admin add` makes a new \
                certificate"
            ),
        }
    }
}

/// The revocations in force; clones share them.
#[derive(Clone)]
pub struct BarredAdmins {
    store: SharedIdentities,
    tls: ServerTls,
    barred: Arc<ArcSwap<HashSet<Barred>>>,
}

impl BarredAdmins {
    /// Those of a store. `tls` knows which authorities are trusted.
    ///
    /// # Errors
    /// If the store fails: nobody is let in before it is known who may not.
    pub async fn load(store: SharedIdentities, tls: ServerTls) -> Result<Self, StoreError> {
        let this = Self {
            store,
            tls,
            barred: Arc::default(),
        };
        this.refresh().await?;
        Ok(this)
    }

    /// Asks the store who is revoked.
    pub(super) async fn refresh(&self) -> Result<(), StoreError> {
        let revocations = self.store.revocations().await?;
        let barred = revocations.into_iter().map(|one| one.barred).collect();
        self.barred.store(Arc::new(barred));
        Ok(())
    }

    /// Sees what other replicas revoke and restore, until `shutdown`.
    pub async fn keep_fresh(self, shutdown: CancellationToken) {
        let sleep = || shutdown.run_until_cancelled(tokio::time::sleep(LOOK));
        while sleep().await.is_some() {
            if let Err(failure) = self.refresh().await {
                error!(error = %failure, "cannot ask which administrators are revoked");
            }
        }
    }

    /// Why this peer may do nothing; `None` if nothing speaks against it.
    pub(super) fn bars(&self, peer: &PeerIdentity) -> Option<Reason> {
        if ran_out(peer) {
            return Some(Reason::RanOut);
        }
        if certified(peer).is_some_and(|admin| self.is_revoked(&admin)) {
            return Some(Reason::Revoked);
        }
        (!self.tls.trusts(peer)).then_some(Reason::Distrusted)
    }

    /// Whether a name or a certificate is revoked.
    pub(super) fn is_revoked(&self, admin: &Certified) -> bool {
        let barred = self.barred.load();
        barred.contains(&Barred::Name(admin.name.clone()))
            || barred.contains(&Barred::Certificate(admin.fingerprint.clone()))
    }

    /// An answer that ends when its peer is barred.
    pub(super) fn watch(
        &self,
        answer: http::Response<Body>,
        peer: PeerIdentity,
    ) -> http::Response<Body> {
        // Whoever ends the trust in their own certificate still hears that it is done.
        let mut look = tokio::time::interval_at(Instant::now() + LOOK, LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        answer.map(|body| {
            Body::new(Watched {
                body,
                barred: self.clone(),
                peer,
                look,
                ended: false,
            })
        })
    }
}

impl BarredAdmins {
    /// A request that ends where its peer is barred: what is asked may come long after the asking began.
    pub(super) fn watch_request(
        &self,
        request: http::Request<Body>,
        peer: PeerIdentity,
    ) -> http::Request<Body> {
        request.map(|body| {
            Body::new(Asked {
                body,
                barred: self.clone(),
                peer,
            })
        })
    }
}

/// A connection may outlive the certificate that it was opened with.
pub(super) fn ran_out(peer: &PeerIdentity) -> bool {
    peer.not_after <= SystemTime::now()
}

/// The administrator whom a peer is, if it is one.
pub(super) fn certified(peer: &PeerIdentity) -> Option<Certified> {
    match &peer.identity {
        Identity::Admin(name) => Some(Certified {
            name: name.clone(),
            fingerprint: peer.fingerprint.clone(),
        }),
        _ => None,
    }
}

struct Asked {
    body: Body,
    barred: BarredAdmins,
    peer: PeerIdentity,
}

impl HttpBody for Asked {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_ready()
            && let Some(reason) = self.barred.bars(&self.peer)
        {
            let message = reason.message(&self.peer.identity.to_string());
            return Poll::Ready(Some(Err(Status::permission_denied(message))));
        }
        polled
    }
}

struct Watched {
    body: Body,
    barred: BarredAdmins,
    peer: PeerIdentity,
    look: Interval,
    ended: bool,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if self.look.poll_tick(cx).is_ready()
            && let Some(reason) = self.barred.bars(&self.peer)
        {
            self.ended = true;
            let status = Status::permission_denied(reason.message(&self.peer.identity.to_string()));
            let mut trailers = http::HeaderMap::new();
            status.add_header(&mut trailers)?;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        // A tick that was taken asks to be called again only by the next one.
        if self.look.poll_tick(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.body.is_end_stream()
    }
}
