#!/usr/bin/env bash
# Runs a command in the environment of a release build, so that what it builds tells nothing of this machine: paths are written as
# /nabu, /target and /cargo, times are those of the commit, and the commit is told.
#
#   scripts/release.sh cargo build --locked --release --bins -p nabu-hub -p nabu-agent
#
# Builds in different places are to be the same: `make reproducible` compares two.
set -euo pipefail

if [[ $# -eq 0 ]]; then
  sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
CARGO_TARGET_DIR=$("$repository/scripts/target-dir.sh")
cargo_home=${CARGO_HOME:-$HOME/.cargo}

# Whoever builds without the repository's history tells the commit.
if [[ -z ${NABU_COMMIT:-} ]]; then
  NABU_COMMIT=$(git -C "$repository" describe --always --abbrev=40 --exclude '*' --dirty 2>/dev/null || true)
fi
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$repository" log -1 --format=%ct 2>/dev/null || echo 0)}

rust_flags=${RUSTFLAGS:-} c_flags=""
for prefix in "$cargo_home=/cargo" "$repository=/nabu" "$CARGO_TARGET_DIR=/target"; do
  rust_flags+=" --remap-path-prefix=$prefix"
  c_flags+=" -ffile-prefix-map=$prefix"
done

export CARGO_TARGET_DIR NABU_COMMIT SOURCE_DATE_EPOCH
export RUSTFLAGS="${rust_flags# }"
export CFLAGS="${CFLAGS:-}$c_flags" CXXFLAGS="${CXXFLAGS:-}$c_flags"
export CARGO_INCREMENTAL=0
exec "$@"
