//! Decides how the authorities of the hub change: pure functions over [`AuthorityState`].
//!
//! While two authorities are in use, everybody trusts both. The hub's own certificate stays of the one that everybody
//! trusts already (`serving`); agents and administrators are certified by `issuing`. What is not issuing is to go.

use nabu_common::tls::CaPin;

use crate::store::identity::AuthorityState;

/// Why a rotation cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RotationError {
    /// A rotation is under way.
    #[error(
        "a rotation is under way; end it first with `nabuctl ca rotate finish`, or go back with `nabuctl ca rotate rollback`"
    )]
    UnderWay,
    /// There is none.
    #[error("no rotation is under way; `nabuctl ca rotate start` begins one")]
    Settled,
    /// It goes back already.
    #[error("the rotation is rolled back already; end it with `nabuctl ca rotate finish`")]
    GoesBack,
    /// Some still depend on the authority that is to go.
    #[error(
        "{} of {} still have certificates of the authority that is to go: {}; wait, renew them, or add --force and enrol \
        them again",
        .0.len(), "clusters and administrators", shortened(.0)
    )]
    Waiting(Vec<String>),
}

fn shortened(names: &[String]) -> String {
    let shown = names
        .iter()
        .take(10)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > 10 {
        format!("{shown}, …")
    } else {
        shown
    }
}

/// The authority that is to go, during a rotation.
pub fn outgoing(state: &AuthorityState) -> Option<&str> {
    let incoming = state.incoming.as_deref()?;
    Some(if state.issuing == incoming {
        &state.serving
    } else {
        incoming
    })
}

/// `Settled`, `Rotating` or `RollingBack`.
pub fn word(state: &AuthorityState) -> &'static str {
    match &state.incoming {
        None => "Settled",
        Some(incoming) if *incoming == state.issuing => "Rotating",
        Some(_) => "RollingBack",
    }
}

/// A new authority certifies from now on.
///
/// # Errors
/// If a rotation is under way.
pub fn start(state: &AuthorityState, new: CaPin) -> Result<AuthorityState, RotationError> {
    if state.incoming.is_some() {
        return Err(RotationError::UnderWay);
    }
    Ok(AuthorityState {
        revision: state.revision + 1,
        serving: state.serving.clone(),
        incoming: Some(new.to_string()),
        issuing: new.to_string(),
    })
}

/// The old authority certifies again.
///
/// # Errors
/// If no rotation goes forward.
pub fn roll_back(state: &AuthorityState) -> Result<AuthorityState, RotationError> {
    match word(state) {
        "Settled" => Err(RotationError::Settled),
        "RollingBack" => Err(RotationError::GoesBack),
        _ => Ok(AuthorityState {
            revision: state.revision + 1,
            issuing: state.serving.clone(),
            ..state.clone()
        }),
    }
}

/// The authority that is to go is gone. `waiting` are those whose certificates would go with it.
///
/// # Errors
/// If there is no rotation, or somebody waits and nobody forces it.
pub fn finish(
    state: &AuthorityState,
    waiting: &[String],
    force: bool,
) -> Result<AuthorityState, RotationError> {
    if state.incoming.is_none() {
        return Err(RotationError::Settled);
    }
    if !waiting.is_empty() && !force {
        return Err(RotationError::Waiting(waiting.to_vec()));
    }
    Ok(AuthorityState {
        revision: state.revision + 1,
        serving: state.issuing.clone(),
        incoming: None,
        issuing: state.issuing.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(digit: char) -> CaPin {
        let digits: String = std::iter::repeat_n(digit, 64).collect();
        format!("sha256:{digits}").parse().unwrap()
    }

    fn settled() -> AuthorityState {
        AuthorityState {
            revision: 1,
            serving: pin('a').to_string(),
            incoming: None,
            issuing: pin('a').to_string(),
        }
    }

    #[test]
    fn a_rotation_ends_with_the_new_authority_alone() {
        let rotating = start(&settled(), pin('b')).unwrap();
        assert_eq!(word(&rotating), "Rotating");
        assert_eq!(rotating.serving, settled().serving, "everybody trusts it");
        assert_eq!(outgoing(&rotating), Some(&*settled().serving));
        assert_eq!(start(&rotating, pin('c')), Err(RotationError::UnderWay));
        let done = finish(&rotating, &[], false).unwrap();
        assert_eq!(
            (word(&done), &done.serving),
            ("Settled", &pin('b').to_string())
        );
        assert_eq!(done.revision, 3);
    }

    #[test]
    fn a_rotation_that_is_rolled_back_ends_with_the_old_authority_alone() {
        let rotating = start(&settled(), pin('b')).unwrap();
        let back = roll_back(&rotating).unwrap();
        assert_eq!(word(&back), "RollingBack");
        assert_eq!(outgoing(&back), Some(&*pin('b').to_string()));
        assert_eq!(roll_back(&back), Err(RotationError::GoesBack));
        let done = finish(&back, &[], false).unwrap();
        assert_eq!(
            (word(&done), &done.serving),
            ("Settled", &settled().serving)
        );
    }

    #[test]
    fn nobody_is_left_behind_unless_it_is_forced() {
        let rotating = start(&settled(), pin('b')).unwrap();
        let waiting = ["cluster/prod-eu".to_owned()];
        let error = finish(&rotating, &waiting, false).unwrap_err();
        assert!(error.to_string().contains("prod-eu"), "{error}");
        assert!(finish(&rotating, &waiting, true).is_ok());
    }

    #[test]
    fn there_is_nothing_to_end_without_a_rotation() {
        assert_eq!(finish(&settled(), &[], true), Err(RotationError::Settled));
        assert_eq!(roll_back(&settled()), Err(RotationError::Settled));
    }
}
