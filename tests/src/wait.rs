//! Waiting for what must come, with an end and a name for what was waited for.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Asks again and again until there is an answer; an error that names what did not come, after `limit`.
pub async fn eventually<T, F, Fut>(what: &str, limit: Duration, mut ask: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ask().await {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            bail!("waited {limit:?} for this in vain: {what}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
