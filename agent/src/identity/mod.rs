//! Owns how the agent shows who it is: by TLS files that others make, or by a key and certificate of its own.
//!
//! With its own, it enrols by a join token ([`enrol`]), renews over the session, and keeps everything in a folder or a
//! Secret ([`place`]) so that a restart needs no other token. [`kept`] is what is kept, [`trial`] decides which certificate is
//! used when, [`keeper`] makes it happen, and [`notice`] tells people when it cannot.

mod enrol;
mod keeper;
mod kept;
mod notice;
mod place;
mod trial;

use std::sync::Arc;

use nabu_common::tls::Connector;

pub use self::keeper::{Keeper, Token};
pub use self::notice::Notice;
pub use self::place::Place;

/// How the agent shows who it is.
#[derive(Clone)]
pub enum Identity {
    /// By files.
    Files(Connector),
    /// By a certificate of its own.
    Own(Arc<Keeper>),
}

impl Identity {
    /// Opens TLS connections, with the certificate that is to be used now.
    ///
    /// # Errors
    /// If there is none; the text says what to do.
    pub async fn connector(&self) -> Result<Connector, String> {
        match self {
            Self::Files(connector) => Ok(connector.clone()),
            Self::Own(keeper) => keeper.connector().await,
        }
    }

    /// Who renews, if anybody does.
    pub fn keeper(&self) -> Option<&Arc<Keeper>> {
        match self {
            Self::Files(_) => None,
            Self::Own(keeper) => Some(keeper),
        }
    }
}
