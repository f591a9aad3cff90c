#!/usr/bin/env bash
# Checks the protocol's files: their form (buf's STANDARD lint, and a comment on everything), and that nothing that others
# rely on has changed since the last release, or since the main branch while there is no release.
#
#   scripts/protos.sh [all|lint|breaking]
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache="${XDG_CACHE_HOME:-$HOME/.cache}/nabu"
buf="$cache/npm/node_modules/.bin/buf"
if [[ ! -x "$buf" ]]; then
  buf=$(command -v buf) || {
    echo "protos: buf is missing; to install it: make prerequisites" >&2
    exit 1
  }
fi

lint() {
  "$buf" lint proto
}

# The commit that others may have taken the files from.
base() {
  # Of a branch that is not merged: where it left the main branch.
  git describe --tags --abbrev=0 --match 'v*' 2>/dev/null ||
    git merge-base HEAD origin/main 2>/dev/null ||
    git merge-base HEAD main 2>/dev/null
}

breaking() {
  local since old
  since=$(base) || {
    echo "protos: neither a release nor a main branch to compare with" >&2
    return
  }
  old=$(mktemp -d)
  # shellcheck disable=SC2064 # the folder of now is meant
  trap "rm -rf '$old'" RETURN
  git archive "$since" proto/proto | tar -x -C "$old"
  "$buf" breaking proto --against "$old/proto/proto"
}

case "${1:-all}" in
  all)
    lint
    breaking
    ;;
  lint | breaking) "$1" ;;
  *)
    echo "protos: unknown part $1: all, lint or breaking" >&2
    exit 2
    ;;
esac
