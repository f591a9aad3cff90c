//! Operators' wishes made to happen: stored and audited in one transaction, told to agents, and looked at again.

use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use nabu_common::ids::ResponseKey;

use super::advance::{apply, moment};
use super::{Context, Dispatcher};
use crate::plan::operate::{Wish, cancel, retry};
use crate::response::{Progress, Response};
use crate::store::{AuditEvent, SideRecords, StoreError};

/// What an operator wants of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The next attempt now.
    Retry,
    /// No attempt any more, for this reason.
    Cancel {
        /// Why.
        reason: String,
    },
}

/// What came of an order: the wish, and the record after it.
pub type Carried = (Wish, Progress);

/// Carries out orders; clones share it.
#[derive(Clone)]
pub struct Operator {
    context: Arc<Context>,
    dispatcher: Dispatcher,
}

impl Operator {
    /// An operator of this executor.
    pub fn new(context: Arc<Context>, dispatcher: Dispatcher) -> Self {
        Self {
            context,
            dispatcher,
        }
    }

    /// Everything that steps see.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// What would come of an order.
    pub fn rehearse(response: &Response, order: &Order) -> Carried {
        let mut progress = response.progress.clone();
        let wish = wish(&mut progress, order, response);
        (wish, progress)
    }

    /// Carries out an order in the name of an actor; `None` if there is no such response.
    ///
    /// # Errors
    /// If the store fails; then nothing has happened.
    pub async fn carry_out(
        &self,
        key: &ResponseKey,
        order: Order,
        actor: &str,
    ) -> Result<Option<Carried>, StoreError> {
        // Whoever asks may go away meanwhile: what is stored has to be told all the same.
        let (operator, key, actor) = (self.clone(), key.clone(), actor.to_owned());
        let carried = tokio::spawn(async move { operator.carry(&key, order, actor).await });
        carried.await.unwrap_or(Err(StoreError::Closed))
    }

    async fn carry(
        &self,
        key: &ResponseKey,
        order: Order,
        actor: String,
    ) -> Result<Option<Carried>, StoreError> {
        let Some(response) = self.context.store.response(key).await? else {
            return Ok(None);
        };
        let response = Arc::new(response);
        let outcome = Arc::new(Mutex::new(None));
        let (note, about) = (Arc::clone(&outcome), Arc::clone(&response));
        let cancels = matches!(order, Order::Cancel { .. });
        let transition = Box::new(move |progress: &mut Progress| {
            let before = progress.clone();
            let wish = wish(progress, &order, &about);
            let mut records = SideRecords::default();
            if *progress != before
                && let Wish::Granted(message) = &wish
            {
                records.audit.push(line(&order, actor, message));
            }
            *super::lock(&note) = Some(wish);
            records
        });
        let progress = apply(&self.context, &response, transition).await?;
        let wish = super::lock(&outcome).take();
        let (Some(progress), Some(wish)) = (progress, wish) else {
            return Ok(None);
        };
        // What is not wanted waits for no turn; what is to be tried again does.
        if cancels {
            self.dispatcher.changed(key.clone());
        } else if let Some(fresh) = self.context.store.response(key).await? {
            self.dispatcher.observed(Arc::new(fresh));
        }
        Ok(Some((wish, progress)))
    }
}

fn wish(progress: &mut Progress, order: &Order, response: &Response) -> Wish {
    match order {
        Order::Retry => retry(progress, Timestamp::now()),
        Order::Cancel { reason } => cancel(progress, reason, moment(response)),
    }
}

fn line(order: &Order, actor: String, message: &str) -> AuditEvent {
    let (action, detail) = match order {
        Order::Retry => ("Retried", message.to_owned()),
        Order::Cancel { reason } => ("CancelRequested", format!("{reason}: {message}")),
    };
    AuditEvent {
        at: Timestamp::now(),
        actor,
        action: action.to_owned(),
        detail,
    }
}
