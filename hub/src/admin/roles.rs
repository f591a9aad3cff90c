//! Who may call what: the roles of administrators, and the least role of every method. Pure.

use std::fmt;
use std::str::FromStr;

use crate::routes::matcher::Pattern;

/// What an administrator may do; each role may do what the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Ask.
    Viewer,
    /// Retry and cancel responses.
    Operator,
    /// Everything.
    Admin,
}

impl Role {
    /// The word on the command line and in the admin API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One `--admin-role`: a role, and the names that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRule {
    role: Role,
    names: Pattern,
}

impl FromStr for RoleRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            format!(
                "{text:?} is not of the form ROLE:PATTERN with a role of viewer, operator or admin, for example operator:oncall-*"
            )
        };
        let (role, names) = text.split_once(':').ok_or_else(wrong)?;
        let role = [Role::Viewer, Role::Operator, Role::Admin]
            .into_iter()
            .find(|known| known.as_str() == role)
            .ok_or_else(wrong)?;
        if names.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            role,
            names: Pattern::new(names),
        })
    }
}

/// The rules in force.
#[derive(Clone, Debug)]
pub struct Roles(Vec<RoleRule>);

impl Roles {
    /// These rules; without any, every administrator has the role admin.
    pub fn new(rules: Vec<RoleRule>) -> Self {
        if rules.is_empty() {
            return Self(vec![RoleRule {
                role: Role::Admin,
                names: Pattern::new("*"),
            }]);
        }
        Self(rules)
    }

    /// The highest role that a rule gives this name; `None` if none does.
    pub fn of(&self, name: &str) -> Option<Role> {
        let fitting = self.0.iter().filter(|rule| rule.names.fits(name));
        fitting.map(|rule| rule.role).max()
    }
}

/// What is known of a method before it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// Who may call it.
    pub least: Role,
    /// Whether it can change something. Such calls are in the audit log one by one, others are counted.
    pub changes: bool,
    /// Whether calls are audited at all.
    pub audited: bool,
}

const fn asks(path: &'static str) -> (&'static str, Method) {
    let method = Method {
        least: Role::Viewer,
        changes: false,
        audited: true,
    };
    (path, method)
}

const fn changes(path: &'static str, least: Role) -> (&'static str, Method) {
    let method = Method {
        least,
        changes: true,
        audited: true,
    };
    (path, method)
}

/// Every method of the admin port. One that is not here needs the role admin, and counts as a change.
const METHODS: &[(&str, Method)] = &[
    asks("nabu.admin.v1.AdminService/ListClusters"),
    asks("nabu.admin.v1.AdminService/ListResponses"),
    asks("nabu.admin.v1.AdminService/GetResponse"),
    asks("nabu.admin.v1.ResponseService/ExplainResponse"),
    asks("nabu.admin.v1.ResponseService/WatchResponses"),
    asks("nabu.admin.v1.ResponseService/TestRoute"),
    changes(
        "nabu.admin.v1.ResponseService/RetryResponse",
        Role::Operator,
    ),
    changes(
        "nabu.admin.v1.ResponseService/CancelResponse",
        Role::Operator,
    ),
    asks("nabu.admin.v1.OperationsService/GetVersion"),
    asks("nabu.admin.v1.OperationsService/GetConfigStatus"),
    asks("nabu.admin.v1.OperationsService/ListForges"),
    asks("nabu.admin.v1.OperationsService/ListAuditEvents"),
    asks("nabu.admin.v1.OperationsService/GetLogLevel"),
    changes("nabu.admin.v1.OperationsService/SetLogLevel", Role::Admin),
    changes("nabu.admin.v1.ClusterService/AddCluster", Role::Admin),
    asks("nabu.admin.v1.ClusterService/ListTokens"),
    changes("nabu.admin.v1.ClusterService/RevokeToken", Role::Admin),
    changes("nabu.admin.v1.ClusterService/RevokeCluster", Role::Admin),
    changes("nabu.admin.v1.ClusterService/RestoreCluster", Role::Admin),
    changes("nabu.admin.v1.ClusterService/RemoveCluster", Role::Admin),
    changes("nabu.admin.v1.ClusterService/RebindCluster", Role::Admin),
    // Whoever could renew a certificate with itself would keep one for ever that was stolen once.
    changes(
        "nabu.admin.v1.AuthorityService/IssueAdminCertificate",
        Role::Admin,
    ),
    changes("nabu.admin.v1.AuthorityService/StartRotation", Role::Admin),
    asks("nabu.admin.v1.AuthorityService/GetRotation"),
    changes("nabu.admin.v1.AuthorityService/FinishRotation", Role::Admin),
    changes(
        "nabu.admin.v1.AuthorityService/RollBackRotation",
        Role::Admin,
    ),
    asks("nabu.admin.v1.AdministratorService/ListAdministrators"),
    changes(
        "nabu.admin.v1.AdministratorService/RevokeAdministrator",
        Role::Admin,
    ),
    changes(
        "nabu.admin.v1.AdministratorService/RestoreAdministrator",
        Role::Admin,
    ),
    asks("grpc.reflection.v1.ServerReflection/ServerReflectionInfo"),
    // Probes ask every few seconds, and learn nothing but that the port serves.
    (
        "grpc.health.v1.Health/Check",
        Method {
            least: Role::Viewer,
            changes: false,
            audited: false,
        },
    ),
    (
        "grpc.health.v1.Health/Watch",
        Method {
            least: Role::Viewer,
            changes: false,
            audited: false,
        },
    ),
    (
        "grpc.health.v1.Health/List",
        Method {
            least: Role::Viewer,
            changes: false,
            audited: false,
        },
    ),
];

/// What is known of a method, by its path without the leading slash.
pub fn method(path: &str) -> Method {
    let unknown = Method {
        least: Role::Admin,
        changes: true,
        audited: true,
    };
    let known = METHODS.iter().find(|(name, _)| *name == path);
    known.map_or(unknown, |(_, method)| *method)
}

/// Whether there is a method of this path.
pub(super) fn is_known(path: &str) -> bool {
    METHODS.iter().any(|(name, _)| *name == path)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;

    use super::*;

    fn roles(rules: &[&str]) -> Roles {
        Roles::new(rules.iter().map(|rule| rule.parse().unwrap()).collect())
    }

    #[test]
    fn the_highest_role_that_fits_a_name_counts() {
        let roles = roles(&["viewer:*", "operator:oncall-*", "admin:ada"]);
        for (name, role) in [
            ("ada", Role::Admin),
            ("oncall-eu", Role::Operator),
            ("grace", Role::Viewer),
        ] {
            assert_eq!(roles.of(name), Some(role), "{name}");
        }
    }

    #[test]
    fn a_name_that_no_rule_names_has_no_role_and_without_rules_everybody_is_admin() {
        assert_eq!(roles(&["admin:ada"]).of("grace"), None);
        assert_eq!(roles(&[]).of("grace"), Some(Role::Admin));
    }

    #[test]
    fn a_malformed_rule_is_refused_with_an_example() {
        for text in ["ada", "root:ada", "viewer:", ":ada"] {
            let error = text.parse::<RoleRule>().unwrap_err();
            assert!(error.contains(text) && error.contains("oncall"), "{error}");
        }
    }

    #[test]
    fn every_method_of_the_admin_services_has_its_least_role() {
        let set = prost_types::FileDescriptorSet::decode(nabu_proto::FILE_DESCRIPTOR_SET).unwrap();
        let mut served = BTreeSet::new();
        for file in set
            .file
            .iter()
            .filter(|file| file.package() == "nabu.admin.v1")
        {
            for service in &file.service {
                for method in &service.method {
                    served.insert(format!(
                        "{}.{}/{}",
                        file.package(),
                        service.name(),
                        method.name()
                    ));
                }
            }
        }
        let known: BTreeSet<_> = METHODS
            .iter()
            .map(|(path, _)| (*path).to_owned())
            .filter(|path| path.starts_with("nabu."))
            .collect();
        assert!(served.len() >= 3);
        assert_eq!(known, served);
    }

    #[test]
    fn every_method_that_changes_something_can_say_first_what_would_happen() {
        let heeding = nabu_proto::methods_with_field("nabu.admin.v1", "validate_only");
        let changing = METHODS.iter().filter(|(_, method)| method.changes);
        let changing: BTreeSet<_> = changing.map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(heeding.into_iter().collect::<BTreeSet<_>>(), changing);
    }

    #[test]
    fn a_method_that_nobody_has_put_into_the_table_is_for_admins() {
        let method = method("nabu.admin.v1.NewService/Drop");
        assert_eq!((method.least, method.changes), (Role::Admin, true));
    }
}
