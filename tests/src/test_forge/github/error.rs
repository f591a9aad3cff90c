//! What GitHub answers to what cannot be done, with its own words as far as they are known from public reports.

use std::fmt;

/// The kind of an error: a `type` in GraphQL, a status in REST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// There is no such thing, or the caller may not know of it.
    NotFound,
    /// The caller may not do this.
    Forbidden,
    /// What was asked makes no sense.
    Unprocessable,
    /// The branch moved.
    StaleData,
    /// A branch protection rule is against it.
    BranchProtection,
    /// A merge is not possible.
    NotMergeable,
    /// The token is not known.
    Unauthorized,
    /// The test forge itself failed, or cannot do this.
    Internal,
}

/// An error.
#[derive(Clone, Debug)]
pub(super) struct ApiError {
    /// Its kind.
    pub kind: Kind,
    /// What people read.
    pub message: String,
}

/// What an operation gives.
pub(super) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// An error.
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// There is no such thing.
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, message)
    }

    /// What was asked makes no sense.
    pub(super) fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(Kind::Unprocessable, message)
    }

    /// No repository of that name, for this caller.
    pub(super) fn no_repository(owner: &str, name: &str) -> Self {
        Self::not_found(format!(
            "Could not resolve to a Repository with the name '{owner}/{name}'."
        ))
    }

    /// No object of that global id.
    pub(super) fn no_node(id: &str) -> Self {
        Self::not_found(format!(
            "Could not resolve to a node with the global id of '{id}'"
        ))
    }

    /// The `type` of an error in GraphQL.
    pub(super) fn graphql_type(&self) -> &'static str {
        match self.kind {
            Kind::NotFound => "NOT_FOUND",
            Kind::Forbidden | Kind::Unauthorized => "FORBIDDEN",
            Kind::Unprocessable | Kind::NotMergeable => "UNPROCESSABLE",
            Kind::StaleData => "STALE_DATA",
            Kind::BranchProtection => "BRANCH_PROTECTION_RULE_VIOLATION",
            Kind::Internal => "INTERNAL",
        }
    }

    /// The status in REST.
    pub(super) fn status(&self) -> u16 {
        match self.kind {
            Kind::NotFound => 404,
            Kind::Forbidden => 403,
            Kind::Unprocessable | Kind::BranchProtection => 422,
            Kind::StaleData => 409,
            Kind::NotMergeable => 405,
            Kind::Unauthorized => 401,
            Kind::Internal => 500,
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl From<anyhow::Error> for ApiError {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Kind::Internal, format!("test forge: {error:#}"))
    }
}
