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
        routes: wire.routes,
        providers: each(&wire.providers, |word| {
            let known = "github-app, github-token, gitlab-token, forgejo-token, noop";
            ProviderKind::parse(word).ok_or_else(|| none_of("filter.providers", word, known))
        })?,
        repositories: wire.repositories,
        error_types: each(&wire.error_types, |word| {
            let known = "Transient, Permanent, Conflicting, Unauthorized";
            ErrorType::parse(word).ok_or_else(|| none_of("filter.error_types", word, known))
        })?,
        error_reasons: wire.error_reasons,
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

fn each<T>(words: &[String], read: impl Fn(&str) -> Result<T, Status>) -> Result<Vec<T>, Status> {
    words.iter().map(|word| read(word)).collect()
}

fn none_of(field: &str, word: &str, known: &str) -> Status {
    invalid(field, format!("{word:?} is none of {known}"))
}
