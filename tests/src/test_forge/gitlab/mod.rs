//! GitLab's REST API (v4) and GraphQL, as far as a hub, a person and `python-gitlab` need them for branches, commits and
//! merge requests.
//!
//! [`TestGitlab`] is the server, [`TestProject`] one project on it, as its people see and change it. Status codes, texts
//! and the order of checks are those of GitLab 17's sources (`lib/api`, `app/services`, Gitaly); files name the source.

mod answer;
mod commits;
mod complexity;
mod entities;
mod graphql;
mod http;
mod merge_requests;
mod merging;
mod model;
mod project;
mod repository;
mod request;
mod routes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::Router;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::http::Server;
pub use self::model::{Pipeline, Role, TokenState};
use self::model::{Project, Protection, State, Token, User};
pub use self::project::TestProject;
use super::faults::{Fault, Faults};
use super::git::GitRepository;
use super::log::LoggedRequest;

/// The account of the access token that the hub has.
pub const BOT: &str = "project_1_bot_nabu";

/// Somebody else.
pub const PERSON: &str = "alice";

const BOT_TOKEN: &str = "glpat-loopback-only-nabu";
const PERSON_TOKEN: &str = "glpat-loopback-only-alice";

/// A running server; it ends with this value.
#[derive(Debug)]
pub struct TestGitlab {
    server: Arc<Server>,
    port: u16,
    serving: CancellationToken,
    _dir: TempDir,
}

impl TestGitlab {
    /// Starts a server with the bot and the person.
    pub async fn start() -> Result<Self> {
        Self::start_below("").await
    }

    /// Starts a server whose addresses begin with a path such as `/gitlab`.
    pub async fn start_below(prefix: &str) -> Result<Self> {
        Self::start_at(0, prefix).await
    }

    /// Starts a server on this port (0: any that is free).
    pub async fn start_at(port: u16, prefix: &str) -> Result<Self> {
        let dir = TempDir::with_prefix("nabu-gitlab-")?;
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let port = listener.local_addr()?.port();
        let state = State {
            dir: dir.path().to_owned(),
            url: format!("http://127.0.0.1:{port}{prefix}"),
            users: Vec::new(),
            tokens: BTreeMap::new(),
            projects: Vec::new(),
            moved: BTreeMap::new(),
            read_only: false,
            last_id: 0,
        };
        let gitlab = Self {
            server: Arc::new(Server {
                state: Mutex::new(state),
                log: super::log::Log::default(),
                faults: Arc::default(),
                prefix: prefix.to_owned(),
                frozen: Mutex::default(),
                budget: Mutex::default(),
            }),
            port,
            serving: CancellationToken::new(),
            _dir: dir,
        };
        gitlab.add_user(BOT, "nabu", Some(BOT_TOKEN));
        gitlab.add_user(PERSON, "Alice", Some(PERSON_TOKEN));
        let router = Router::new()
            .fallback(http::serve)
            .with_state(Arc::clone(&gitlab.server));
        let stopped = gitlab.serving.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = axum::serve(listener, router) => {}
                () = stopped.cancelled() => {}
            }
        });
        Ok(gitlab)
    }

    /// The base URL, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}{}", self.port, self.server.prefix)
    }

    /// The token of [`BOT`].
    pub fn token(&self) -> &'static str {
        BOT_TOKEN
    }

    /// The token of [`PERSON`].
    pub fn person_token(&self) -> &'static str {
        PERSON_TOKEN
    }

    /// Adds an account, and gives its id. With a token, the token has the scope `api`.
    pub fn add_user(&self, username: &str, name: &str, token: Option<&str>) -> u64 {
        let mut state = self.server.state();
        let id = state.next_id();
        state.users.push(User {
            id,
            username: username.to_owned(),
            name: name.to_owned(),
        });
        if let Some(token) = token {
            let value = Token {
                user: id,
                scopes: vec!["api".to_owned()],
                state: TokenState::Active,
            };
            state.tokens.insert(token.to_owned(), value);
        }
        id
    }

    /// Makes a private project with a few files on `main`, where the bot is a developer and the person a maintainer.
    pub fn create_project(&self, path: &str) -> Result<TestProject> {
        let project = self.create_empty_project(path)?;
        project.add_files(
            "main",
            &[
                ("clusters/prod-eu/kustomization.yaml", "resources: []\n"),
                ("clusters/prod-eu/bindings.yaml", "bindings: [ops-admin]\n"),
                ("clusters/prod-eu/obsolete.yaml", "kind: ConfigMap\n"),
            ],
        )?;
        Ok(project)
    }

    /// Makes a project like [`TestGitlab::create_project`], without any commit.
    pub fn create_empty_project(&self, path: &str) -> Result<TestProject> {
        let mut state = self.server.state();
        let id = state.next_id();
        let git = GitRepository::init(&state.dir.join(format!("{id}.git")))?;
        let roles = [(BOT, Role::Developer), (PERSON, Role::Maintainer)];
        let members = (state.users.iter())
            .filter_map(|user| {
                let role = roles.iter().find(|(name, _)| *name == user.username)?;
                Some((user.id, role.1))
            })
            .collect();
        state.projects.push(Project {
            id,
            path: path.to_owned(),
            git,
            default_branch: Some("main".to_owned()),
            archived: false,
            public: false,
            merge_requests_enabled: true,
            forked_from: None,
            members,
            // As every new project: only maintainers push to and merge into the default branch.
            protections: vec![Protection {
                pattern: "main".to_owned(),
                push: Role::Maintainer,
                merge: Role::Maintainer,
            }],
            labels: BTreeSet::new(),
            merge_requests: Vec::new(),
            pipeline: Pipeline::None,
            approvals_missing: false,
            checking: 0,
            several_people: true,
        });
        Ok(TestProject::new(Arc::clone(&self.server), id, path))
    }

    /// What becomes of the token of [`BOT`].
    pub fn set_token_state(&self, state: TokenState) {
        if let Some(token) = self.server.state().tokens.get_mut(BOT_TOKEN) {
            token.state = state;
        }
    }

    /// The scopes of the token of [`BOT`].
    pub fn set_token_scopes(&self, scopes: &[&str]) {
        if let Some(token) = self.server.state().tokens.get_mut(BOT_TOKEN) {
            token.scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
        }
    }

    /// Whether the server takes no changes, as in maintenance mode.
    pub fn set_read_only(&self, read_only: bool) {
        self.server.state().read_only = read_only;
    }

    /// From now on every answer tells of a budget of which so many requests are left until `reset`, as gitlab.com does.
    pub fn leave_budget(&self, remaining: u32, reset: jiff::Timestamp) {
        *self.server.budget() = Some((remaining, reset));
    }

    /// What is to fail.
    pub fn faults(&self) -> &Faults {
        &self.server.faults
    }

    /// Adds a fault.
    pub fn fail(&self, fault: Fault) {
        self.server.faults.add(fault);
    }

    /// Keeps the picture of now for [`super::faults::Effect::Frozen`].
    pub fn freeze(&self) {
        self.server.freeze();
    }

    /// Everything that did not keep to GitLab's schema.
    pub fn violations(&self) -> Vec<String> {
        self.server.log.violations()
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<LoggedRequest> {
        self.server.log.requests()
    }

    /// Forgets the requests, so that the next is number 1.
    pub fn forget_requests(&self) {
        self.server.log.clear();
    }
}

impl Drop for TestGitlab {
    fn drop(&mut self) {
        self.serving.cancel();
    }
}
