//! The forge of the demo: a real Gitea, or the test forge that speaks GitHub's or GitLab's API.

use anyhow::{Result, bail};
use nabu_tests::forge::{BOT, PASSWORD, TestForge};
use nabu_tests::repository::TestRepository;
use nabu_tests::test_forge::github::{self, File, TestGithub};
use nabu_tests::test_forge::gitlab::{TestGitlab, TestProject};

const REPOSITORY: &str = "ugallu-gitops";
/// A file that one response of the demo finds as it wants it.
const THERE: (&str, &str) = (
    "policies/images.yaml",
    "blocked:\n  - docker.io/evil/miner\n",
);

/// A forge with the repository that the route names.
pub(crate) enum Forge {
    Gitea(Box<TestForge>, TestRepository),
    Github(Box<TestGithub>, github::TestRepository),
    Gitlab(Box<TestGitlab>, TestProject),
}

impl Forge {
    /// Starts the one that `FORGE` names.
    pub(crate) async fn start(name: &str) -> Result<Self> {
        match name {
            "" | "gitea" | "forgejo" => {
                let forge = TestForge::start().await?;
                let repository = forge.create_repository(REPOSITORY).await?;
                repository.add_file("main", THERE.0, THERE.1).await?;
                Ok(Self::Gitea(Box::new(forge), repository))
            }
            "github" => {
                let forge = TestGithub::start().await?;
                let full_name = format!("{}/{REPOSITORY}", github::ORGANISATION);
                let repository = forge.create_repository(&full_name).await?;
                repository.add_files("main", &[File::plain(THERE.0, THERE.1)])?;
                Ok(Self::Github(Box::new(forge), repository))
            }
            "gitlab" => {
                let forge = TestGitlab::start().await?;
                let project = forge.create_project(&gitlab_project())?;
                project.add_files("main", &[THERE, ("README.md", "# gitops\n")])?;
                Ok(Self::Gitlab(Box::new(forge), project))
            }
            other => bail!("FORGE={other} is not known; choose gitea, github or gitlab"),
        }
    }

    /// What it is, for people.
    pub(crate) fn title(name: &str) -> &'static str {
        match name {
            "github" => "the test forge that speaks GitHub's API over real git",
            "gitlab" => "the test forge that speaks GitLab's API over real git",
            _ => "a Gitea",
        }
    }

    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Gitea(..) => "forgejo-token",
            Self::Github(..) => "github-token",
            Self::Gitlab(..) => "gitlab-token",
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Gitea(forge, _) => forge.url(),
            Self::Github(forge, _) => forge.url().to_owned(),
            Self::Gitlab(forge, _) => forge.url(),
        }
    }

    pub(crate) fn token(&self) -> &str {
        match self {
            Self::Gitea(forge, _) => forge.token(),
            Self::Github(forge, _) => forge.token(),
            Self::Gitlab(forge, _) => forge.token(),
        }
    }

    pub(crate) fn repository(&self) -> Result<String> {
        match self {
            Self::Gitea(_, repository) => Ok(repository.full_name.clone()),
            Self::Github(_, repository) => repository.full_name(),
            Self::Gitlab(..) => Ok(gitlab_project()),
        }
    }

    /// How many pull requests there are, in whatever state.
    pub(crate) async fn pull_requests(&self) -> Result<usize> {
        match self {
            Self::Gitea(_, repository) => Ok(repository.pull_requests().await?.len()),
            Self::Github(_, repository) => Ok(repository.pulls()?.len()),
            Self::Gitlab(_, project) => Ok(project.merge_requests()?.len()),
        }
    }

    /// How people get in.
    pub(crate) fn entrance(&self) -> String {
        match self {
            Self::Gitea(forge, _) => {
                format!("{}  (user {BOT}, password {PASSWORD})", forge.url())
            }
            Self::Github(forge, _) => {
                let url = forge.url();
                format!("{url}  (REST below {url}/api/v3, token {})", forge.token())
            }
            Self::Gitlab(forge, _) => {
                let url = forge.url();
                format!("{url}  (REST below {url}/api/v4, token {})", forge.token())
            }
        }
    }
}

fn gitlab_project() -> String {
    format!("{}/{REPOSITORY}", github::ORGANISATION)
}
