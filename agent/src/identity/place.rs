//! Where the agent keeps its identity: a folder, or a Secret of its own namespace.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;

use super::kept::Kept;

/// The name of the file, and of the key in the Secret.
const NAME: &str = "identity.json";

/// Why an identity cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlaceError {
    #[error("cannot use {} for the agent's identity: {source}; --state-dir must be a folder that it may write to", path.display())]
    Folder {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "cannot use the Secret {name} for the agent's identity: {reason}; it must exist (it may be empty), and the agent's role \
        must allow get and update on it"
    )]
    Secret { name: String, reason: String },
    #[error("what {place} holds is no identity of an agent: {source}; remove it and enrol again")]
    Unreadable {
        place: String,
        source: serde_json::Error,
    },
}

/// Where the agent keeps its identity.
pub enum Place {
    /// A folder.
    Folder(PathBuf),
    /// A Secret.
    Secret {
        /// Secrets of the agent's namespace.
        api: Box<Api<Secret>>,
        /// The name.
        name: String,
    },
}

impl Place {
    pub(super) async fn load(&self) -> Result<Kept, PlaceError> {
        let (place, bytes) = match self {
            Self::Folder(folder) => {
                let path = folder.join(NAME);
                let bytes = match std::fs::read(&path) {
                    Ok(bytes) => Some(bytes),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                    Err(source) => return Err(PlaceError::Folder { path, source }),
                };
                (path.display().to_string(), bytes)
            }
            Self::Secret { api, name } => {
                let secret = api.get(name).await.map_err(|error| self.secret(&error))?;
                let bytes = secret.data.and_then(|mut data| data.remove(NAME));
                (format!("the Secret {name}"), bytes.map(|bytes| bytes.0))
            }
        };
        let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else {
            return Ok(Kept::default());
        };
        serde_json::from_slice(&bytes).map_err(|source| PlaceError::Unreadable { place, source })
    }

    pub(super) async fn save(&self, kept: &Kept) -> Result<(), PlaceError> {
        let text = serde_json::to_vec(kept).map_err(|source| PlaceError::Unreadable {
            place: NAME.to_owned(),
            source,
        })?;
        match self {
            Self::Folder(folder) => write(folder, &text).map_err(|source| PlaceError::Folder {
                path: folder.clone(),
                source,
            }),
            Self::Secret { api, name } => {
                // Only the active replica writes; a conflict is somebody who labels the Secret.
                let mut tries = 3;
                loop {
                    let mut secret = api.get(name).await.map_err(|error| self.secret(&error))?;
                    let data = secret.data.get_or_insert_default();
                    data.insert(NAME.to_owned(), ByteString(text.clone()));
                    tries -= 1;
                    match api.replace(name, &PostParams::default(), &secret).await {
                        Ok(_) => return Ok(()),
                        Err(kube::Error::Api(status)) if status.code == 409 && tries > 0 => {}
                        Err(error) => return Err(self.secret(&error)),
                    }
                }
            }
        }
    }

    fn secret(&self, error: &kube::Error) -> PlaceError {
        let name = match self {
            Self::Secret { name, .. } => name.clone(),
            Self::Folder(_) => String::new(),
        };
        PlaceError::Secret {
            name,
            reason: crate::status::chain(error),
        }
    }
}

/// Writes in one step, readable by the owner only.
fn write(folder: &Path, text: &[u8]) -> std::io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let new = folder.join("identity.new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(&new, folder.join(NAME))?;
    // The new name has to survive a power cut as well.
    std::fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::identity::kept::Bytes;

    #[tokio::test]
    async fn an_identity_in_a_folder_comes_back_and_is_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("state");
        let place = Place::Folder(folder.clone());
        assert_eq!(place.load().await.unwrap(), Kept::default());
        let kept = Kept {
            enrolling_key: Some(Bytes(vec![1])),
            ..Kept::default()
        };
        for _ in 0..2 {
            place.save(&kept).await.unwrap();
        }
        assert_eq!(place.load().await.unwrap(), kept);
        let mode = std::fs::metadata(folder.join(NAME))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(folder.join(NAME), "?").unwrap();
        let error = place.load().await.unwrap_err().to_string();
        assert!(error.contains("identity.json"), "{error}");
    }
}
