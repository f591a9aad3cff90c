//! How certificates name whom they speak for: our own form, or that of a PKI of somebody else.
//!
//! A template such as `spiffe://corp.example/ns/nabu/sa/{id}` has exactly one place for the cluster id or the name. What
//! stands there must be an id or a name by itself, so that no URI can be read in two ways; templates that could give one
//! URI two meanings are refused.

use std::fmt;
use std::str::FromStr;

use rustls::pki_types::CertificateDer;

use crate::identity::{
    Identity, IdentityError, TrustDomain, identity_of_certificate, is_name, uris_of_certificate,
};

/// The place of the trust domain in a template.
const TRUST_DOMAIN: &str = "{trust_domain}";
/// No template is longer.
const LONGEST: usize = 1024;

/// The URI name of certificates of one kind, with a place for whom they are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SanTemplate {
    before: String,
    after: String,
    placeholder: &'static str,
}

impl SanTemplate {
    /// Reads `--cluster-san`, in which `{id}` stands for the cluster id.
    ///
    /// # Errors
    /// See [`SanTemplate::admin`].
    pub fn cluster(text: &str) -> Result<Self, String> {
        Self::parse(text, "{id}")
    }

    /// Reads `--admin-san`, in which `{name}` stands for the administrator's name.
    ///
    /// # Errors
    /// If it is no URI with this one place in it; the text shows a right one.
    pub fn admin(text: &str) -> Result<Self, String> {
        Self::parse(text, "{name}")
    }

    fn parse(text: &str, placeholder: &'static str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!(
                "{text:?} {what}; write a URI with {placeholder} in it exactly once, for example \
                spiffe://corp.example/ns/nabu/sa/{placeholder}"
            )
        };
        if text.len() > LONGEST {
            return Err(wrong("is too long"));
        }
        let (before, after) = text
            .split_once(placeholder)
            .ok_or_else(|| wrong("has no place for whom the certificate is for"))?;
        if after.contains(placeholder) {
            return Err(wrong("has several places for whom the certificate is for"));
        }
        let fixed = format!("{before}{after}").replace(TRUST_DOMAIN, "");
        if !fixed.chars().all(|c| c.is_ascii_graphic()) || fixed.contains(['{', '}']) {
            return Err(wrong("has characters that are not for URIs"));
        }
        let (scheme, rest) = before
            .split_once("://")
            .ok_or_else(|| wrong("does not begin with a scheme"))?;
        let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
        if scheme.is_empty() || !scheme.chars().all(letters) || !rest.contains('/') {
            return Err(wrong("has no scheme and host of its own"));
        }
        if !before.ends_with(['/', ':', '=', '-', '.']) {
            return Err(wrong("has its place in the middle of a word"));
        }
        Ok(Self {
            before: before.to_owned(),
            after: after.to_owned(),
            placeholder,
        })
    }

    fn within(&self, domain: &TrustDomain) -> Self {
        let fill = |text: &str| text.replace(TRUST_DOMAIN, &domain.to_string());
        Self {
            before: fill(&self.before),
            after: fill(&self.after),
            placeholder: self.placeholder,
        }
    }

    /// What stands in its place in a URI.
    fn named<'u>(&self, uri: &'u str) -> Option<&'u str> {
        uri.strip_prefix(self.before.as_str())?
            .strip_suffix(self.after.as_str())
    }

    /// Whether some URI could be read by both. Neither ids nor names have a `/` in them.
    fn may_be_taken_for(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.segments(), other.segments());
        ours.len() == theirs.len() && ours.iter().zip(&theirs).all(|(one, two)| one.meets(two))
    }

    fn segments(&self) -> Vec<Segment<'_>> {
        let mut segments: Vec<_> = self.before.split('/').map(Segment::Fixed).collect();
        let mut rest = self.after.split('/');
        if let (Some(Segment::Fixed(start)), Some(end)) = (segments.pop(), rest.next()) {
            segments.push(Segment::Place { start, end });
        }
        segments.extend(rest.map(Segment::Fixed));
        segments
    }
}

/// What stands between two slashes of a template.
#[derive(Clone, Copy)]
enum Segment<'a> {
    Fixed(&'a str),
    /// With the place for a name between the two.
    Place {
        start: &'a str,
        end: &'a str,
    },
}

impl Segment<'_> {
    /// Whether some text is both.
    fn meets(&self, other: &Self) -> bool {
        let either =
            |one: &str, two: &str, fits: fn(&str, &str) -> bool| fits(one, two) || fits(two, one);
        match (self, other) {
            (Segment::Fixed(one), Segment::Fixed(two)) => one == two,
            (Segment::Fixed(text), Segment::Place { start, end })
            | (Segment::Place { start, end }, Segment::Fixed(text)) => {
                text.len() > start.len() + end.len()
                    && text.starts_with(start)
                    && text.ends_with(end)
            }
            (
                Segment::Place { start, end },
                Segment::Place {
                    start: other_start,
                    end: other_end,
                },
            ) => {
                either(start, other_start, |one, two| one.starts_with(two))
                    && either(end, other_end, |one, two| one.ends_with(two))
            }
        }
    }
}

impl fmt::Display for SanTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.before, self.placeholder, self.after)
    }
}

/// `--cluster-san`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSan(pub SanTemplate);

impl FromStr for ClusterSan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        SanTemplate::cluster(text).map(Self)
    }
}

/// `--admin-san`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminSan(pub SanTemplate);

impl FromStr for AdminSan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        SanTemplate::admin(text).map(Self)
    }
}

/// How the certificates of a fleet name whom they speak for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    domain: TrustDomain,
    /// Somebody else's form, for clusters and administrators.
    templates: Option<(SanTemplate, SanTemplate)>,
}

impl From<TrustDomain> for Names {
    fn from(domain: TrustDomain) -> Self {
        Self {
            domain,
            templates: None,
        }
    }
}

impl Names {
    /// Takes templates where they are given, and our own form elsewhere.
    ///
    /// # Errors
    /// If one URI could name both a cluster and somebody else.
    pub fn new(
        domain: TrustDomain,
        cluster: Option<&ClusterSan>,
        admin: Option<&AdminSan>,
    ) -> Result<Self, String> {
        if cluster.is_none() && admin.is_none() {
            return Ok(domain.into());
        }
        let own = SanTemplate::cluster("spiffe://{trust_domain}/cluster/{id}")?;
        let cluster = cluster.map_or(&own, |given| &given.0).within(&domain);
        let own = SanTemplate::admin("spiffe://{trust_domain}/admin/{name}")?;
        let admin = admin.map_or(&own, |given| &given.0).within(&domain);
        let hub = SanTemplate::admin("spiffe://{trust_domain}/hub/{name}")?.within(&domain);
        for (one, other) in [(&cluster, &admin), (&cluster, &hub), (&admin, &hub)] {
            if one.may_be_taken_for(other) {
                return Err(format!(
                    "a certificate could be for both {one} and {other}; make --cluster-san and --admin-san differ before the \
                    place of the name"
                ));
            }
        }
        Ok(Self {
            domain,
            templates: Some((cluster, admin)),
        })
    }

    /// Who a (verified) certificate speaks for.
    ///
    /// # Errors
    /// If it cannot be read, or does not carry exactly one URI SAN that names somebody.
    pub fn identity_of(&self, der: &CertificateDer<'_>) -> Result<Identity, IdentityError> {
        let Some((cluster, admin)) = &self.templates else {
            return identity_of_certificate(der, &self.domain);
        };
        let uris = uris_of_certificate(der)?;
        let [uri] = uris.as_slice() else {
            return Err(IdentityError::NotOneUri(uris.len()));
        };
        if let Some(id) = cluster.named(uri).and_then(|id| id.parse().ok()) {
            return Ok(Identity::Cluster(id));
        }
        if let Some(name) = admin.named(uri).filter(|name| is_name(name)) {
            return Ok(Identity::Admin(name.to_owned()));
        }
        // Hubs are named in our own form only, and clusters and administrators no more.
        match Identity::from_uri(uri, &self.domain) {
            Ok(hub @ Identity::Hub(_)) => Ok(hub),
            _ => Err(IdentityError::NamesNobody {
                uri: uri.chars().take(200).collect(),
                cluster: cluster.to_string(),
                admin: admin.to_string(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain() -> TrustDomain {
        "corp.example".parse().unwrap()
    }

    fn names(cluster: Option<&str>, admin: Option<&str>) -> Result<Names, String> {
        let cluster = cluster.map(|text| text.parse().unwrap());
        let admin = admin.map(|text| text.parse().unwrap());
        Names::new(domain(), cluster.as_ref(), admin.as_ref())
    }

    fn certificate(uris: &[&str]) -> CertificateDer<'static> {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        for uri in uris {
            let uri = rcgen::SanType::URI((*uri).try_into().unwrap());
            params.subject_alt_names.push(uri);
        }
        params.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn a_template_of_another_pki_names_clusters_and_administrators() {
        let names = names(
            Some("spiffe://{trust_domain}/ns/nabu/sa/{id}"),
            Some("https://sso.example/{name}?team=nabu"),
        )
        .unwrap();
        let of = |uri: &str| {
            let identity = names.identity_of(&certificate(&[uri]));
            identity.map(|identity| identity.to_string()).ok()
        };
        for (uri, identity) in [
            (
                "spiffe://corp.example/ns/nabu/sa/prod-eu",
                "cluster/prod-eu",
            ),
            ("https://sso.example/ada.l?team=nabu", "admin/ada.l"),
            ("spiffe://corp.example/hub/hub-0", "hub/hub-0"),
        ] {
            assert_eq!(of(uri).as_deref(), Some(identity), "{uri}");
        }
        for uri in [
            "spiffe://corp.example/cluster/prod-eu",
            "spiffe://corp.example/admin/ada",
            "spiffe://corp.example/ns/nabu/sa/Prod",
            "spiffe://corp.example/ns/nabu/sa/a/b",
            "spiffe://corp.example/ns/nabu/sa/",
            "spiffe://corp.example/ns/other/sa/prod-eu",
            "spiffe://corp.example.evil/ns/nabu/sa/prod-eu",
            "https://sso.example/..?team=nabu",
            "https://sso.example/ada?team=other",
            "https://sso.example/a/b?team=nabu",
        ] {
            assert_eq!(of(uri), None, "{uri}");
        }
        let two = certificate(&[
            "spiffe://corp.example/ns/nabu/sa/a",
            "spiffe://corp.example/ns/nabu/sa/b",
        ]);
        assert_eq!(names.identity_of(&two), Err(IdentityError::NotOneUri(2)));
    }

    #[test]
    fn a_template_has_exactly_one_place_in_a_uri_of_its_own() {
        for text in [
            "",
            "{id}",
            "spiffe://{id}",
            "spiffe://corp.example/{name}",
            "spiffe://corp.example/sa",
            "spiffe://corp.example/{id}/{id}",
            "spiffe://corp.example/{ns}/{id}",
            "spiffe://corp.example/a b/{id}",
            "spiffe://corp.example/sa{id}",
            "corp.example/{id}",
            "://corp.example/{id}",
        ] {
            let error = text.parse::<ClusterSan>().unwrap_err();
            assert!(error.contains("exactly once"), "{text}: {error}");
        }
        let text = "spiffe://{trust_domain}/ns/nabu/sa/{id}";
        let san: ClusterSan = text.parse().unwrap();
        assert_eq!(san.0.to_string(), text);
    }

    #[test]
    fn templates_by_which_a_cluster_could_be_taken_for_an_administrator_are_refused() {
        for (cluster, admin) in [
            (
                Some("spiffe://corp.example/sa/{id}"),
                Some("spiffe://corp.example/sa/{name}"),
            ),
            (
                Some("spiffe://corp.example/sa/{id}"),
                Some("spiffe://corp.example/sa/admin-{name}"),
            ),
            (
                Some("spiffe://corp.example/sa/{id}"),
                Some("spiffe://corp.example/sa/{name}-admin"),
            ),
            (
                Some("spiffe://corp.example/sa/{id}/agent/foo"),
                Some("spiffe://corp.example/sa/x/agent/{name}"),
            ),
            (Some("spiffe://{trust_domain}/admin/{id}"), None),
            (None, Some("spiffe://{trust_domain}/hub/{name}")),
        ] {
            let refused = names(cluster, admin).unwrap_err();
            assert!(refused.contains("could be for both"), "{refused}");
        }
        for (cluster, admin) in [
            (
                "spiffe://corp.example/sa/{id}",
                "spiffe://corp.example/sa/admin/{name}",
            ),
            (
                "spiffe://corp.example/sa/{id}/agent",
                "spiffe://corp.example/sa/{name}/admin",
            ),
        ] {
            assert!(names(Some(cluster), Some(admin)).is_ok(), "{cluster}");
        }
    }

    #[test]
    fn without_templates_names_are_ours() {
        let names = Names::from(domain());
        let der = certificate(&["spiffe://corp.example/cluster/prod-eu"]);
        let identity = names.identity_of(&der).unwrap();
        assert_eq!(identity.to_string(), "cluster/prod-eu");
    }
}
