//! The Unix socket of the admin API, for the operator of the hub's own machine.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use futures::Stream;
use tokio::net::{UnixListener, UnixStream};

/// An open socket; its file goes with it.
pub struct LocalListener {
    listener: UnixListener,
    path: PathBuf,
}

impl LocalListener {
    /// Opens the socket for the hub's own user (and root). A socket that nobody listens at any more is replaced.
    ///
    /// # Errors
    /// If it cannot; the text names the flag.
    pub fn bind(path: &Path) -> anyhow::Result<Self> {
        let context = || {
            format!(
                "cannot listen at {} (--admin-socket); it must be in a folder that nabu-hub may write to",
                path.display()
            )
        };
        remove_stale(path).with_context(context)?;
        let listener = UnixListener::bind(path).with_context(context)?;
        // Peers are asked for their user as well, so that nobody slips in before this line.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
            .with_context(context)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
        })
    }

    /// Connections, for ever.
    pub fn incoming(self) -> impl Stream<Item = io::Result<UnixStream>> {
        futures::stream::unfold(self, |this| async {
            let accepted = this.listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, this))
        })
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Removes a socket that is left over; one that somebody listens at, and any other file, stays.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type().is_socket(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !is_socket {
        return Err(io::Error::other("there is a file that is no socket"));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(io::Error::other("another process listens there")),
        Err(_) => std::fs::remove_file(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_socket_is_the_owners_alone_and_one_that_is_left_over_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        // As a killed process leaves it: the file without a listener.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listener = LocalListener::bind(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(LocalListener::bind(&path).is_err(), "it is in use");
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        std::fs::write(&path, "mine").unwrap();
        assert!(LocalListener::bind(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    }
}
