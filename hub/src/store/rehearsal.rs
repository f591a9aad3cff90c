//! Whether what is written stays, or is undone as soon as it is known what would come of it.

use super::identity::SharedIdentities;

/// Whether an order is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// It is.
    Earnest,
    /// It is not: whoever asked only wants to know what would happen.
    Dry,
}

impl Run {
    /// As a request says it.
    pub const fn of(validate_only: bool) -> Self {
        if validate_only {
            Self::Dry
        } else {
            Self::Earnest
        }
    }

    /// Whether nothing may change.
    pub const fn is_dry(self) -> bool {
        matches!(self, Self::Dry)
    }

    /// The identities to write to: in a dry run those that forget what is written.
    pub fn identities(self, identities: &SharedIdentities) -> SharedIdentities {
        match self {
            Self::Earnest => SharedIdentities::clone(identities),
            Self::Dry => identities.rehearsal(),
        }
    }
}
