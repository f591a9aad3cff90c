//! Waiting for what must come, with an end and a name for what was waited for.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process::Process;

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

/// Waits until a readiness endpoint says yes; fails at once, with the end of its output, if the process has ended.
pub async fn ready(what: &str, process: &mut Process, url: &str, limit: Duration) -> Result<()> {
    eventually(what, limit, || {
        let ended = process.assert_running();
        async move {
            if ended.is_err() {
                return Some(ended);
            }
            let answer = reqwest::get(url).await.ok()?;
            answer.status().is_success().then_some(Ok(()))
        }
    })
    .await?
}
