//! A Git forge for a test: the real Gitea server on loopback, with one organisation, a bot and a second person.
//!
//! [`TestForge`] is the server, [`TestRepository`] one repository on it: make one for each test rather than a server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::process::{Process, free_port, testbed_path};
use crate::repository::TestRepository;
use crate::wait::eventually;

/// The organisation that owns the repositories.
pub const ORGANISATION: &str = "ninsun-labs";

/// The account whose token the hub has. It administrates the server, as the test bed needs it.
pub const BOT: &str = "nabu-bot";

/// Somebody else, without any right at first.
pub const PERSON: &str = "alice";

/// The password of both, for people who look at a forge of the demo.
pub const PASSWORD: &str = "loopback-only-1";

/// A running forge; it ends with this value.
pub struct TestForge {
    dir: TempDir,
    port: u16,
    process: Option<Process>,
    bot: String,
    person: String,
}

impl TestForge {
    /// The server of all tests of this process that run at the moment; the last one ends it.
    pub async fn shared() -> Result<Arc<Self>> {
        static SHARED: Mutex<Weak<TestForge>> = Mutex::const_new(Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(forge) = shared.upgrade() {
            return Ok(forge);
        }
        let forge = Arc::new(Self::start().await?);
        *shared = Arc::downgrade(&forge);
        Ok(forge)
    }

    /// Starts a server of its own, with the organisation, the bot and the person.
    pub async fn start() -> Result<Self> {
        nabu_common::tls::install_crypto_provider();
        let dir = TempDir::with_prefix("nabu-forge-")?;
        let port = free_port()?;
        write_config(dir.path(), port)?;
        gitea(dir.path(), &["migrate"])?;
        let bot = make_user(dir.path(), BOT, &["--admin"])?;
        let person = make_user(dir.path(), PERSON, &[])?;
        let mut forge = Self {
            dir,
            port,
            process: None,
            bot,
            person,
        };
        forge.restart().await?;
        forge
            .call(
                Method::POST,
                "orgs",
                Some(json!({ "username": ORGANISATION })),
            )
            .await?;
        Ok(forge)
    }

    /// Stops the server; what it holds stays.
    pub fn stop(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.terminate(Duration::from_secs(20))?;
        }
        Ok(())
    }

    /// Starts the server again, at the same address with what it held.
    pub async fn restart(&mut self) -> Result<()> {
        self.stop()?;
        let mut command = Command::new(testbed_path("gitea")?);
        command
            .arg("--exit-with-stdin")
            .arg("--config")
            .arg(config(self.dir.path()))
            .arg("web");
        command.current_dir(self.dir.path());
        let mut process = Process::start("gitea", &mut command, &self.dir.path().join("log"))?;
        let http = client()?;
        let health = format!("{}/api/healthz", self.url());
        let ready = eventually("gitea answers", Duration::from_mins(1), || async {
            let answer = http.get(&health).send().await.ok()?;
            answer.status().is_success().then_some(())
        });
        if ready.await.is_err() {
            process.assert_running()?;
            bail!("gitea does not get ready:\n{}", process.output());
        }
        self.process = Some(process);
        Ok(())
    }

    /// The base URL, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The token of [`BOT`].
    pub fn token(&self) -> &str {
        &self.bot
    }

    /// The token of [`PERSON`].
    pub fn person_token(&self) -> &str {
        &self.person
    }

    /// Another token of [`BOT`], with these scopes only.
    pub fn scoped_token(&self, name: &str, scopes: &str) -> Result<String> {
        make_token(self.dir.path(), BOT, name, scopes)
    }

    /// Takes a branch of a repository (`owner/name`) out of the server's database, and leaves it in git.
    pub fn forget_branch(&self, repository: &str, name: &str) -> Result<()> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_/.".contains(c);
        ensure!(
            repository.chars().all(plain) && name.chars().all(plain),
            "no plain names: {repository} {name}"
        );
        let of_it = format!(
            "repo_id IN (SELECT id FROM repository WHERE owner_name || '/' || name = '{repository}')"
        );
        let output = Command::new("sqlite3")
            .args(["-cmd", ".timeout 5000"])
            .arg(self.dir.path().join("data/gitea.db"))
            .arg(format!(
                "DELETE FROM branch WHERE name = '{name}' AND {of_it}; SELECT changes()"
            ))
            .output()
            .context("sqlite3 cannot be run")?;
        ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        ensure!(output.stdout == b"1\n", "{repository} has no branch {name}");
        Ok(())
    }

    /// Makes a repository of [`ORGANISATION`] with a few files on `main`.
    pub async fn create_repository(&self, name: &str) -> Result<TestRepository> {
        let body = json!({ "name": name, "auto_init": true, "default_branch": "main" });
        self.call(
            Method::POST,
            &format!("orgs/{ORGANISATION}/repos"),
            Some(body),
        )
        .await?;
        let repository = self.repository(&format!("{ORGANISATION}/{name}"))?;
        repository
            .add_files(
                "main",
                &[
                    ("clusters/prod-eu/kustomization.yaml", "resources: []\n"),
                    ("clusters/prod-eu/bindings.yaml", "bindings: [ops-admin]\n"),
                    ("clusters/prod-eu/obsolete.yaml", "kind: ConfigMap\n"),
                ],
            )
            .await?;
        Ok(repository)
    }

    /// Makes a repository of [`ORGANISATION`] without any commit.
    pub async fn create_empty_repository(&self, name: &str) -> Result<TestRepository> {
        let body = json!({ "name": name, "default_branch": "main" });
        let path = format!("orgs/{ORGANISATION}/repos");
        self.call(Method::POST, &path, Some(body)).await?;
        self.repository(&format!("{ORGANISATION}/{name}"))
    }

    /// Makes a team of [`ORGANISATION`] that may write to every repository; it is there already if it has the name.
    pub async fn create_team(&self, name: &str) -> Result<()> {
        let body = json!({
            "name": name, "permission": "write", "includes_all_repositories": true,
            "units_map": { "repo.code": "write", "repo.pulls": "write" },
        });
        let path = format!("orgs/{ORGANISATION}/teams");
        self.call(Method::POST, &path, Some(body)).await?;
        Ok(())
    }

    /// A repository that exists.
    pub fn repository(&self, full_name: &str) -> Result<TestRepository> {
        Ok(TestRepository {
            full_name: full_name.to_owned(),
            url: self.url(),
            git_dir: (self.dir.path().join("repositories"))
                .join(format!("{}.git", full_name.to_lowercase())),
            bot: self.bot.clone(),
            person: self.person.clone(),
            http: client()?,
        })
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value> {
        let url = format!("{}/api/v1/{path}", self.url());
        call(&client()?, &self.bot, method, &url, body).await
    }
}

/// A client of its own for each use: connections belong to the runtime of one test, and tests share a server.
fn client() -> Result<reqwest::Client> {
    let builder = reqwest::Client::builder().no_proxy();
    Ok(builder.timeout(Duration::from_secs(30)).build()?)
}

/// One request of the test bed; any status but a success is an error.
pub(crate) async fn call(
    http: &reqwest::Client,
    token: &str,
    method: Method,
    url: &str,
    body: Option<Value>,
) -> Result<Value> {
    let mut request = http
        .request(method.clone(), url)
        .header("authorization", format!("token {token}"));
    if let Some(body) = body {
        request = request.json(&body);
    }
    let answer = request.send().await?;
    let status = answer.status();
    let text = answer.text().await?;
    ensure!(status.is_success(), "{method} {url}: {status} {text}");
    if text.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(&text).with_context(|| format!("{method} {url} gave no JSON"))
}

fn config(dir: &Path) -> PathBuf {
    dir.join("app.ini")
}

fn write_config(dir: &Path, port: u16) -> Result<()> {
    let template = include_str!("gitea.ini");
    let text = template
        .replace("{dir}", &dir.display().to_string())
        .replace("{port}", &port.to_string())
        .replace(
            "{static}",
            &testbed_path("gitea-static")?.display().to_string(),
        );
    std::fs::write(config(dir), text)?;
    Ok(())
}

/// Makes a user and gives a token with all scopes.
fn make_user(dir: &Path, name: &str, more: &[&str]) -> Result<String> {
    let mail = format!("{name}@nabu.invalid");
    let user = [
        "admin",
        "user",
        "create",
        "--username",
        name,
        "--email",
        &mail,
    ];
    let word = ["--password", PASSWORD, "--must-change-password=false"];
    gitea(dir, &[&user[..], &word, more].concat())?;
    make_token(dir, name, "test", "all")
}

/// A token of a user with these scopes.
fn make_token(dir: &Path, user: &str, name: &str, scopes: &str) -> Result<String> {
    let token = ["admin", "user", "generate-access-token", "--username", user];
    let options = ["--token-name", name, "--scopes", scopes, "--raw"];
    let output = gitea(dir, &[&token[..], &options].concat())?;
    // Warnings come before it (as root) and after it (of slow queries, on a busy machine).
    let token = output
        .lines()
        .map(str::trim)
        .find(|line| line.len() == 40 && line.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .context("gitea gave no token")?;
    Ok(token.to_owned())
}

fn gitea(dir: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(testbed_path("gitea")?)
        .arg("--config")
        .arg(config(dir))
        .args(arguments)
        .current_dir(dir)
        .output()?;
    if !output.status.success() {
        bail!(
            "gitea {}: {}",
            arguments.first().unwrap_or(&""),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}
