//! How forges and credentials stand, put together from routes, Secrets, gates and the last answers. Pure; no value of a
//! Secret is looked at.

use std::collections::BTreeMap;

use crate::change::ProviderKind;
use crate::credentials::{Credentials, Secret};
use crate::execute::lanes::LaneId;
use crate::execute::lanes::standing::Standing;
use crate::forge::witness::Sighting;
use crate::routes::RouteTable;

/// One credential at one forge.
#[derive(Clone, Debug)]
pub(super) struct ForgeState {
    pub(super) lane: LaneId,
    pub(super) routes: u32,
    pub(super) credential_present: bool,
    pub(super) standing: Standing,
    pub(super) sighting: Option<Sighting>,
    pub(super) parked: u32,
}

impl ForgeState {
    /// A word for programs and a sentence for people.
    pub(super) fn verdict(&self) -> (&'static str, String) {
        if !self.credential_present {
            let detail =
                "the hub has no such Secret, or it has none of the keys that the provider needs";
            return ("CredentialMissing", detail.to_owned());
        }
        if let Some((_, said)) = &self.standing.closed {
            return ("Limited", said.clone());
        }
        if self.standing.careful {
            let detail = "after a limit attempts go one by one for a quarter of an hour";
            return ("Careful", detail.to_owned());
        }
        match self.sighting.as_ref().map(|seen| seen.last_result) {
            _ if self.lane.kind() == ProviderKind::Noop => ("Ready", String::new()),
            None => ("Idle", String::new()),
            Some(
                result @ ("unauthorized" | "timeout" | "broken" | "unavailable" | "forge_error"),
            ) => ("Failing", format!("the last request ended with {result}")),
            Some(_) => ("Ready", String::new()),
        }
    }
}

/// The credentials that routes name, and how many do; then those that work still waits for, though no route names them.
pub(super) fn lanes(routes: &RouteTable, known: Vec<LaneId>) -> BTreeMap<LaneId, u32> {
    let mut lanes = BTreeMap::new();
    for route in routes.routes() {
        *lanes.entry(LaneId::of(&route.target)).or_default() += 1;
    }
    for lane in known {
        lanes.entry(lane).or_default();
    }
    lanes
}

/// Whether there is a Secret with the keys that a lane needs.
pub(super) fn has_credential(lane: &LaneId, credentials: &Credentials) -> bool {
    let Some(name) = lane.credential() else {
        return lane.kind() == ProviderKind::Noop;
    };
    let Some(secret) = credentials.get(name) else {
        return false;
    };
    let has = |key: &str| Secret::get(&secret, key).is_some();
    match lane.kind() {
        ProviderKind::GithubApp => (has("app-id") || has("client-id")) && has("private-key.pem"),
        _ => secret.token().is_some(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use jiff::Timestamp;

    use super::*;
    use crate::change::{CredentialRef, ForgeTarget};
    use crate::fixtures::target;

    fn lane(kind: ProviderKind) -> LaneId {
        LaneId::of(&ForgeTarget {
            kind,
            credential: Some(CredentialRef {
                namespace: "ns".into(),
                name: "bot".into(),
            }),
            ..target()
        })
    }

    fn credentials(keys: &[&str]) -> Credentials {
        let secret = Secret::new(keys.iter().map(|key| ((*key).to_owned(), "x".to_owned())));
        let credentials = Credentials::default();
        let name = CredentialRef {
            namespace: "ns".into(),
            name: "bot".into(),
        };
        credentials.replace(HashMap::from([(name, Arc::new(secret))]));
        credentials
    }

    #[test]
    fn a_credential_is_there_if_its_secret_has_the_keys_of_its_provider() {
        for (kind, keys, there) in [
            (ProviderKind::ForgejoToken, &["token"][..], true),
            (ProviderKind::ForgejoToken, &["password"][..], false),
            (ProviderKind::GithubApp, &["token"][..], false),
            (
                ProviderKind::GithubApp,
                &["client-id", "private-key.pem"][..],
                true,
            ),
        ] {
            assert_eq!(
                has_credential(&lane(kind), &credentials(keys)),
                there,
                "{kind} {keys:?}"
            );
        }
        assert!(!has_credential(
            &lane(ProviderKind::GitlabToken),
            &Credentials::default()
        ));
        assert!(has_credential(
            &LaneId::of(&target()),
            &Credentials::default()
        ));
    }

    #[test]
    fn what_holds_a_forge_up_most_is_its_state() {
        let mut state = ForgeState {
            lane: lane(ProviderKind::GitlabToken),
            routes: 1,
            credential_present: true,
            standing: Standing::default(),
            sighting: None,
            parked: 0,
        };
        assert_eq!(state.verdict().0, "Idle");
        for (result, word) in [
            ("ok", "Ready"),
            ("not_found", "Ready"),
            ("timeout", "Failing"),
        ] {
            state.sighting = Some(Sighting {
                last_result: result,
                ..Sighting::default()
            });
            assert_eq!(state.verdict().0, word, "{result}");
        }
        state.standing.careful = true;
        assert_eq!(state.verdict().0, "Careful");
        state.standing.closed = Some((Timestamp::UNIX_EPOCH, "slow down".to_owned()));
        assert_eq!(state.verdict(), ("Limited", "slow down".to_owned()));
        state.credential_present = false;
        assert_eq!(state.verdict().0, "CredentialMissing");
    }
}
