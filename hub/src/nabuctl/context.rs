//! Contexts: the hubs that somebody works with, by name, in `~/.config/nabu/contexts.yaml`. No secret is in it, only
//! the folder with the certificate, which may be one beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use nabu_common::identity::is_name;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::dry_run::say;
use super::output::{Listing, Out, Output};
use super::{Connection, ContextCommand};
use crate::pki::check_folder;
use crate::pki::credentials::Credentials;

/// Where a hub is if nobody says.
const DEFAULT_HUB: &str = "https://localhost:8444";
/// Where the certificate is if nobody says.
const DEFAULT_TLS_DIR: &str = "/etc/nabu/admin";

/// One hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct HubContext {
    /// As `--hub`.
    pub(super) hub: String,
    /// As `--tls-dir`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tls_dir: Option<PathBuf>,
    /// As `--server-name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) server_name: Option<String>,
}

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Contexts {
    /// The one that is used when the command line names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, HubContext>,
}

/// The way to a hub, fully decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) hub: String,
    pub(super) tls_dir: PathBuf,
    pub(super) server_name: Option<String>,
}

impl Way {
    /// Whether it leads to the socket of the hub's own machine, where no certificate is shown.
    pub(super) fn is_socket(&self) -> bool {
        self.hub.starts_with("unix:")
    }
}

impl Contexts {
    pub(super) fn load(path: &Path) -> anyhow::Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) if text.trim().is_empty() => Ok(Self::default()),
            Ok(text) => serde_saphyr::from_str(&text)
                .with_context(|| format!("{} cannot be read; mend or remove it", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    fn save(&self, path: &Path) -> anyhow::Result<()> {
        let save = || {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let new = path.with_extension("new");
            std::fs::write(&new, serde_saphyr::to_string(self)?)?;
            std::fs::rename(&new, path)?;
            anyhow::Ok(())
        };
        save().with_context(|| format!("cannot write {}", path.display()))
    }

    /// The names of all contexts.
    pub(super) fn names(&self) -> Vec<String> {
        self.contexts.keys().cloned().collect()
    }

    fn find(&self, name: &str) -> anyhow::Result<&HubContext> {
        self.contexts.get(name).with_context(|| {
            format!("there is no context {name:?}; `nabuctl context list` shows them")
        })
    }

    /// What the command line says, else what the context says, else what is usual.
    pub(super) fn way(&self, asked: &Connection) -> anyhow::Result<Way> {
        let name = asked.context.as_ref().or(self.current.as_ref());
        let known = match name {
            // Whoever names a hub wants that one, and not the certificate of another.
            _ if asked.hub.is_some() && asked.context.is_none() => HubContext::default(),
            Some(name) => self.find(name)?.clone(),
            None => HubContext::default(),
        };
        let known_hub = Some(known.hub).filter(|hub| !hub.is_empty());
        Ok(Way {
            hub: asked
                .hub
                .clone()
                .or(known_hub)
                .unwrap_or_else(|| DEFAULT_HUB.to_owned()),
            tls_dir: asked
                .tls_dir
                .clone()
                .or(known.tls_dir)
                .unwrap_or_else(|| DEFAULT_TLS_DIR.into()),
            server_name: asked.server_name.clone().or(known.server_name),
        })
    }
}

/// Where the file is: `NABU_CONTEXTS`, else below `XDG_CONFIG_HOME` or `~/.config`.
pub(super) fn path(asked: &Connection) -> PathBuf {
    if let Some(path) = &asked.contexts {
        return path.clone();
    }
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".config");
    let folder = std::env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty());
    folder
        .map_or_else(home, PathBuf::from)
        .join("nabu/contexts.yaml")
}

/// The way that a command line asks for.
pub(super) fn way(asked: &Connection) -> anyhow::Result<Way> {
    Contexts::load(&path(asked))?.way(asked)
}

pub(super) fn run(
    asked: &Connection,
    command: ContextCommand,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let path = path(asked);
    let mut contexts = Contexts::load(&path)?;
    let dry_run = match command {
        ContextCommand::List => return listing(&contexts).print(output, out),
        ContextCommand::Use { name, dry_run } => {
            contexts.find(&name)?;
            contexts.current = Some(name);
            dry_run
        }
        ContextCommand::Set {
            name,
            certificate,
            dry_run,
        } => {
            let hub = asked
                .hub
                .clone()
                .context("say where the hub is with --hub URL")?;
            let kept = certificate.map(|from| keep(&from, &path, &name, dry_run));
            let tls_dir = kept.transpose()?.or_else(|| asked.tls_dir.clone());
            let tls_dir = tls_dir.map(std::path::absolute).transpose()?;
            let server_name = asked.server_name.clone();
            contexts.contexts.insert(
                name.clone(),
                HubContext {
                    hub,
                    tls_dir,
                    server_name,
                },
            );
            contexts.current.get_or_insert(name);
            dry_run
        }
        ContextCommand::Delete { name, dry_run } => {
            contexts.find(&name)?;
            contexts.contexts.remove(&name);
            contexts.current = contexts.current.filter(|current| *current != name);
            dry_run
        }
    };
    if !dry_run {
        contexts.save(&path)?;
    }
    listing(&contexts).print(output, out)?;
    // Programs asked for the contexts alone.
    if dry_run && matches!(output, Output::Table | Output::Wide) {
        let message = format!("{} would say so", path.display());
        say(&message, dry_run, output, out)?;
    }
    Ok(())
}

/// Keeps a certificate beside the file with the contexts; gives back the folder.
fn keep(from: &Path, contexts: &Path, name: &str, dry_run: bool) -> anyhow::Result<PathBuf> {
    anyhow::ensure!(
        is_name(name),
        "{name:?} cannot name a folder for the certificate: use letters, digits, '-', '_' and '.'"
    );
    let text = if from == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(from)
    };
    let text = SecretString::from(text.with_context(|| format!("cannot read {}", from.display()))?);
    let credentials = Credentials::from_text(&text)
        .with_context(|| format!("{} cannot be used", from.display()))?;
    let folder = contexts.parent().unwrap_or(Path::new(".")).join(name);
    if dry_run {
        check_folder(&folder)?;
    } else {
        credentials.write_into(&folder)?;
    }
    Ok(folder)
}

fn listing(contexts: &Contexts) -> Listing {
    let mut listing = Listing {
        headings: vec!["CURRENT", "NAME", "HUB", "TLS DIR", "SERVER NAME"],
        narrow: 5,
        empty: "there is no context yet; make one with `nabuctl context set NAME --hub URL --tls-dir DIR`",
        ..Listing::default()
    };
    for (name, context) in &contexts.contexts {
        let current = contexts.current.as_deref() == Some(name);
        let tls_dir = context
            .tls_dir
            .as_ref()
            .map(|path| path.display().to_string());
        listing.rows.push(vec![
            if current { "*" } else { "" }.into(),
            name.as_str().into(),
            context.hub.as_str().into(),
            tls_dir.clone().unwrap_or_default().into(),
            context.server_name.clone().unwrap_or_default().into(),
        ]);
        listing.names.push(name.clone());
        listing.values.push(json!({
            "name": name, "current": current, "hub": context.hub, "tlsDir": tls_dir,
            "serverName": context.server_name,
        }));
    }
    listing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts() -> Contexts {
        let text = "current: prod\ncontexts:\n  prod: {hub: 'https://hub:8444', tlsDir: /prod}\n  lab: {hub: 'unix:/run/x'}\n";
        serde_saphyr::from_str(text).unwrap()
    }

    #[test]
    fn the_command_line_goes_before_the_context_and_that_before_what_is_usual() {
        let contexts = contexts();
        let way = |asked: &Connection| contexts.way(asked).unwrap();
        let current = way(&Connection::default());
        assert_eq!(
            (&*current.hub, current.tls_dir),
            ("https://hub:8444", "/prod".into())
        );
        let lab = way(&Connection {
            context: Some("lab".to_owned()),
            ..Connection::default()
        });
        assert_eq!(
            (&*lab.hub, lab.tls_dir),
            ("unix:/run/x", DEFAULT_TLS_DIR.into())
        );
        let named = way(&Connection {
            hub: Some("https://other:1".to_owned()),
            ..Connection::default()
        });
        assert_eq!(
            (&*named.hub, named.tls_dir),
            ("https://other:1", DEFAULT_TLS_DIR.into()),
            "the certificate of one hub is not shown to another"
        );
        let nowhere = Contexts::default().way(&Connection::default()).unwrap();
        assert_eq!(nowhere.hub, DEFAULT_HUB);
    }

    #[test]
    fn what_is_saved_is_read_again_and_an_unknown_name_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nabu/contexts.yaml");
        contexts().save(&path).unwrap();
        assert_eq!(Contexts::load(&path).unwrap(), contexts());
        let error = contexts().find("nothing").unwrap_err();
        assert!(
            error.to_string().contains("nabuctl context list"),
            "{error}"
        );
    }
}
