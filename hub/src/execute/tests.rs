//! What steps leave in a real store, and what they tell.

use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use prometheus_client::registry::Registry;
use serde_json::json;

use super::advance::conclude;
use super::operate::{Operator, Order};
use super::record::apply;
use super::*;
use crate::credentials::Credentials;
use crate::fixtures::{event_response, intent, key, observation};
use crate::forge::metrics::ForgeMetrics;
use crate::plan::Conclusion;
use crate::plan::operate::Wish;
use crate::plan::progress::request_cancel;
use crate::response::{Phase, Progress};
use crate::routes::handle::ConfigMetrics;
use crate::store::sqlite::SqliteStore;
use crate::store::{AttemptChange, AttemptResult, SideRecords, Transition};

/// Keeps what was told.
#[derive(Default)]
struct Told(Mutex<Vec<Phase>>);

impl StatusSink for Told {
    fn publish(&self, summary: Arc<ResponseSummary>) {
        lock(&self.0).push(summary.progress.phase);
    }
}

struct Bed {
    context: Arc<Context>,
    registry: Registry,
    _folder: tempfile::TempDir,
}

impl Bed {
    /// An executor over a new store with one response in it.
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("nabu.db")).await;
        let store: SharedStore = store.unwrap();
        let mut registry = Registry::default();
        let credentials = Credentials::default();
        let context = Context {
            config: ConfigHandle::new(credentials.clone(), ConfigMetrics::register(&mut registry)),
            forges: Arc::new(Forges::new(
                credentials,
                ForgeMetrics::register(&mut registry),
            )),
            clusters: ClusterDirectory::default(),
            statuses: Arc::new(Told::default()),
            metrics: ExecuteMetrics::register(&mut registry),
            settings: Settings::default(),
            lanes: Mutex::default(),
            called: Mutex::default(),
            woken: Mutex::default(),
            groups: super::Turns::default(),
            store,
        };
        let seen = observation(key(1), event_response(json!({})));
        let observed = context.store.observe(vec![seen], Timestamp::now()).await;
        observed.unwrap();
        Self {
            context: Arc::new(context),
            registry,
            _folder: folder,
        }
    }

    async fn response(&self) -> Response {
        self.context.store.response(&key(1)).await.unwrap().unwrap()
    }

    /// An attempt begins, and nobody ends it.
    async fn begin(&self) {
        let begin: Transition = Box::new(|progress| {
            progress.intent.get_or_insert_with(intent);
            progress.phase = Phase::Running;
            progress.attempt_open = true;
            progress.revision = progress.revision.next();
            SideRecords {
                attempts: vec![AttemptChange::Begun {
                    at: Timestamp::now(),
                }],
                audit: Vec::new(),
            }
        });
        self.context.store.transition(&key(1), begin).await.unwrap();
    }

    /// How often an end was counted.
    fn dispatched(&self) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let counted = text.lines();
        let counted =
            counted.filter(|line| line.starts_with("ugallu_gitops_responder_dispatches_total"));
        counted
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }
}

fn cancelled() -> Conclusion {
    Conclusion::Cancelled {
        reason: "not wanted".to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_was_interrupted_ends_with_the_cancelled_response() {
    let bed = Bed::new().await;
    bed.begin().await;
    let response = bed.response().await;
    assert!(response.progress.attempt_open);
    let ended = conclude(&bed.context, &response, cancelled())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(ended.phase, Phase::Cancelled);
    let attempts = bed.context.store.attempts(&key(1)).await.unwrap();
    let results: Vec<_> = attempts
        .iter()
        .map(|one| one.ended.map(|(_, result)| result))
        .collect();
    assert_eq!(results, [Some(AttemptResult::Interrupted)]);
    // It is no end of an attempt that was never begun.
    let again = conclude(&bed.context, &bed.response().await, cancelled()).await;
    assert_eq!(again.unwrap().unwrap().revision, ended.revision);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_counted_once_though_somebody_still_holds_the_record_from_before() {
    let bed = Bed::new().await;
    let stale = bed.response().await;
    conclude(&bed.context, &stale, cancelled()).await.unwrap();
    assert_eq!(bed.dispatched(), 1);
    // An order, a deletion, or a look that began before the end and is stored after it.
    let nothing = Box::new(|_: &mut Progress| SideRecords::default());
    apply(&bed.context, &stale, nothing).await.unwrap();
    conclude(&bed.context, &stale, cancelled()).await.unwrap();
    assert_eq!(bed.dispatched(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_met_while_a_cancellation_is_wanted_is_not_waited_for() {
    let bed = Bed::new().await;
    let mut progress = bed.response().await.progress;
    let later = Timestamp::now() + Duration::from_hours(1);
    progress.next_attempt_at = Some(later);
    assert_eq!(advance::standing(&progress), Advanced::WaitUntil(later));
    request_cancel(&mut progress, "not wanted");
    let Advanced::WaitUntil(at) = advance::standing(&progress) else {
        panic!("it is not looked at again");
    };
    assert!(at <= Timestamp::now());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_carried_out_and_told_though_whoever_gave_it_has_gone() {
    let bed = Bed::new().await;
    let (dispatcher, mut inbox) = channel();
    let operator = Operator::new(Arc::clone(&bed.context), dispatcher);
    let order = Order::Cancel {
        reason: "not wanted".to_owned(),
    };
    let one = key(1);
    let mut asking = Box::pin(operator.carry_out(&one, order, "admin/ada"));
    // The call is under way when its connection breaks.
    assert!(futures::poll!(asking.as_mut()).is_pending());
    drop(asking);
    let event = tokio::time::timeout(Duration::from_secs(30), inbox.events.recv()).await;
    assert!(matches!(event, Ok(Some(Event::Changed(told))) if told == key(1)));
    let progress = bed.response().await.progress;
    assert_eq!(progress.cancel_requested.as_deref(), Some("not wanted"));
    let wish = Operator::rehearse(&bed.response().await, &Order::Retry).0;
    assert!(matches!(wish, Wish::Refused { .. }), "{wish:?}");
}

/// Two members of a group: the first was withdrawn while the second was on its way.
async fn withdrawn_for_another(bed: &Bed) {
    let seen = observation(key(2), event_response(json!({})));
    let observed = bed.context.store.observe(vec![seen], Timestamp::now());
    observed.await.unwrap();
    for number in [1, 2] {
        let begin: Transition = Box::new(move |progress| {
            let mut intent = intent();
            // What is on no forge is not followed.
            intent.target.kind = crate::change::ProviderKind::ForgejoToken;
            intent.options.close_on_cancel = true;
            intent.group = Some(crate::group::Group {
                branch: "g".to_owned(),
                title: String::new(),
                introduction: String::new(),
                max_responses: 2,
            });
            progress.intent = Some(intent);
            progress.phase = Phase::Running;
            if number == 1 {
                progress.phase = Phase::Succeeded;
                (progress.deleted, progress.shared) = (true, true);
                progress.withdrawn = true;
                progress.withdrawal = Some("not wanted".to_owned());
                progress.url = Some("https://git.example/o/r/pulls/7".to_owned());
                let moment = crate::plan::progress::Moment {
                    now: Timestamp::now(),
                    generation: 1,
                    jitter: 0.0,
                };
                let kind = crate::plan::progress::PULL_REQUEST;
                crate::plan::progress::set_condition(progress, kind, true, "Open", "", moment);
            }
            progress.revision = progress.revision.next();
            SideRecords::default()
        });
        let store = &bed.context.store;
        store.transition(&key(number), begin).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_starts_closes_groups_that_nobody_keeps_open_any_more() {
    let bed = Bed::new().await;
    withdrawn_for_another(&bed).await;
    let all = || groups::reconsider_all(&bed.context);
    assert_eq!(all().await.unwrap(), [], "the other is on its way");
    assert!(bed.response().await.progress.follow_up.is_none());
    let fail: Transition = Box::new(|progress| {
        progress.phase = Phase::Failed;
        SideRecords::default()
    });
    bed.context.store.transition(&key(2), fail).await.unwrap();
    assert_eq!(all().await.unwrap(), [key(1)]);
    assert!(bed.response().await.progress.follow_up.is_some());
    assert_eq!(all().await.unwrap(), [], "it is on its way by now");
}
