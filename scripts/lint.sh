#!/usr/bin/env bash
# Checks form and lints of Rust, shell and Go; the cheap ones first. Changes nothing.
#
#   scripts/lint.sh            all
#   scripts/lint.sh form       without clippy
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo fmt --all --check
shellcheck scripts/*.sh .ci/run

unformatted=$(gofmt -l tests/servers)
if [[ -n "$unformatted" ]]; then
  echo "lint: not as gofmt writes it (make fmt): $unformatted" >&2
  exit 1
fi

if [[ "${1:-}" != form ]]; then
  cargo clippy --workspace --all-targets --locked -- -D warnings
fi
