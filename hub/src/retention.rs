//! How long the hub remembers what has ended: removes it in the background, a little at a time, so that nobody waits for the
//! store meanwhile. What may go is decided by the store ([`crate::store::Store::prune_responses`]).

use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::store::{AuditEvent, SharedStore, StoreError};

/// Responses that one call to the store removes: with their objects and files they are large, and everybody who writes waits
/// for it.
const RESPONSES: u32 = 16;
/// Lines of the audit log that one call removes.
const LINES: u32 = 200;
/// Pause between two calls, for everybody else who writes.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest time between two looks.
const LONGEST_INTERVAL: Duration = Duration::from_mins(10);
/// The shortest.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// How long something is kept; `None` for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep(pub Option<Duration>);

impl FromStr for Keep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            || format!("{text:?} is neither 0 (for ever) nor a time such as 90d, 12h, 30m or 90s");
        if text == "0" {
            return Ok(Self(None));
        }
        let at = text
            .len()
            .checked_sub(1)
            .filter(|at| text.is_char_boundary(*at));
        let (number, unit) = text.split_at(at.ok_or_else(wrong)?);
        let unit: u64 = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => return Err(wrong()),
        };
        let seconds = number
            .parse::<u32>()
            .ok()
            .map(|number| u64::from(number) * unit);
        // A time that is not far back at all is none that anybody means.
        let seconds = seconds.filter(|seconds| (1..=MOST_SECONDS).contains(seconds));
        Ok(Self(Some(Duration::from_secs(seconds.ok_or_else(wrong)?))))
    }
}

impl std::fmt::Display for Keep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.map(|kept| kept.as_secs()) {
            None => f.write_str("0"),
            Some(seconds) if seconds % 86_400 == 0 => write!(f, "{}d", seconds / 86_400),
            Some(seconds) => write!(f, "{seconds}s"),
        }
    }
}

/// A hundred years.
const MOST_SECONDS: u64 = 36_525 * 86_400;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

/// Removes what is kept long enough.
#[derive(Clone, Debug)]
pub struct Retention {
    finished: Keep,
    audit: Keep,
    pruned: Family<KindLabel, Counter>,
}

impl Retention {
    /// Keeps finished responses and the audit log for so long; counts what goes in the registry.
    pub fn new(finished: Keep, audit: Keep, registry: &mut Registry) -> Self {
        let pruned = Family::default();
        registry.register(
            "nabu_hub_pruned",
            "Responses and lines of the audit log that were removed because they are kept long enough",
            pruned.clone(),
        );
        Self {
            finished,
            audit,
            pruned,
        }
    }

    /// Looks again and again until `shutdown`.
    pub async fn keep_pruning(self, store: SharedStore, shutdown: CancellationToken) {
        let kept = [self.finished.0, self.audit.0].into_iter().flatten().min();
        let Some(kept) = kept else { return };
        let interval = (kept / 10).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
        let looking = async {
            loop {
                if let Err(failure) = self.prune(&store, Timestamp::now()).await {
                    error!(error = %failure, "cannot remove what is kept long enough; trying again later");
                }
                tokio::time::sleep(interval).await;
            }
        };
        let _: Option<()> = shutdown.run_until_cancelled(looking).await;
    }

    /// Removes everything that may go now.
    async fn prune(&self, store: &SharedStore, now: Timestamp) -> Result<(), StoreError> {
        let before = |keep: Keep| now.checked_sub(keep.0?).ok();
        if let Some(before) = before(self.finished) {
            let all = self.all("response", RESPONSES, || {
                store.prune_responses(before, RESPONSES)
            });
            let removed = all.await?;
            self.tell(
                store,
                "ResponsesPruned",
                "finished responses",
                removed,
                before,
            )
            .await?;
        }
        if let Some(before) = before(self.audit) {
            let removed = self
                .all("audit", LINES, || store.prune_audit(before, LINES))
                .await?;
            self.tell(store, "AuditPruned", "lines of this log", removed, before)
                .await?;
        }
        Ok(())
    }

    async fn all<F: Future<Output = Result<u64, StoreError>>>(
        &self,
        kind: &'static str,
        most: u32,
        batch: impl Fn() -> F,
    ) -> Result<u64, StoreError> {
        let mut removed = 0;
        loop {
            let count = batch().await?;
            self.pruned.get_or_create(&KindLabel { kind }).inc_by(count);
            removed += count;
            if count < u64::from(most) {
                return Ok(removed);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn tell(
        &self,
        store: &SharedStore,
        action: &str,
        what: &str,
        removed: u64,
        before: Timestamp,
    ) -> Result<(), StoreError> {
        if removed == 0 {
            return Ok(());
        }
        info!(removed, %before, what, "removed what is kept long enough");
        let event = AuditEvent {
            at: Timestamp::now(),
            actor: "hub".to_owned(),
            action: action.to_owned(),
            detail: format!("{removed} {what} from before {before:.0} were removed"),
        };
        store.audit(None, event).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_and_0_keeps_for_ever() {
        let read = |text: &str| text.parse::<Keep>().ok().map(|keep| keep.0);
        assert_eq!(read("0"), Some(None));
        assert_eq!(read("90d"), Some(Some(Duration::from_hours(90 * 24))));
        assert_eq!(read("12h"), Some(Some(Duration::from_hours(12))));
        assert_eq!(read("5s"), Some(Some(Duration::from_secs(5))));
        for wrong in [
            "",
            "90",
            "d",
            "-1d",
            "0d",
            "1y",
            "90 d",
            "4294967295d",
            "1.5d",
            "9é",
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
        for text in ["0", "90d", "5s"] {
            assert_eq!(text.parse::<Keep>().unwrap().to_string(), text);
        }
    }
}
