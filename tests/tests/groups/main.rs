//! The pull request of a group, on every forge alike: written once against [`stage::Stage`], run on a real Gitea and on the
//! test forges of GitHub and GitLab.

#![expect(clippy::unwrap_used, reason = "a test binary has no outside")]

mod closing;
mod faults;
mod joining;
mod stage;

/// Makes a test of each function for each forge.
macro_rules! on_every_forge {
    ($($name:ident),* $(,)?) => {
        mod forgejo {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(&mut crate::stage::Stage::forgejo(stringify!($name)).await).await;
            })*
        }
        mod github {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(&mut crate::stage::Stage::github().await).await;
            })*
        }
        mod gitlab {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(&mut crate::stage::Stage::gitlab().await).await;
            })*
        }
    };
}
pub(crate) use on_every_forge;
