#!/usr/bin/env bash
# Prints the folder that cargo builds into: in the cache, one for each clone.
#
# Not one for all: cargo takes what another clone has built as its own when only the path differs, and a test would then
# run another clone's code.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
clone=$(pwd -P | sha256sum | cut -c 1-12)
echo "${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/nabu/target/$clone}"
