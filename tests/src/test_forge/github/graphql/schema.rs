//! GitHub's published schema, from the npm package `@octokit/graphql-schema` that `scripts/prerequisites.sh` installs.

use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow};
use apollo_compiler::Schema;
use apollo_compiler::validation::Valid;

use crate::process::npm_path;

/// The schema; read once in a process.
pub(crate) fn schema() -> Result<&'static Valid<Schema>> {
    static SCHEMA: OnceLock<Result<Valid<Schema>, String>> = OnceLock::new();
    SCHEMA
        .get_or_init(|| load().map_err(|error| format!("{error:#}")))
        .as_ref()
        .map_err(|error| anyhow!("{error}"))
}

fn load() -> Result<Valid<Schema>> {
    let path: PathBuf = npm_path("@octokit/graphql-schema/schema.graphql")?;
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    // Not validated: it is GitHub's, whatever it is, and validation takes long.
    match Schema::parse(&text, &path) {
        Ok(schema) => Ok(Valid::assume_valid(schema)),
        // One definition is there twice in some versions; everything else is usable.
        Err(errors) if errors.partial.types.len() > 500 => Ok(Valid::assume_valid(errors.partial)),
        Err(errors) => Err(anyhow!("{}: {}", path.display(), errors.errors)),
    }
}
