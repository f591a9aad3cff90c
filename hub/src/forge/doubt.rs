//! Writes of which nobody knows what they did: the answer was cut off, late, or an error of the server itself.
//!
//! Such a write is never sent again blindly. The attempt looks once more, and goes on from what is there; if nothing is to be
//! seen it fails, because the write may still be at work, and the next attempt looks first.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{ForgeError, Made};

/// How long after such a write it is looked for.
pub(super) const SECOND_LOOK_AFTER: Duration = Duration::from_secs(1);

/// A request that makes a part of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// Branch and commit.
    Commit,
    /// The pull request.
    Open,
}

/// The last write of an attempt.
#[derive(Debug, Default)]
pub(super) struct LastWrite(Mutex<Option<Write>>);

impl LastWrite {
    /// Notes a write before it is sent.
    pub(super) fn begin(&self, write: Write) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(write);
    }

    /// The write that was sent last, if this failure leaves in doubt what it did.
    pub(super) fn in_doubt(&self, error: &ForgeError) -> Option<Write> {
        let sent = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sent.filter(|_| is_ambiguous(error))
    }
}

/// What came of an attempt, after a second look if nobody knows what its last write did. If `look` sees nothing of it, the
/// attempt stays failed: the write may still be at work.
pub(super) async fn after_second_look<Look>(
    result: Result<Made, ForgeError>,
    last_write: &LastWrite,
    look: impl FnOnce(Write) -> Look,
) -> Result<Made, ForgeError>
where
    Look: Future<Output = Result<Option<Made>, ForgeError>>,
{
    let lost = match &result {
        Ok(_) => None,
        Err(error) => last_write.in_doubt(error),
    };
    let Some(lost) = lost else {
        return result;
    };
    tokio::time::sleep(SECOND_LOOK_AFTER).await;
    match look(lost).await {
        Ok(Some(made)) => Ok(made),
        Ok(None) | Err(_) => result,
    }
}

/// Whether nobody knows what a request that failed so has done.
fn is_ambiguous(error: &ForgeError) -> bool {
    match error {
        ForgeError::Failed(error) => {
            ["Timeout", "ConnectionLost", "ForgeError"].contains(&error.reason.as_str())
        }
        ForgeError::Unavailable { .. } => true,
        ForgeError::RateLimited { .. } | ForgeError::Parked(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::http::failed;
    use super::*;
    use crate::response::ErrorType;

    #[test]
    fn only_a_write_without_a_clear_answer_is_in_doubt() {
        let lost = failed(ErrorType::Transient, "ConnectionLost", "");
        let write = LastWrite::default();
        assert_eq!(write.in_doubt(&lost), None, "nothing was written");
        write.begin(Write::Commit);
        write.begin(Write::Open);
        assert_eq!(write.in_doubt(&lost), Some(Write::Open));
        let detail = String::new();
        let down = ForgeError::Unavailable { detail };
        assert_eq!(write.in_doubt(&down), Some(Write::Open));
        let refused = failed(ErrorType::Permanent, "Rejected", "");
        assert_eq!(write.in_doubt(&refused), None);
    }
}
