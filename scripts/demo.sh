#!/usr/bin/env bash
# Shows the main job end to end: two clusters, agents, a hub, a Git forge. Cleans up after itself.
#
#   scripts/demo.sh           run and clean up
#   KEEP=1 scripts/demo.sh    leave everything running until Ctrl-C
#   FORGE=github scripts/demo.sh    the same with the test forge that speaks GitHub's (or gitlab: GitLab's) API
#   CHARTS=1 scripts/demo.sh  the same with the Helm charts: what their Deployments say is what runs
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

CARGO_TARGET_DIR=$(scripts/target-dir.sh)
export CARGO_TARGET_DIR
scripts/prerequisites.sh
echo "demo: building what is missing; the first time this takes about ten minutes on two cores" >&2
servers=(apiserver gitea)
if [[ -n "${CHARTS:-}" && "${CHARTS:-}" != 0 ]]; then
  servers+=(helm kubectl)
fi
scripts/testbed.sh build "${servers[@]}"
cargo build --locked --bins -p nabu-hub -p nabu-agent -p nabu-tests
exec "$CARGO_TARGET_DIR/debug/demo"
