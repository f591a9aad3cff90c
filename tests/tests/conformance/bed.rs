//! A repository on some forge, a hub that reaches it through a proxy, and the eyes and hands of a story.

use std::collections::BTreeMap;

use nabu_hub::change::{ForgeTarget, Intent};
use nabu_hub::forge::{ForgeError, Made, PullRequest};
use nabu_hub::response::{ErrorType, ResponseError};
use nabu_tests::fault_proxy::FaultProxy;
use nabu_tests::intents::{self, HubForges, failure};
use nabu_tests::test_forge::bytes::{ModeAndId, NewFile};
use nabu_tests::test_forge::git::{Commit, GitRepository, PLAIN, Signature};

use crate::forges::{Differences, SeenPull, Server};

pub(crate) struct Bed<S> {
    pub(crate) server: S,
    pub(crate) proxy: FaultProxy,
    pub(crate) hub: HubForges,
}

impl<S: Server> Bed<S> {
    pub(crate) async fn new(story: &str) -> Self {
        let server = S::start(story).await;
        let proxy = FaultProxy::start(&server.url()).await.unwrap();
        let hub = HubForges::new(&[("token", &server.token())]);
        Self { server, proxy, hub }
    }

    /// Where this forge differs from others.
    #[expect(
        clippy::unused_self,
        reason = "stories have a bed, and no name for the type of its server"
    )]
    pub(crate) fn differs(&self) -> Differences {
        S::DIFFERENCES
    }

    /// A hub that remembers nothing: another process, or one whose store is lost.
    pub(crate) fn other_hub(&self) -> HubForges {
        HubForges::new(&[("token", &self.server.token())])
    }

    pub(crate) fn forget(&mut self) {
        self.hub = self.other_hub();
    }

    pub(crate) fn target_through(&self, proxy: &FaultProxy) -> ForgeTarget {
        intents::target(S::KIND, &proxy.url(), &self.server.repository())
    }

    /// A change of these files against `main`.
    pub(crate) fn intent(&self, uid: &str, files: &[(&str, Option<&str>)]) -> Intent {
        intents::intent(self.target_through(&self.proxy), uid, files)
    }

    /// Makes a change, with the requests that it cost: as the hub counts them, and as they arrived.
    pub(crate) async fn make(&self, intent: &Intent) -> (Result<Made, ForgeError>, u32) {
        let before = self.proxy.requests();
        let (made, requests) = self.hub.make(intent).await;
        assert_eq!(requests, self.proxy.requests() - before, "{made:?}");
        (made, requests)
    }

    pub(crate) async fn pull(&self, intent: &Intent) -> (PullRequest, u32) {
        match self.make(intent).await {
            (Ok(Made::PullRequest(pull)), requests) => (pull, requests),
            other => panic!("no pull request: {other:?}"),
        }
    }

    /// A change that comes to nothing, and leaves nothing.
    pub(crate) async fn nothing(&self, intent: &Intent) {
        let (made, _) = self.make(intent).await;
        assert!(matches!(made, Ok(Made::NoActionNeeded { .. })), "{made:?}");
        assert!(!self.branches().contains(&intent.branch));
    }

    /// A change that fails so; with what is said of it.
    pub(crate) async fn fails(&self, intent: &Intent, kind: ErrorType, reason: &str) -> String {
        let ResponseError {
            kind: was,
            reason: said,
            detail,
        } = failure(self.make(intent).await.0);
        assert_eq!((was, said.as_str()), (kind, reason), "{detail}");
        detail
    }

    /// A change whose branch or pull request is somebody else's.
    pub(crate) async fn is_taken(&self, intent: &Intent) -> String {
        let detail = self
            .fails(intent, ErrorType::Conflicting, "BranchTaken")
            .await;
        assert!(detail.contains(&intent.branch), "{detail}");
        detail
    }

    pub(crate) fn git(&self) -> GitRepository {
        self.server.git()
    }

    /// The tip of a branch, as git has it.
    pub(crate) fn tip(&self, branch: &str) -> Commit {
        self.git().commit(&format!("refs/heads/{branch}")).unwrap()
    }

    /// The names of all branches, as git has them.
    pub(crate) fn branches(&self) -> Vec<String> {
        let refs = self.git().refs().unwrap().into_keys();
        refs.filter_map(|name| Some(name.strip_prefix("refs/heads/")?.to_owned()))
            .collect()
    }

    /// Every file of a branch by the bytes of its path.
    pub(crate) fn files(&self, branch: &str) -> BTreeMap<Vec<u8>, ModeAndId> {
        self.git().files(&format!("refs/heads/{branch}")).unwrap()
    }

    /// The bytes of a file, if it is there.
    pub(crate) fn bytes(&self, branch: &str, path: &str) -> Option<Vec<u8>> {
        let files = self.files(branch);
        let (_, oid) = files.get(path.as_bytes())?;
        Some(self.git().blob(oid).unwrap())
    }

    /// The text of a file, if it is there.
    pub(crate) fn file(&self, branch: &str, path: &str) -> Option<String> {
        let bytes = self.bytes(branch, path)?;
        Some(String::from_utf8(bytes).unwrap())
    }

    /// The mode of a file, if it is there.
    pub(crate) fn mode(&self, branch: &str, path: &str) -> Option<String> {
        let (mode, _) = self.files(branch).remove(path.as_bytes())?;
        Some(mode)
    }

    /// Somebody commits to a branch on top of another, with this message; the branch is made if there is none.
    pub(crate) async fn commit(
        &self,
        from: &str,
        branch: &str,
        message: &str,
        files: &[NewFile<'_>],
    ) -> String {
        let who = Signature::new("Alice", "alice@nabu.invalid");
        let parent = self.tip(from).oid;
        let commit = self.git().write_files(Some(&parent), message, &who, files);
        let commit = commit.unwrap();
        self.server.push(branch, &commit).await;
        commit
    }

    /// Somebody adds a plain file to a branch.
    pub(crate) async fn add_file(&self, branch: &str, path: &str, contents: &str) -> String {
        self.commit(branch, branch, "Mine", &[plain(path, contents)])
            .await
    }

    /// What an interruption between commit and pull request leaves behind, if the files are written so.
    pub(crate) async fn commit_of(&self, intent: &Intent, files: &[NewFile<'_>]) -> String {
        self.commit("main", &intent.branch, &intent.commit_message, files)
            .await
    }

    /// Makes a branch at the tip of another.
    pub(crate) async fn add_branch(&self, name: &str, from: &str) {
        self.server.push(name, &self.tip(from).oid).await;
    }

    /// The one pull request that there is.
    pub(crate) async fn only_pull(&self) -> SeenPull {
        let mut pulls = self.server.pulls().await;
        assert_eq!(pulls.len(), 1, "{pulls:?}");
        pulls.remove(0)
    }
}

/// A plain file.
pub(crate) fn plain<'a>(path: &'a str, contents: &'a str) -> NewFile<'a> {
    of_mode(PLAIN, path, contents.as_bytes())
}

/// A file of any mode and content.
pub(crate) fn of_mode<'a>(mode: &'a str, path: &'a str, content: &'a [u8]) -> NewFile<'a> {
    NewFile {
        path: path.as_bytes(),
        mode,
        content: Some(content),
    }
}
