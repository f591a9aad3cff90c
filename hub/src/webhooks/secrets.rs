//! The secrets that webhooks of a forge may be signed with: those of all routes to forges of that kind.

use std::collections::BTreeSet;
use std::sync::Once;

use secrecy::{ExposeSecret as _, SecretString};
use tracing::warn;

use super::ForgeKind;
use crate::routes::ConfigHandle;

/// The key of a Secret that holds one.
pub(super) const KEY: &str = "webhook-secret";
/// More are not tried: each costs a stranger nothing and the hub one HMAC over the body.
const MOST: usize = 64;
/// Said once: strangers decide how often it would be.
static TOLD: Once = Once::new();

/// All of a forge, each once. A webhook does not say which route it is for, and one secret is as good as another: it
/// allows nothing but a hint.
pub(super) fn of(forge: ForgeKind, config: &ConfigHandle) -> Vec<SecretString> {
    let table = config.table();
    let names: BTreeSet<_> = table
        .routes()
        .iter()
        .filter(|route| ForgeKind::of(route.target.kind) == Some(forge))
        .filter_map(|route| route.target.credential.as_ref())
        .collect();
    let mut secrets: Vec<SecretString> = Vec::new();
    for name in names {
        let Some(secret) = config.credentials().get(name) else {
            continue;
        };
        let Some(value) = secret.get(KEY) else {
            continue;
        };
        let text = value.expose_secret();
        let known = |secret: &SecretString| secret.expose_secret() == text;
        if text.is_empty() || secrets.iter().any(known) {
            continue;
        }
        if secrets.len() == MOST {
            TOLD.call_once(|| {
                warn!(
                    forge = forge.as_str(),
                    secret = name.name,
                    "webhooks with this {KEY} are refused: {MOST} others come before it; let Secrets share one"
                );
            });
            break;
        }
        secrets.push(value.clone());
    }
    secrets
}

#[cfg(test)]
mod tests {
    use super::super::tests::config;
    use super::*;

    fn exposed(forge: ForgeKind, config: &ConfigHandle) -> Vec<&'static str> {
        let secrets = of(forge, config);
        let leak = |secret: &SecretString| &*secret.expose_secret().to_owned().leak();
        secrets.iter().map(leak).collect()
    }

    #[test]
    fn each_secret_of_a_forge_is_there_once_and_those_of_others_are_not() {
        let config = config(&[
            ("github-app", "a", "one"),
            ("github-token", "b", "two"),
            ("github-token", "c", "one"),
            ("gitlab-token", "d", "three"),
            ("forgejo-token", "e", ""),
        ]);
        assert_eq!(exposed(ForgeKind::GitHub, &config), ["one", "two"]);
        assert_eq!(exposed(ForgeKind::GitLab, &config), ["three"]);
        assert!(exposed(ForgeKind::Forgejo, &config).is_empty());
    }

    #[test]
    fn no_more_than_a_bounded_number_of_secrets_is_tried() {
        let names: Vec<_> = (0..=MOST).map(|number| format!("s{number:03}")).collect();
        let secrets: Vec<_> = names
            .iter()
            .map(|name| ("gitlab-token", &**name, &**name))
            .collect();
        assert_eq!(of(ForgeKind::GitLab, &config(&secrets)).len(), MOST);
    }
}
