#!/usr/bin/env bash
# Checks the protocol's files: their form (buf's STANDARD lint, and a comment on everything), and that nothing has changed
# that others rely on: what proto/accepted.binpb.gz holds. `accept` puts the files of now there, for a release.
#
#   scripts/protos.sh [all|lint|breaking|accept]
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

accepted=proto/accepted.binpb.gz

breaking() {
  "$buf" breaking proto --against "$accepted"
}

# Only what breaks nothing is accepted; whoever means to break something removes the file first.
accept() {
  [[ ! -e "$accepted" ]] || breaking
  "$buf" build proto --exclude-source-info -o "$accepted"
}

case "${1:-all}" in
  all)
    lint
    breaking
    ;;
  lint | breaking | accept) "$1" ;;
  *)
    echo "protos: unknown part $1: all, lint, breaking or accept" >&2
    exit 2
    ;;
esac
