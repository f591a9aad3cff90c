//! Reads configuration from a folder: YAML documents, and Secrets as documents or as files.
//!
//! `*.yaml`, `*.yml` and `*.json` hold GitOpsResponderConfig and Secret documents, any number each. A folder
//! `secrets/<name>/` holds one Secret, a file for each key, as a mounted Secret looks. Documents without a namespace,
//! and Secrets of that folder, belong to the default namespace. The folder is looked at every two seconds rather than
//! watched, because mounts of ConfigMaps and Secrets change by swapping symbolic links.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::ConfigHandle;
use super::handle::{Document, Snapshot};
use super::text;
use crate::change::CredentialRef;
use crate::credentials::Secret;

/// How often the folder is looked at.
const INTERVAL: Duration = Duration::from_secs(2);
/// A file of configuration is not larger.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// A folder with configuration.
#[derive(Debug)]
pub struct ConfigFolder {
    path: PathBuf,
    default_namespace: String,
}

/// Everything that a folder holds.
#[derive(Debug, Default)]
struct Contents {
    snapshot: Snapshot,
    secrets: HashMap<CredentialRef, Arc<Secret>>,
}

impl ConfigFolder {
    /// A folder whose documents without a namespace belong to `default_namespace`.
    pub fn new(path: PathBuf, default_namespace: String) -> Self {
        Self {
            path,
            default_namespace,
        }
    }

    /// Reads everything once.
    ///
    /// # Errors
    /// If the folder itself cannot be read. A file that cannot be read is reported and leaves what it held in force.
    pub fn load(&self, config: &ConfigHandle) -> io::Result<()> {
        self.read_changed(config, &mut [0; 32])
    }

    /// Reads again whenever something has changed, until `shutdown`.
    pub async fn keep_fresh(self, config: ConfigHandle, shutdown: CancellationToken) {
        let mut digest = [0; 32];
        while shutdown
            .run_until_cancelled(tokio::time::sleep(INTERVAL))
            .await
            .is_some()
        {
            if let Err(error) = self.read_changed(&config, &mut digest) {
                warn!(folder = %self.path.display(), %error, "cannot read the configuration folder; trying again");
            }
        }
    }

    fn read_changed(&self, config: &ConfigHandle, digest: &mut [u8; 32]) -> io::Result<()> {
        let files = self.files()?;
        let mut hasher = Sha256::new();
        let mut contents = Contents::default();
        let mut texts = Vec::with_capacity(files.len());
        for path in files {
            let text = read_text(&path);
            hasher.update(path.as_os_str().as_encoded_bytes());
            hasher.update(text.as_ref().map_or_else(ToString::to_string, Clone::clone));
            texts.push((path, text));
        }
        let secrets = self.secret_files()?;
        for (name, key, path) in &secrets {
            hasher.update(name);
            hasher.update(key);
            hasher.update(std::fs::read(path).unwrap_or_default());
        }
        let now: [u8; 32] = hasher.finalize().into();
        if now == *digest {
            return Ok(());
        }
        for (path, text) in texts {
            let origin = path
                .strip_prefix(&self.path)
                .unwrap_or(&path)
                .display()
                .to_string();
            match text
                .map_err(|error| error.to_string())
                .and_then(|text| parse(&text))
            {
                Ok(objects) => objects
                    .into_iter()
                    .for_each(|object| self.sort(&origin, object, &mut contents)),
                Err(reason) => contents.snapshot.unreadable.push((origin, reason)),
            }
        }
        self.add_secret_files(secrets, &mut contents);
        // Secrets first: a route that is new finds its credential.
        config.credentials().replace(contents.secrets);
        config.apply(contents.snapshot);
        *digest = now;
        Ok(())
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let path = entry?.path();
            let hidden = path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            let kind = path.extension().and_then(|extension| extension.to_str());
            if !hidden && matches!(kind, Some("yaml" | "yml" | "json")) && path.is_file() {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// Name of the Secret, key, and path of each file under `secrets/`.
    fn secret_files(&self) -> io::Result<Vec<(String, String, PathBuf)>> {
        let mut files = Vec::new();
        for (name, folder) in visible(&self.path.join("secrets"))? {
            if folder.is_dir() {
                for (key, path) in visible(&folder)? {
                    if path.is_file() {
                        files.push((name.clone(), key, path));
                    }
                }
            }
        }
        Ok(files)
    }

    fn add_secret_files(&self, files: Vec<(String, String, PathBuf)>, contents: &mut Contents) {
        let mut by_name: HashMap<String, Vec<(String, String)>> = HashMap::new();
        for (name, key, path) in files {
            match std::fs::read_to_string(&path) {
                Ok(value) => by_name.entry(name).or_default().push((key, value)),
                Err(error) => {
                    warn!(file = %path.display(), %error, "cannot read a file of a Secret");
                }
            }
        }
        for (name, values) in by_name {
            let reference = CredentialRef {
                namespace: self.default_namespace.clone(),
                name,
            };
            contents
                .secrets
                .insert(reference, Arc::new(Secret::new(values)));
        }
    }

    fn sort(&self, origin: &str, object: Value, contents: &mut Contents) {
        let namespace = text(&object, "/metadata/namespace")
            .unwrap_or(&self.default_namespace)
            .to_owned();
        let Some(name) = text(&object, "/metadata/name").map(str::to_owned) else {
            let reason = "a document has no metadata.name".to_owned();
            contents
                .snapshot
                .unreadable
                .push((origin.to_owned(), reason));
            return;
        };
        match text(&object, "/kind") {
            Some("GitOpsResponderConfig") => {
                contents.snapshot.documents.push(Document {
                    origin: origin.to_owned(),
                    namespace,
                    name,
                    object,
                });
            }
            Some("Secret") => match secret(&object) {
                Ok(secret) => {
                    contents
                        .secrets
                        .insert(CredentialRef { namespace, name }, Arc::new(secret));
                }
                Err(key) => warn!(
                    origin,
                    namespace,
                    name,
                    key,
                    "a value of a Secret is no base64; the Secret is left out"
                ),
            },
            kind => warn!(
                origin,
                kind,
                name,
                "a document is neither GitOpsResponderConfig nor Secret; it is left out"
            ),
        }
    }
}

fn visible(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string()
            && !name.starts_with('.')
        {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

fn read_text(path: &Path) -> io::Result<String> {
    let size = std::fs::metadata(path)?.len();
    if size > MAX_FILE_BYTES {
        return Err(io::Error::other(format!(
            "{size} bytes are too many; at most {MAX_FILE_BYTES} are read"
        )));
    }
    std::fs::read_to_string(path)
}

/// The documents of a file. An error says where, and never shows the text: it may be a Secret's.
pub(crate) fn parse(text: &str) -> Result<Vec<Value>, String> {
    let mut options = serde_saphyr::Options::default();
    options.with_snippet = false;
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| error.to_string())
}

/// The values of a Secret document; the key of one that is no base64 is the error.
fn secret(object: &Value) -> Result<Secret, String> {
    let entries = |field: &str| {
        object
            .get(field)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
    };
    let mut values = Vec::new();
    for (key, value) in entries("data") {
        let decoded = STANDARD
            .decode(value.as_str().unwrap_or_default().trim())
            .map_err(|_| key.clone())?;
        values.push((
            key.clone(),
            String::from_utf8(decoded).map_err(|_| key.clone())?,
        ));
    }
    for (key, value) in entries("stringData") {
        values.push((key.clone(), value.as_str().unwrap_or_default().to_owned()));
    }
    Ok(Secret::new(values))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;
    use crate::credentials::Credentials;
    use crate::routes::handle::ConfigMetrics;

    struct Bed {
        folder: tempfile::TempDir,
        config: ConfigHandle,
        digest: [u8; 32],
    }

    impl Bed {
        fn new() -> Self {
            let config = ConfigHandle::new(Credentials::default(), ConfigMetrics::default());
            Self {
                folder: tempfile::tempdir().unwrap(),
                config,
                digest: [0; 32],
            }
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn read(&mut self) -> Vec<String> {
            let folder =
                ConfigFolder::new(self.folder.path().to_owned(), "ugallu-system".to_owned());
            folder.read_changed(&self.config, &mut self.digest).unwrap();
            self.config
                .table()
                .routes()
                .iter()
                .map(|route| route.target.repository.clone())
                .collect()
        }

        fn token(&self, name: &str) -> Option<String> {
            let reference = CredentialRef {
                namespace: "ugallu-system".into(),
                name: name.into(),
            };
            let secret = self.config.credentials().get(&reference)?;
            secret.token().map(|token| token.expose_secret().to_owned())
        }
    }

    fn config(repository: &str) -> String {
        format!(
            "kind: GitOpsResponderConfig\nmetadata: {{name: default}}\n\
            spec: {{routes: [{{provider: {{kind: noop, repository: {repository}}}}}]}}\n"
        )
    }

    #[test]
    fn documents_and_secrets_of_both_forms_are_read_and_read_again() {
        let mut bed = Bed::new();
        let secret = "kind: Secret\nmetadata: {name: bot, namespace: ugallu-system}\nstringData: {token: one}\n";
        bed.write("a.yaml", &format!("{}---\n{secret}", config("o/one")));
        bed.write("secrets/file-bot/token", "two\n");
        bed.write("secrets/file-bot/..data", "hidden");
        bed.write("notes.txt", "not read");
        assert_eq!(bed.read(), ["o/one"]);
        assert_eq!(
            (bed.token("bot"), bed.token("file-bot")),
            (Some("one".into()), Some("two".into()))
        );

        bed.write("secrets/file-bot/token", "three\n");
        bed.write("a.yaml", &config("o/two"));
        assert_eq!(bed.read(), ["o/two"]);
        assert_eq!(
            (bed.token("bot"), bed.token("file-bot")),
            (None, Some("three".into()))
        );
    }

    #[test]
    fn a_file_that_is_no_yaml_leaves_what_it_held_and_the_error_does_not_show_its_text() {
        let mut bed = Bed::new();
        bed.write("a.yaml", &config("o/one"));
        bed.read();
        bed.write("a.yaml", "kind: Secret\nstringData: {token: s3cret\n");
        assert_eq!(bed.read(), ["o/one"]);
        let error = parse("kind: Secret\nstringData: {token: s3cret\n").unwrap_err();
        assert!(!error.contains("s3cret"), "{error}");
    }

    #[test]
    fn a_secret_in_base64_is_decoded() {
        let object = serde_json::json!({"data": {"github-token": "czNjcmV0"}});
        assert_eq!(
            secret(&object).unwrap().token().unwrap().expose_secret(),
            "s3cret"
        );
        assert_eq!(
            secret(&serde_json::json!({"data": {"token": "%"}})).unwrap_err(),
            "token"
        );
    }
}
