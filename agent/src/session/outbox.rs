//! Owns the two queues to the hub and their order: acknowledgements and heartbeats never wait behind data.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use nabu_proto::agent_v1::SessionRequest;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{SessionEvent, ToHub, convert};

/// Acknowledgements: at most the status window of 256 is open at one time.
const CONTROL_FRAMES: usize = 1024;
/// Data: those that hold a slot, and the two ends of an inventory.
const DATA_FRAMES: usize = 256;

/// The hub takes frames more slowly than the protocol lets us send them: the session is of no use any more.
#[derive(Debug, thiserror::Error)]
#[error("the hub does not take the frames it gave credit for")]
pub struct Overflow;

/// Takes frames for the hub; never waits.
#[derive(Clone, Debug)]
pub struct Outbox {
    control: mpsc::Sender<SessionRequest>,
    data: mpsc::Sender<ToHub>,
    aborted: CancellationToken,
}

impl Outbox {
    /// Queues a frame.
    pub fn send(&self, frame: ToHub) -> Result<(), Overflow> {
        match frame {
            ToHub::Applied { .. } | ToHub::StatusRefused { .. } => {
                self.send_control(convert::to_wire(frame))
            }
            _ => self.data.try_send(frame).map_err(|_| Overflow),
        }
    }

    /// Ends the session: the next one starts over with the whole inventory.
    pub fn abort(&self) {
        self.aborted.cancel();
    }

    pub(super) async fn aborted(&self) {
        self.aborted.cancelled().await;
    }

    pub(super) fn send_control(&self, frame: SessionRequest) -> Result<(), Overflow> {
        self.control.try_send(frame).map_err(|_| Overflow)
    }
}

/// What tonic pulls frames from.
pub(super) struct Outgoing {
    session: u64,
    control: mpsc::Receiver<SessionRequest>,
    data: mpsc::Receiver<ToHub>,
    notices: mpsc::UnboundedSender<SessionEvent>,
}

pub(super) fn queues(
    session: u64,
    notices: mpsc::UnboundedSender<SessionEvent>,
) -> (Outbox, Outgoing) {
    let (control_in, control) = mpsc::channel(CONTROL_FRAMES);
    let (data_in, data) = mpsc::channel(DATA_FRAMES);
    let aborted = CancellationToken::new();
    (
        Outbox {
            control: control_in,
            data: data_in,
            aborted,
        },
        Outgoing {
            session,
            control,
            data,
            notices,
        },
    )
}

impl Stream for Outgoing {
    type Item = SessionRequest;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<SessionRequest>> {
        let control = self.control.poll_recv(context);
        if let Poll::Ready(Some(frame)) = control {
            return Poll::Ready(Some(frame));
        }
        match self.data.poll_recv(context) {
            Poll::Ready(Some(frame)) => {
                if matches!(frame, ToHub::Observed(_) | ToHub::Deleted { .. }) {
                    // The receiver is gone only when the agent stops; then nobody counts slots any more.
                    let _ = self.notices.send(SessionEvent::FrameSent {
                        session: self.session,
                    });
                }
                Poll::Ready(Some(convert::to_wire(frame)))
            }
            Poll::Ready(None) if control.is_ready() => Poll::Ready(None),
            _ => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use nabu_common::ids::Revision;
    use nabu_proto::agent_v1::session_request::Frame;

    use super::*;

    #[tokio::test]
    async fn an_acknowledgement_overtakes_data() {
        let (notices, _kept) = mpsc::unbounded_channel();
        let (outbox, mut outgoing) = queues(1, notices);
        for id in 0..10 {
            outbox.send(ToHub::SnapshotBegin { id }).unwrap();
        }
        let uid = "7b1c1c1e-9a55-4c5f-8d6b-0d8c3c1f2a11".parse().unwrap();
        outbox
            .send(ToHub::Applied {
                uid,
                revision: Revision(3),
            })
            .unwrap();
        assert!(matches!(
            outgoing.next().await.unwrap().frame,
            Some(Frame::Applied(_))
        ));
        assert!(matches!(
            outgoing.next().await.unwrap().frame,
            Some(Frame::SnapshotBegin(_))
        ));
    }

    #[tokio::test]
    async fn the_stream_ends_when_nobody_can_send_any_more() {
        let (notices, _kept) = mpsc::unbounded_channel();
        let (outbox, mut outgoing) = queues(1, notices);
        outbox.send(ToHub::SnapshotBegin { id: 1 }).unwrap();
        drop(outbox);
        assert!(outgoing.next().await.is_some());
        assert!(outgoing.next().await.is_none());
    }

    #[tokio::test]
    async fn a_hub_that_takes_nothing_does_not_make_us_grow() {
        let (notices, _kept) = mpsc::unbounded_channel();
        let (outbox, _outgoing) = queues(1, notices);
        let sent = (0..100_000)
            .take_while(|id| outbox.send(ToHub::SnapshotBegin { id: *id }).is_ok())
            .count();
        assert_eq!(sent, DATA_FRAMES);
    }
}
