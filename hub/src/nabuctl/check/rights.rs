//! The rights that the service accounts of agent and hub need, each with its namespace and name. Pure. The charts give
//! exactly these; a test compares them with what is rendered.

use super::found::Found;

const CHECK: &str = "rbac";
/// The group of the custom resources.
pub(super) const GROUP: &str = "security.ugallu.io";
const LEASES: &str = "coordination.k8s.io";
const EVENTS: &str = "events.k8s.io";

/// One right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Right {
    pub(super) verb: &'static str,
    /// The API group; empty for the core.
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    pub(super) subresource: &'static str,
    /// Empty for the whole cluster, or for what is in no namespace.
    pub(super) namespace: String,
    /// Empty for all objects.
    pub(super) name: String,
}

impl Right {
    fn new(verb: &'static str, group: &'static str, resource: &'static str) -> Self {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Self {
            verb,
            group,
            resource,
            subresource,
            namespace: String::new(),
            name: String::new(),
        }
    }

    fn within(self, namespace: &str) -> Self {
        let namespace = namespace.to_owned();
        Self { namespace, ..self }
    }

    fn only(self, name: &str) -> Self {
        let name = name.to_owned();
        Self { name, ..self }
    }

    /// The object as kubectl names it.
    fn object(&self) -> String {
        let mut text = self.resource.to_owned();
        if !self.group.is_empty() {
            text = format!("{text}.{}", self.group);
        }
        if !self.name.is_empty() {
            text = format!("{text}/{}", self.name);
        }
        text
    }

    /// What may be done, for people.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{} {}", self.verb, self.object());
        if !self.subresource.is_empty() {
            text = format!("{text} ({})", self.subresource);
        }
        if !self.namespace.is_empty() {
            text = format!("{text} in {}", self.namespace);
        }
        text
    }

    /// The arguments of `kubectl auth can-i`.
    fn can_i(&self) -> String {
        let mut text = format!("{} {}", self.verb, self.object());
        if !self.subresource.is_empty() {
            text = format!("{text} --subresource={}", self.subresource);
        }
        if self.namespace.is_empty() {
            format!("{text} --all-namespaces")
        } else {
            format!("{text} --namespace {}", self.namespace)
        }
    }
}

/// What an agent does.
pub(super) fn agent(namespace: &str, name: &str) -> Vec<Right> {
    let lease = |verb| Right::new(verb, LEASES, "leases").within(namespace);
    vec![
        Right::new("get", GROUP, "eventresponses"),
        Right::new("list", GROUP, "eventresponses"),
        Right::new("watch", GROUP, "eventresponses"),
        Right::new("patch", GROUP, "eventresponses/status"),
        Right::new("get", GROUP, "securityevents"),
        Right::new("get", "", "namespaces").only("kube-system"),
        lease("get").only(name),
        lease("patch").only(name),
        lease("create"),
        // Kubernetes keeps the Events of objects that are in no namespace there.
        Right::new("create", EVENTS, "events").within("default"),
    ]
}

/// What an agent does beside that if it keeps its own certificate in a Secret.
pub(super) fn agent_secret(namespace: &str, name: &str) -> Vec<Right> {
    let secret = |verb| Right::new(verb, "", "secrets").within(namespace).only(name);
    vec![
        secret("get"),
        secret("update"),
        // On its own pod.
        Right::new("create", EVENTS, "events").within(namespace),
    ]
}

/// The Secret that an agent of this name keeps its own certificate in.
pub(super) fn secret_name(agent: &str) -> String {
    format!("{agent}-identity")
}

/// What a hub does that watches objects.
pub(super) fn hub(namespace: &str) -> Vec<Right> {
    let right = |verb, group, resource| Right::new(verb, group, resource).within(namespace);
    vec![
        right("list", GROUP, "gitopsresponderconfigs"),
        right("watch", GROUP, "gitopsresponderconfigs"),
        right("patch", GROUP, "gitopsresponderconfigs/status"),
        right("list", "", "secrets"),
        right("watch", "", "secrets"),
        right("create", EVENTS, "events"),
        right("patch", EVENTS, "events"),
    ]
}

/// A service account of a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) namespace: String,
    pub(super) name: String,
    /// nabu-agent or nabu-hub.
    pub(super) chart: &'static str,
}

impl Account {
    /// Out of `NAMESPACE/NAME`.
    pub(super) fn parse(text: &str, chart: &'static str) -> Option<Self> {
        let (namespace, name) = text.split_once('/')?;
        let whole = !namespace.is_empty() && !name.is_empty() && !name.contains('/');
        whole.then(|| Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            chart,
        })
    }

    /// How RBAC names it.
    pub(super) fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// The groups that every service account is in.
    pub(super) fn groups(&self) -> Vec<String> {
        vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
            "system:authenticated".to_owned(),
        ]
    }

    /// Whether it is there, if it is not. Before the installation it need not be.
    pub(super) fn missing(&self, before: bool) -> Found {
        let Self {
            namespace,
            name,
            chart,
        } = self;
        let message = format!("there is no service account {namespace}/{name}");
        if before {
            let remedy = format!(
                "helm install {chart} charts/{chart} --namespace {namespace} --create-namespace makes it and gives it its rights"
            );
            return Found::skipped(CHECK, format!("{message} yet"), remedy);
        }
        let remedy = format!(
            "{}; kubectl get serviceaccounts --all-namespaces shows which there are",
            self.upgrade()
        );
        Found::error(CHECK, message, remedy)
    }

    /// A right of it.
    pub(super) fn right(&self, right: &Right, allowed: bool) -> Found {
        let user = self.user();
        if allowed {
            return Found::ok(CHECK, format!("{user} may {}", right.text()));
        }
        let remedy = format!(
            "{} gives it (unless rbac.create is false); kubectl auth can-i {} --as {user} shows it",
            self.upgrade(),
            right.can_i(),
        );
        Found::error(CHECK, format!("{user} may not {}", right.text()), remedy)
    }

    fn upgrade(&self) -> String {
        let Self {
            namespace, chart, ..
        } = self;
        format!(
            "helm upgrade {chart} charts/{chart} --namespace {namespace} --reset-then-reuse-values"
        )
    }
}

/// That an agent has no Secret of its own.
pub(super) fn no_own_secret(namespace: &str, name: &str) -> Found {
    let message = format!(
        "there is no Secret {namespace}/{name}; only an agent that has joined by a token needs it"
    );
    let remedy = format!("kubectl -n {namespace} get secret {name}");
    Found::skipped(CHECK, message, remedy)
}

/// That something cannot be found out.
pub(super) fn unknown(check: &'static str, name: &str, error: &str) -> Found {
    Found::warning(
        check,
        format!("cannot find out about {name}: {error}"),
        "take an administrator's context with --kube-context; kubectl config get-contexts shows them",
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::nabuctl::check::found::Level;
    use crate::nabuctl::check::found::tests::assert_remedies;

    type Plain = [String; 5];

    fn plain(right: &Right) -> Plain {
        let resource = match right.subresource {
            "" => right.resource.to_owned(),
            sub => format!("{}/{sub}", right.resource),
        };
        let verb = right.verb.to_owned();
        let (namespace, name) = (right.namespace.clone(), right.name.clone());
        [verb, right.group.to_owned(), resource, namespace, name]
    }

    /// Every right in the roles of a rendered chart.
    fn rendered(chart: &str, case: &str) -> BTreeSet<Plain> {
        let root = env!("CARGO_MANIFEST_DIR");
        let path = format!("{root}/../tests/snapshots/charts/{chart}/{case}.yaml");
        let text = std::fs::read_to_string(path).unwrap();
        let texts = |value: &Value| -> Vec<String> {
            let items = value.as_array().into_iter().flatten();
            items
                .map(|item| item.as_str().unwrap().to_owned())
                .collect()
        };
        let mut found = BTreeSet::new();
        for document in text.split("\n---\n") {
            let object: Value =
                serde_saphyr::from_str(document.trim_start_matches("---\n")).unwrap();
            let kind = object["kind"].as_str().unwrap_or_default();
            if !["Role", "ClusterRole"].contains(&kind) {
                continue;
            }
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            for rule in object["rules"].as_array().unwrap() {
                let mut names = texts(&rule["resourceNames"]);
                if names.is_empty() {
                    names.push(String::new());
                }
                for verb in texts(&rule["verbs"]) {
                    for group in texts(&rule["apiGroups"]) {
                        for resource in texts(&rule["resources"]) {
                            for name in &names {
                                found.insert([
                                    verb.clone(),
                                    group.clone(),
                                    resource.clone(),
                                    namespace.to_owned(),
                                    name.clone(),
                                ]);
                            }
                        }
                    }
                }
            }
        }
        found
    }

    fn plains(rights: &[Right]) -> BTreeSet<Plain> {
        rights.iter().map(plain).collect()
    }

    #[test]
    fn the_rights_are_exactly_those_that_the_charts_give() {
        let (namespace, name) = ("nabu-system", "nabu-agent");
        let mut of_agent = agent(namespace, name);
        assert_eq!(plains(&of_agent), rendered("nabu-agent", "files"));
        of_agent.extend(agent_secret(namespace, &secret_name(name)));
        assert_eq!(plains(&of_agent), rendered("nabu-agent", "joined"));
        assert_eq!(plains(&hub("nabu-system")), rendered("nabu-hub", "default"));
        assert_eq!(
            plains(&hub("ugallu-system")),
            rendered("nabu-hub", "upstream-namespace")
        );
    }

    #[test]
    fn a_right_that_is_missing_is_an_error_with_the_command_that_gives_it() {
        let account = Account::parse("nabu/agent", "nabu-agent").unwrap();
        let lease = &agent("nabu", "agent")[6];
        let found = account.right(lease, false);
        assert_eq!(found.level, Level::Error);
        for words in [
            "helm upgrade nabu-agent charts/nabu-agent --namespace nabu ",
            "kubectl auth can-i get leases.coordination.k8s.io/agent --namespace nabu --as system:serviceaccount:nabu:agent",
        ] {
            assert!(found.remedy.contains(words), "{found:?}");
        }
        let status = &agent("nabu", "agent")[3];
        let patch = account.right(status, false);
        let words = "patch eventresponses.security.ugallu.io --subresource=status";
        assert!(patch.remedy.contains(words), "{patch:?}");
        let all = [
            found,
            patch,
            account.right(lease, true),
            account.missing(true),
            account.missing(false),
            no_own_secret("nabu", "agent-identity"),
            unknown("rbac", "x", "no"),
        ];
        assert_remedies(&all);
        let levels = all.map(|one| one.level);
        assert_eq!(levels[3..5], [Level::Skipped, Level::Error]);
    }

    #[test]
    fn an_account_has_a_namespace_and_a_name() {
        for text in ["nabu", "/a", "a/", "a/b/c", ""] {
            assert_eq!(Account::parse(text, "nabu-hub"), None, "{text}");
        }
    }
}
