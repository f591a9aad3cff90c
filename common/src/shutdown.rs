//! The end of a process: one token that every long-running part waits for.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// A token that is cancelled on SIGTERM or SIGINT. Must be called inside a tokio runtime.
///
/// # Errors
/// If the kernel refuses a signal handler.
pub fn signal_token() -> std::io::Result<CancellationToken> {
    let token = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let signalled = token.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        info!(signal = name, "shutting down");
        signalled.cancel();
    });
    Ok(token)
}
