//! Filters of requests as filters of the store.

use std::collections::HashMap;

use jiff::Timestamp;
use nabu_common::ids::ClusterId;
use nabu_proto::admin_v1::ResponseFilter as Wire;
use tonic::Status;

use super::errors::{cluster_id, invalid};
use crate::change::ProviderKind;
use crate::response::{ErrorType, Phase};
use crate::store::ResponseFilter;

/// Values of one field of a filter.
const MOST_VALUES: usize = 100;

/// Reads a filter. `labelled` gives the clusters that have all these labels.
pub(super) async fn filter(
    wire: Wire,
    labelled: impl AsyncFnOnce(&HashMap<String, String>) -> Result<Vec<ClusterId>, Status>,
) -> Result<ResponseFilter, Status> {
    let named = each(&wire.cluster_ids, |id| cluster_id("filter.cluster_ids", id))?;
    let named = (!named.is_empty()).then_some(named);
    let clusters = if wire.cluster_labels.is_empty() {
        named
    } else {
        let mut clusters = labelled(&wire.cluster_labels).await?;
        clusters.retain(|id| named.as_ref().is_none_or(|named| named.contains(id)));
        Some(clusters)
    };
    Ok(ResponseFilter {
        cluster: None,
        clusters,
        phases: phases("filter.phases", &wire.phases)?,
        since: wire.since.map(|at| time("filter.since", at)).transpose()?,
        routes: patterns("filter.routes", wire.routes)?,
        providers: each(&wire.providers, |word| {
            let known = "github-app, github-token, gitlab-token, forgejo-token, noop";
            ProviderKind::parse(word).ok_or_else(|| none_of("filter.providers", word, known))
        })?,
        repositories: patterns("filter.repositories", wire.repositories)?,
        error_types: each(&wire.error_types, |word| {
            let known = "Transient, Permanent, Conflicting, Unauthorized";
            ErrorType::parse(word).ok_or_else(|| none_of("filter.error_types", word, known))
        })?,
        error_reasons: bounded("filter.error_reasons", wire.error_reasons)?,
    })
}

/// Reads phases.
pub(super) fn phases(field: &str, words: &[String]) -> Result<Vec<Phase>, Status> {
    each(words, |word| {
        let known = "Pending, Running, Succeeded, Failed, Cancelled";
        Phase::parse(word).ok_or_else(|| none_of(field, word, known))
    })
}

/// Reads a time.
pub(super) fn time(field: &str, at: prost_types::Timestamp) -> Result<Timestamp, Status> {
    Timestamp::new(at.seconds, at.nanos).map_err(|error| invalid(field, error.to_string()))
}

/// Patterns, small enough that matching them against everything is quick.
fn patterns(field: &str, patterns: Vec<String>) -> Result<Vec<String>, Status> {
    let large = |pattern: &String| pattern.len() > 300 || pattern.matches('*').count() > 5;
    if patterns.iter().any(large) {
        let description = "a pattern has at most 300 characters and 5 times *";
        return Err(invalid(field, description));
    }
    bounded(field, patterns)
}

fn bounded(field: &str, values: Vec<String>) -> Result<Vec<String>, Status> {
    if values.len() > MOST_VALUES {
        return Err(invalid(
            field,
            format!("has more than {MOST_VALUES} values"),
        ));
    }
    Ok(values)
}

fn each<T>(words: &[String], read: impl Fn(&str) -> Result<T, Status>) -> Result<Vec<T>, Status> {
    words.iter().map(|word| read(word)).collect()
}

fn none_of(field: &str, word: &str, known: &str) -> Status {
    invalid(field, format!("{word:?} is none of {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_filter_that_would_be_slow_or_means_nothing_is_refused_by_its_field() {
        let refused = async |wire: Wire| {
            let none = async |_: &HashMap<String, String>| Ok(Vec::new());
            filter(wire, none).await.unwrap_err().message().to_owned()
        };
        let wire = Wire::default;
        for (field, wire) in [
            (
                "filter.routes",
                Wire {
                    routes: vec!["*a*b*c*d*e*".to_owned()],
                    ..wire()
                },
            ),
            (
                "filter.repositories",
                Wire {
                    repositories: vec!["a".to_owned(); 101],
                    ..wire()
                },
            ),
            (
                "filter.phases",
                Wire {
                    phases: vec!["Ended".to_owned()],
                    ..wire()
                },
            ),
            (
                "filter.providers",
                Wire {
                    providers: vec!["github".to_owned()],
                    ..wire()
                },
            ),
            (
                "filter.error_types",
                Wire {
                    error_types: vec!["x".to_owned()],
                    ..wire()
                },
            ),
            (
                "filter.cluster_ids",
                Wire {
                    cluster_ids: vec!["A B".to_owned()],
                    ..wire()
                },
            ),
        ] {
            let message = refused(wire).await;
            assert!(message.starts_with(field), "{field}: {message}");
        }
    }

    #[tokio::test]
    async fn labels_and_ids_of_clusters_must_both_hold() {
        let wire = Wire {
            cluster_ids: vec!["a".to_owned(), "b".to_owned()],
            cluster_labels: HashMap::from([("env".to_owned(), "prod".to_owned())]),
            ..Wire::default()
        };
        let labelled = async |_: &HashMap<String, String>| {
            Ok(vec!["b".parse().unwrap(), "c".parse().unwrap()])
        };
        let read = filter(wire, labelled).await.unwrap();
        assert_eq!(read.clusters, Some(vec!["b".parse().unwrap()]));
    }
}
