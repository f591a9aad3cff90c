//! Owns the connection to the hub: opens a session, keeps it alive, notices when it is dead, and opens the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use nabu_common::ops::Check;
use nabu_common::tls::Connector;
use nabu_proto::agent_v1::agent_service_client::AgentServiceClient;
use nabu_proto::agent_v1::session_request::Frame as ToHubFrame;
use nabu_proto::agent_v1::session_response::Frame as FromHubFrame;
use nabu_proto::agent_v1::{Goodbye, GoodbyeReason, Heartbeat, Hello, SessionResponse, Welcome};
use nabu_proto::{MAX_FRAME_BYTES, PROTOCOL_VERSION};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tonic::transport::Endpoint;
use tracing::{info, warn};

use super::outbox::{self, Outbox};
use super::renewal::{Meant, RENEWAL, Renewal};
use super::{Backoff, SessionEvent, convert};
use crate::identity::Identity;
use crate::metrics::Metrics;

/// How long the hub may take to be reached, and then to say Welcome.
const OPENING: Duration = Duration::from_secs(10);
/// What the two ends of a stream say to each other while nothing happens, if Welcome names no interval.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// So many intervals without a frame end the session.
const SILENT_INTERVALS: u32 = 3;
/// How long to keep away when another agent of this cluster took over, before jitter.
const AFTER_SUPERSEDED: Duration = Duration::from_secs(15);
/// A session that lasted so long counts as a success: the waits between tries start over.
const STABLE: Duration = Duration::from_secs(10);
/// A clock that is off by more is worth a warning.
const LARGE_SKEW: Duration = Duration::from_mins(1);
/// What rustls says when the other side does not take our certificate.
const ALERT: &str = "received fatal alert";
/// What a frame needs beside its content on the wire.
const FRAME_MARGIN: usize = 64;

/// What the agent says of itself in Hello.
#[derive(Clone, Debug)]
pub struct Introduction {
    /// The UID of the namespace kube-system; empty if we may not read it.
    pub kube_system_uid: String,
    /// The version of the API server.
    pub kubernetes_version: String,
    /// The responder names that we serve.
    pub responders: Vec<String>,
    /// What people call the cluster.
    pub cluster_name: String,
    /// The cluster id that we were configured with.
    pub cluster_id: String,
}

/// Keeps a session with the hub.
pub struct Client {
    /// The address of the hub.
    pub endpoint: Endpoint,
    /// Shows who we are.
    pub identity: Identity,
    /// What to say in Hello.
    pub introduction: Introduction,
    /// `EventResponses` that the hub has not accepted; told in heartbeats.
    pub backlog: Arc<AtomicU64>,
    /// What operators see.
    pub metrics: Arc<Metrics>,
    /// Ready while a session is open.
    pub check: Check,
    /// Frames and news for the rest of the agent.
    pub events: mpsc::Sender<SessionEvent>,
    /// Slots that became free; bounded by the slots.
    pub notices: mpsc::UnboundedSender<SessionEvent>,
}

/// What the end of a session means for the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Cause {
    /// Nothing beside that it ended.
    #[default]
    Other,
    /// Another agent of this cluster took over.
    Superseded,
    /// The next session shall begin at once, with a new certificate.
    Renewed,
    /// The hub does not take our certificate.
    TurnedAway,
}

/// How a session ended.
#[derive(Debug, Default)]
struct End {
    /// Why, for people; empty when we ended it ourselves.
    reason: String,
    /// Welcome was received.
    established: bool,
    cause: Cause,
    /// Not before this.
    wait: Duration,
}

impl End {
    fn because(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            ..Self::default()
        }
    }

    /// An error of the connection or the stream, which may be the hub's word on our certificate: with TLS 1.3 it looks at
    /// that after our side of the handshake is done.
    fn broken(reason: String) -> Self {
        let cause = if reason.contains(ALERT) {
            Cause::TurnedAway
        } else {
            Cause::Other
        };
        Self {
            reason,
            cause,
            ..Self::default()
        }
    }
}

impl Client {
    /// Opens sessions one after the other, until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        for number in 1.. {
            if number > 1 {
                self.metrics.reconnects.inc();
            }
            let started = Instant::now();
            let end = self.session(number, &shutdown).await;
            if shutdown.is_cancelled() || self.events.is_closed() {
                break;
            }
            if end.cause == Cause::Renewed {
                continue;
            }
            if end.established && started.elapsed() >= STABLE {
                backoff.reset();
            }
            let turned_away = end.cause == Cause::TurnedAway;
            if let Some(keeper) = self.identity.keeper()
                && (turned_away || !end.established)
            {
                keeper.failed(turned_away.then(|| end.reason.clone())).await;
            }
            let wait = backoff.next(end.wait, rand::random());
            let reason = self.with_remedy(end.reason).await;
            self.check
                .set_unready(format!("no session with the hub: {reason}"));
            warn!(
                hub = %self.endpoint.uri(),
                reason,
                retry_in = ?wait,
                "no session with the hub; work goes on when it is back. Check --hub, the network and the certificates"
            );
            if shutdown
                .run_until_cancelled(tokio::time::sleep(wait))
                .await
                .is_none()
            {
                break;
            }
        }
        self.check.set_unready("shutting down");
    }

    /// The reason for the end of a session, and what people have to do if they have to do something: the hub's answer to a
    /// certificate of the past does not say that.
    async fn with_remedy(&self, reason: String) -> String {
        let needs = match self.identity.keeper() {
            Some(keeper) => keeper.needs().await,
            None => None,
        };
        match needs {
            Some(needs) if !reason.contains(&needs) => format!("{reason}; {needs}"),
            _ => reason,
        }
    }

    async fn session(&self, number: u64, shutdown: &CancellationToken) -> End {
        let (outbox, outgoing) = outbox::queues(number, self.notices.clone());
        let connector = match shutdown
            .run_until_cancelled(self.identity.connector())
            .await
        {
            None => return End::default(),
            Some(Err(reason)) => return End::because(reason),
            Some(Ok(connector)) => connector,
        };
        let opening = tokio::time::timeout(OPENING, self.open(connector, &outbox, outgoing));
        let opened = tokio::select! {
            () = shutdown.cancelled() => return End::default(),
            opened = opening => opened.unwrap_or_else(|_| Err(End::because(format!("no answer within {OPENING:?}")))),
        };
        let (mut stream, welcome) = match opened {
            Ok(opened) => opened,
            Err(end) => return end,
        };
        let interval = duration(welcome.heartbeat_interval.as_ref()).unwrap_or(HEARTBEAT);
        info!(
            hub = %self.endpoint.uri(), hub_version = welcome.hub_version, epoch = welcome.session_epoch,
            protocol = welcome.protocol_version, "session open"
        );
        self.note_skew(&welcome);
        let renewal = Renewal::begin(self.identity.keeper(), &welcome).await;
        let opened = SessionEvent::Opened {
            session: number,
            outbox: outbox.clone(),
            credit: welcome.credit,
            resync: duration(welcome.resync_interval.as_ref()),
        };
        if self.events.send(opened).await.is_err() {
            return End::default();
        }
        self.metrics.session_connected.set(1);
        self.check.set_ready();
        let mut end = self
            .converse(number, &mut stream, &outbox, (interval, renewal), shutdown)
            .await;
        end.established = true;
        self.metrics.session_connected.set(0);
        if !shutdown.is_cancelled() {
            // Nobody puts frames into a session that has ended. If nobody listens, the agent stops.
            let superseded = end.cause == Cause::Superseded;
            let _ = self.events.send(SessionEvent::Closed { superseded }).await;
        }
        if shutdown.is_cancelled() || end.cause == Cause::Renewed {
            // Ends our half, because the others have dropped theirs by now or are about to; the hub ends its own, unless
            // it hangs.
            drop(outbox);
            let rest = async { while let Ok(Some(_)) = stream.message().await {} };
            let _ = tokio::time::timeout(Duration::from_secs(1), rest).await;
        }
        end
    }

    fn note_skew(&self, welcome: &Welcome) {
        let skew = welcome.clock_skew.unwrap_or_default();
        let seconds = Duration::new(skew.seconds.unsigned_abs(), skew.nanos.unsigned_abs());
        let ahead = skew.seconds >= 0 && skew.nanos >= 0;
        let signed = seconds.as_secs_f64() * if ahead { 1.0 } else { -1.0 };
        self.metrics.clock_skew.set(signed);
        if seconds >= LARGE_SKEW {
            let direction = if ahead { "ahead of" } else { "behind" };
            warn!(
                ?seconds,
                direction, "this clock and the hub's differ; set the time of the node"
            );
        }
    }

    async fn open(
        &self,
        connector: Connector,
        outbox: &Outbox,
        outgoing: outbox::Outgoing,
    ) -> Result<(Streaming<SessionResponse>, Welcome), End> {
        let channel = self
            .endpoint
            .connect_with_connector(connector)
            .await
            .map_err(|error| End::broken(crate::status::chain(&error)))?;
        let mut client = AgentServiceClient::new(channel)
            .max_decoding_message_size(MAX_FRAME_BYTES + FRAME_MARGIN)
            .max_encoding_message_size(MAX_FRAME_BYTES + FRAME_MARGIN);
        outbox
            .send_control(convert::frame(ToHubFrame::Hello(self.hello())))
            .map_err(|error| End::because(error.to_string()))?;
        let refused = |status: tonic::Status| End::broken(crate::status::chain(&status));
        let mut stream = client
            .session(outgoing)
            .await
            .map_err(refused)?
            .into_inner();
        match stream
            .message()
            .await
            .map_err(refused)?
            .and_then(|answer| answer.frame)
        {
            Some(FromHubFrame::Welcome(welcome)) => Ok((stream, welcome)),
            Some(FromHubFrame::Goodbye(goodbye)) => Err(farewell(&goodbye)),
            _ => Err(End::because(
                "the hub answered Hello with neither Welcome nor Goodbye",
            )),
        }
    }

    fn hello(&self) -> Hello {
        let own = &self.introduction;
        Hello {
            protocol_version: PROTOCOL_VERSION,
            capabilities: ["watch-finished", "tell-missing"]
                .into_iter()
                .chain(self.identity.keeper().map(|_| RENEWAL))
                .map(str::to_owned)
                .collect(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            kube_system_uid: own.kube_system_uid.clone(),
            kubernetes_version: own.kubernetes_version.clone(),
            responder_names: own.responders.clone(),
            cluster_name: own.cluster_name.clone(),
            cluster_id: own.cluster_id.clone(),
            status_window: 0,
            sent_at: Some(convert::time_to_wire(Timestamp::now())),
        }
    }

    /// Frames in, heartbeats out, until one side ends it or the hub falls silent.
    async fn converse(
        &self,
        number: u64,
        stream: &mut Streaming<SessionResponse>,
        outbox: &Outbox,
        (interval, mut renewal): (Duration, Renewal),
        shutdown: &CancellationToken,
    ) -> End {
        let mut heartbeat = tokio::time::interval_at(Instant::now() + interval, interval);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard_at = Instant::now();
        loop {
            let answer = tokio::select! {
                biased;
                () = shutdown.cancelled() => return End::default(),
                () = outbox.aborted() => return End::because("the hub takes frames too slowly"),
                _ = heartbeat.tick() => {
                    if heard_at.elapsed() >= interval * SILENT_INTERVALS {
                        return End::because(format!("the hub has been silent for {:?}", heard_at.elapsed()));
                    }
                    let beat = Heartbeat {
                        sent_at: Some(convert::time_to_wire(Timestamp::now())),
                        backlog: self.backlog.load(Ordering::Relaxed),
                    };
                    if let Err(overflow) = outbox.send_control(convert::frame(ToHubFrame::Heartbeat(beat))) {
                        return End::because(overflow.to_string());
                    }
                    continue;
                }
                () = renewal.due() => {
                    if let Some(question) = renewal.ask().await
                        && let Err(overflow) = outbox.send_control(convert::frame(question))
                    {
                        return End::because(overflow.to_string());
                    }
                    continue;
                }
                // Behind the heartbeat, which a storm of frames must not hold up.
                answer = stream.message() => answer,
            };
            heard_at = Instant::now();
            let frame = match answer {
                Ok(Some(SessionResponse {
                    frame: Some(FromHubFrame::Goodbye(goodbye)),
                })) => return farewell(&goodbye),
                Ok(Some(SessionResponse { frame: Some(frame) })) => frame,
                // A frame of a newer hub that we do not know.
                Ok(Some(SessionResponse { frame: None })) => continue,
                Ok(None) => return End::because("the hub ended the session"),
                Err(status) => {
                    return End::because(format!("{:?}: {}", status.code(), status.message()));
                }
            };
            let frame = match renewal.take(frame).await {
                Meant::Other(frame) => *frame,
                Meant::Done => continue,
                Meant::Switch => {
                    return End {
                        cause: Cause::Renewed,
                        ..End::because("the certificate is renewed")
                    };
                }
            };
            match convert::from_wire(frame, number) {
                Ok(Some(frame)) => {
                    if self
                        .events
                        .send(SessionEvent::Frame {
                            session: number,
                            frame,
                        })
                        .await
                        .is_err()
                    {
                        return End::default();
                    }
                }
                Ok(None) => {}
                Err(error) => warn!(%error, "ignored a frame"),
            }
        }
    }
}

fn farewell(goodbye: &Goodbye) -> End {
    let cause = match goodbye.reason() {
        GoodbyeReason::Superseded => Cause::Superseded,
        GoodbyeReason::Revoked | GoodbyeReason::CertificateOutdated => Cause::TurnedAway,
        _ => Cause::Other,
    };
    let asked = duration(goodbye.reconnect_after.as_ref()).unwrap_or_default();
    let wait = if cause == Cause::Superseded {
        asked.max(AFTER_SUPERSEDED)
    } else {
        asked
    };
    let reason = goodbye
        .reason()
        .as_str_name()
        .trim_start_matches("GOODBYE_REASON_");
    End {
        reason: format!("the hub said goodbye ({reason}): {}", goodbye.message),
        cause,
        wait,
        established: false,
    }
}

/// A positive duration, if there is one.
fn duration(wire: Option<&prost_types::Duration>) -> Option<Duration> {
    let duration = Duration::try_from(*wire?).ok()?;
    (!duration.is_zero()).then_some(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superseded_agent_keeps_away_longer_than_the_hub_asks() {
        let goodbye = Goodbye {
            reason: GoodbyeReason::Superseded.into(),
            ..Default::default()
        };
        let end = farewell(&goodbye);
        assert!(end.cause == Cause::Superseded && end.wait == AFTER_SUPERSEDED);
    }

    #[test]
    fn the_hubs_wish_to_come_back_later_is_kept() {
        let after = Some(prost_types::Duration {
            seconds: 42,
            nanos: 0,
        });
        let goodbye = Goodbye {
            reason: GoodbyeReason::Overloaded.into(),
            reconnect_after: after,
            message: String::new(),
        };
        assert_eq!(farewell(&goodbye).wait, Duration::from_secs(42));
    }
}
