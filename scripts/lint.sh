#!/usr/bin/env bash
# Checks form and lints of Rust, shell and Go; the cheap ones first. Changes nothing.
#
#   scripts/lint.sh [all|form|clippy]
#
# form is what needs no compiler.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

form() {
  cargo fmt --all --check
  shellcheck scripts/*.sh tests/tests/*/*.sh .ci/run
  local unformatted
  unformatted=$(gofmt -l tests/servers)
  if [[ -n "$unformatted" ]]; then
    echo "lint: not as gofmt writes it (make fmt): $unformatted" >&2
    exit 1
  fi
}

clippy() {
  cargo clippy --workspace --all-targets --locked -- -D warnings
}

case "${1:-all}" in
  all)
    form
    clippy
    ;;
  form | clippy) "$1" ;;
  *)
    echo "lint: unknown part $1: all, form or clippy" >&2
    exit 2
    ;;
esac
