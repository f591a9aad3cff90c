#!/usr/bin/env bash
# Runs cargo-deny over the dependencies: what we may use, and what is known to be broken.
#
# The advisory database is a Git repository of its own. Where it cannot be reached the rest is checked
# all the same, and a warning says that advisories were not.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo deny --locked check --hide-inclusion-graph bans licenses sources
if cargo deny --locked fetch db; then
  cargo deny --locked --offline check --hide-inclusion-graph advisories
else
  echo "deny: WARNING: the advisory database cannot be reached; advisories were not checked" >&2
fi
