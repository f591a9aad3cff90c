//! Filters of responses as SQL, and the statements of a watch.

use sqlx::sqlite::Sqlite;
use sqlx::{QueryBuilder, Row as _, SqlitePool};

use super::read::summary;
use super::rows::{column, signed, unsigned};
use super::writer::OrFailed as _;
use crate::store::{ResponseFilter, ResponseSummary, StoreError};

/// Adds the conditions of a filter to a statement over responses `r` and intents `i`.
pub(super) fn push(query: &mut QueryBuilder<Sqlite>, filter: &ResponseFilter) {
    if let Some(cluster) = &filter.cluster {
        query
            .push(" AND r.cluster = ")
            .push_bind(cluster.as_str().to_owned());
    }
    if let Some(clusters) = &filter.clusters {
        let ids = clusters.iter().map(|id| id.as_str().to_owned());
        push_one_of(query, "r.cluster", ids);
    }
    if let Some(since) = filter.since {
        query
            .push(" AND r.observed_at >= ")
            .push_bind(since.as_microsecond());
    }
    let phases: Vec<_> = filter.phases.iter().map(|phase| phase.as_str()).collect();
    let providers: Vec<_> = filter.providers.iter().map(|kind| kind.as_str()).collect();
    let error_types: Vec<_> = filter
        .error_types
        .iter()
        .map(|kind| kind.as_str())
        .collect();
    let reasons: Vec<_> = filter.error_reasons.iter().map(String::as_str).collect();
    for (column, values) in [
        ("r.phase", phases),
        ("i.provider", providers),
        ("json_extract(r.progress, '$.error.kind')", error_types),
        ("json_extract(r.progress, '$.error.reason')", reasons),
    ] {
        if !values.is_empty() {
            push_one_of(query, column, values.into_iter().map(str::to_owned));
        }
    }
    push_patterns(query, "i.route", &filter.routes);
    push_patterns(query, "i.repository", &filter.repositories);
}

fn push_one_of(
    query: &mut QueryBuilder<Sqlite>,
    column: &str,
    values: impl Iterator<Item = String>,
) {
    query.push(format!(" AND {column} IN ("));
    let mut list = query.separated(", ");
    for value in values {
        list.push_bind(value);
    }
    query.push(")");
}

fn push_patterns(query: &mut QueryBuilder<Sqlite>, column: &str, patterns: &[String]) {
    if patterns.is_empty() {
        return;
    }
    query.push(" AND (0");
    for pattern in patterns {
        query.push(format!(" OR {column} GLOB "));
        query.push_bind(glob(pattern));
    }
    query.push(")");
}

/// A pattern of ours, in which only `*` means something, as SQLite's GLOB.
fn glob(pattern: &str) -> String {
    let escaped = |c: char| match c {
        '[' | '?' => format!("[{c}]"),
        other => other.to_string(),
    };
    pattern.chars().map(escaped).collect()
}

pub(super) async fn latest_change(pool: &SqlitePool) -> Result<u64, StoreError> {
    let row = sqlx::query("SELECT max(change) AS change FROM responses")
        .fetch_one(pool)
        .await
        .or_failed("read the newest change")?;
    Ok(unsigned(
        row.try_get::<Option<i64>, _>("change")
            .ok()
            .flatten()
            .unwrap_or(0),
    ))
}

pub(super) async fn responses_changed(
    pool: &SqlitePool,
    filter: &ResponseFilter,
    after: u64,
    upto: u64,
    limit: u32,
) -> Result<Vec<(u64, ResponseSummary)>, StoreError> {
    let mut query = QueryBuilder::<Sqlite>::new(
        "SELECT r.*, i.route, i.provider, i.repository FROM responses r LEFT JOIN intents i ON i.response = r.id
        WHERE r.change > ",
    );
    query.push_bind(signed(after));
    query.push(" AND r.change <= ").push_bind(signed(upto));
    push(&mut query, filter);
    query.push(" ORDER BY r.change LIMIT ").push_bind(limit);
    let rows = query
        .build()
        .fetch_all(pool)
        .await
        .or_failed("read changed responses")?;
    rows.iter()
        .map(|row| Ok((unsigned(column(row, "change")?), summary(row)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_star_means_something_in_a_pattern() {
        assert_eq!(glob("a*[b]?"), "a*[[]b][?]");
    }
}
