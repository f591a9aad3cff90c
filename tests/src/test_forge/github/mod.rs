//! GitHub's API, as a GitHub Enterprise Server has it: REST under `/api/v3`, GraphQL at `/api/graphql`.
//!
//! [`TestGithub`] is the server, [`TestRepository`] one repository on it, for the eyes and hands of a test.
//!
//! Known from GitHub's documentation or from public reports, cited where it is done: the schema, the order and
//! independence of mutations, the texts and types of errors. Known to nobody but GitHub, and done here in the most
//! plausible way: the text for a branch that is not there in `createCommitOnBranch`. Of the mode of a file that may be
//! run there is one report (babarot/gh-infra#167) that `createCommitOnBranch` makes every file a plain one, and none of
//! what happens to a file that was there: [`TestGithub::set_keeps_modes`] has both. Commits are not signed.

mod auth;
mod error;
mod graphql;
mod http;
mod limits;
mod model;
mod operations;
mod published;
mod repository;
mod rest;
mod server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::faults::{Fault, Faults};
use super::git::GitRepository;
use super::log::LoggedRequest;
use crate::process::free_port;
use crate::wait::eventually;
use auth::Credentials;
use model::{Account, AccountKind, Permission as Right, Repository, State};
use server::Server;

pub use auth::App;
pub use model::{Protection, Rule};
pub use repository::{File, Pull, TestRepository};

/// The organisation that owns the repositories.
pub const ORGANISATION: &str = "ninsun-labs";
/// The account of [`TestGithub::token`].
pub const BOT: &str = "nabu-bot";
/// The account of [`TestGithub::person_token`].
pub const PERSON: &str = "alice";
/// A team of the organisation.
pub const TEAM: &str = "platform";

/// How a forge is started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A port of loopback; 0 for a free one.
    pub port: u16,
    /// Also serves the paths of the public GitHub: REST at `/`, GraphQL at `/graphql`.
    pub public_paths: bool,
}

/// A running forge; it ends with this value.
#[derive(Debug)]
pub struct TestGithub {
    server: Arc<Server>,
    port: u16,
    token: String,
    person_token: String,
    serving: CancellationToken,
    _dir: TempDir,
}

impl TestGithub {
    /// Starts a forge with the organisation, the bot, the person, the team and an App, on a free port.
    pub async fn start() -> Result<Self> {
        Self::start_with(Options::default()).await
    }

    /// Starts a forge in another way.
    pub async fn start_with(options: Options) -> Result<Self> {
        let dir = TempDir::with_prefix("nabu-github-")?;
        let port = if options.port == 0 {
            free_port()?
        } else {
            options.port
        };
        let url = format!("http://127.0.0.1:{port}");
        let app =
            tokio::task::spawn_blocking(|| App::generate(314_159, "nabu", 2_718_281)).await??;
        let credentials = Credentials::new(app);
        let (token, person_token) = (credentials.add_user(BOT)?, credentials.add_user(PERSON)?);
        let state = accounts(&credentials.app);
        let path = dir.path().to_owned();
        let server = Arc::new(Server::new(
            path,
            url,
            credentials,
            state,
            options.public_paths,
        ));
        // The schema is read while nobody waits for an answer yet.
        tokio::task::spawn_blocking(|| graphql::schema().map(drop)).await??;
        let mut github = Self {
            server,
            port,
            token,
            person_token,
            serving: CancellationToken::new(),
            _dir: dir,
        };
        github.restart().await?;
        Ok(github)
    }

    /// Takes no connection any more, and gives no answer on those that are open. What it holds stays.
    pub fn stop(&mut self) {
        self.server.stopped.store(true, Ordering::SeqCst);
        self.serving.cancel();
    }

    /// Takes connections again, at the same address.
    pub async fn restart(&mut self) -> Result<()> {
        self.stop();
        let address = ("127.0.0.1", self.port);
        let bound = eventually("the port is free", Duration::from_secs(30), || async {
            TcpListener::bind(address).await.ok()
        });
        let listener = bound.await?;
        self.server.stopped.store(false, Ordering::SeqCst);
        self.serving = CancellationToken::new();
        let router = Router::new()
            .fallback(http::serve)
            .with_state(Arc::clone(&self.server));
        let stopped = self.serving.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = axum::serve(listener, router) => {}
                () = stopped.cancelled() => {}
            }
        });
        Ok(())
    }

    /// The base URL, without a trailing slash.
    pub fn url(&self) -> &str {
        &self.server.url
    }

    /// A fine-grained token of [`BOT`].
    pub fn token(&self) -> &str {
        &self.token
    }

    /// A fine-grained token of [`PERSON`].
    pub fn person_token(&self) -> &str {
        &self.person_token
    }

    /// The App, which is installed in the organisation.
    pub fn app(&self) -> &App {
        &self.server.credentials.app
    }

    /// A token is not known any more.
    pub fn revoke(&self, token: &str) {
        self.server.credentials.revoke(token);
    }

    /// How many tokens of the installation were made.
    pub fn minted_tokens(&self) -> u32 {
        self.server.credentials.mints()
    }

    /// Every token of the installation ends now.
    pub fn expire_installation_tokens(&self) {
        self.server.credentials.expire_installation_tokens();
    }

    /// Whether new tokens of the installation have 504 characters rather than 40.
    pub fn set_long_tokens(&self, long: bool) {
        self.server.long_tokens.store(long, Ordering::Relaxed);
    }

    /// Whether `createCommitOnBranch` keeps the mode of a file that may be run; at first it does not.
    pub fn set_keeps_modes(&self, keeps: bool) {
        self.server.keeps_modes.store(keeps, Ordering::Relaxed);
    }

    /// Makes a private repository with a few files on `main`. The bot, the person and the App may write.
    pub async fn create_repository(&self, full_name: &str) -> Result<TestRepository> {
        let repository = self.empty_repository(full_name).await?;
        repository.add_files(
            "main",
            &[
                File::plain("README.md", "# gitops\n"),
                File::plain("clusters/prod-eu/kustomization.yaml", "resources: []\n"),
                File::plain("clusters/prod-eu/bindings.yaml", "bindings: [ops-admin]\n"),
                File::plain("clusters/prod-eu/obsolete.yaml", "kind: ConfigMap\n"),
            ],
        )?;
        Ok(repository)
    }

    /// Makes a private repository without any commit.
    pub async fn empty_repository(&self, full_name: &str) -> Result<TestRepository> {
        let server = Arc::clone(&self.server);
        let full_name = full_name.to_owned();
        let rights = [
            (BOT.to_owned(), Right::Write),
            (PERSON.to_owned(), Right::Write),
            (self.app().bot(), Right::Write),
        ];
        let id = server::blocking(move || add_repository(&server, &full_name, None, rights.into()))
            .await?;
        Ok(TestRepository {
            server: Arc::clone(&self.server),
            id,
        })
    }

    /// A repository that exists.
    pub fn repository(&self, full_name: &str) -> Result<TestRepository> {
        let (owner, name) = full_name.split_once('/').context("no slash in the name")?;
        let state = self.server.now();
        let found = state
            .repository(owner, name, false)
            .context("no such repository")?;
        Ok(TestRepository {
            server: Arc::clone(&self.server),
            id: found.id,
        })
    }

    /// The person's fork of a repository, with every branch; the bot may look at it.
    pub async fn fork(&self, repository: &TestRepository) -> Result<TestRepository> {
        let server = Arc::clone(&self.server);
        let parent = repository.id;
        let rights = [
            (PERSON.to_owned(), Right::Admin),
            (BOT.to_owned(), Right::Read),
        ];
        let id = server::blocking(move || fork(&server, parent, rights.into())).await?;
        Ok(TestRepository {
            server: Arc::clone(&self.server),
            id,
        })
    }

    /// Makes something fail.
    pub fn fault(&self, fault: Fault) {
        self.server.faults.add(fault);
    }

    /// From now on only so many requests are left of the hourly budget, which is filled again at `reset`.
    pub fn leave_budget(&self, remaining: u32, reset: jiff::Timestamp) {
        limits::leave(&self.server, remaining, reset);
    }

    /// What fails on purpose, to hold and release requests.
    pub fn faults(&self) -> &Faults {
        &self.server.faults
    }

    /// Keeps the picture of now for [`super::faults::Effect::Frozen`].
    pub fn freeze(&self) {
        self.server.freeze();
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<LoggedRequest> {
        self.server.log.requests()
    }

    /// Forgets the requests, so that the next is number 1.
    pub fn clear_requests(&self) {
        self.server.log.clear();
    }

    /// What did not keep to GitHub's published interface; empty in a good test.
    pub fn violations(&self) -> Vec<String> {
        self.server.log.violations()
    }
}

impl Drop for TestGithub {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accounts(app: &App) -> State {
    let mut state = State::default();
    let all = [
        (ORGANISATION.to_owned(), AccountKind::Organization),
        (BOT.to_owned(), AccountKind::User),
        (PERSON.to_owned(), AccountKind::User),
        (app.bot(), AccountKind::Bot),
    ];
    for (login, kind) in all {
        let teams = match kind {
            AccountKind::Organization => vec![TEAM.to_owned()],
            AccountKind::User | AccountKind::Bot => Vec::new(),
        };
        let id = state.next_id();
        state.accounts.push(Account {
            id,
            login,
            kind,
            teams,
        });
    }
    state
}

fn add_repository(
    server: &Server,
    full_name: &str,
    parent: Option<u64>,
    permissions: BTreeMap<String, Right>,
) -> Result<u64> {
    let (owner, name) = full_name.split_once('/').context("no slash in the name")?;
    let made = server.change(|state| {
        let id = state.next_id();
        let git = GitRepository::init(&server.dir.join(format!("{id}.git")))?;
        let repository = Repository {
            id,
            owner: owner.to_owned(),
            name: name.to_owned(),
            former_names: Vec::new(),
            git,
            refs: BTreeMap::new(),
            default_branch: "main".to_owned(),
            archived: false,
            locked: false,
            disabled: false,
            public: false,
            auto_merge_allowed: false,
            parent,
            permissions,
            rules: Vec::new(),
            labels: Vec::new(),
            pulls: BTreeMap::new(),
            next_number: 1,
        };
        state.repositories.insert(id, repository);
        Ok(id)
    });
    made.map_err(|error| anyhow::anyhow!("{error}"))
}

fn fork(server: &Server, parent: u64, rights: BTreeMap<String, Right>) -> Result<u64> {
    let state = server.now();
    let source = state
        .repositories
        .get(&parent)
        .context("no such repository")?;
    let id = add_repository(
        server,
        &format!("{PERSON}/{}", source.name),
        Some(parent),
        rights,
    )?;
    let copied = server.change(|state| {
        let copy = state.repositories.get_mut(&id).context("no fork")?;
        copy.git.take_objects_of(&source.git)?;
        for (name, oid) in &source.refs {
            copy.git.update_ref(name, oid, super::git::NO_OBJECT)?;
        }
        copy.refs.clone_from(&source.refs);
        copy.default_branch.clone_from(&source.default_branch);
        Ok(())
    });
    copied.map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(id)
}
