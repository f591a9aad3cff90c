#!/usr/bin/env bash
# Builds the programs of this commit twice, in clones at different places, and fails unless they are the same byte for byte.
# Takes two release builds from nothing.
set -euo pipefail

if [[ $# -ne 0 ]]; then
  sed -n '2,3s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Of one commit, though another one may come while the first build runs.
git clone --quiet --bare "$repository" "$work/source"

build() { # clone, target folder
  git clone --quiet "$work/source" "$1"
  (
    cd "$1"
    CARGO_TARGET_DIR=$2 scripts/release.sh cargo build --quiet --locked --release --bins -p nabu-hub -p nabu-agent
  )
}

build "$work/one" "$work/target-one"
build "$work/another/place/for/the/other" "$work/another/target"

different=0
for program in nabu-hub nabu-agent nabuctl; do
  one="$work/target-one/release/$program" other="$work/another/target/release/$program"
  if cmp --quiet "$one" "$other"; then
    sha256sum "$one" | sed "s#  .*#  $program, twice#"
  else
    echo "reproducible: $program differs: $(sha256sum <"$one" | cut -c 1-16) and $(sha256sum <"$other" | cut -c 1-16)" >&2
    cmp "$one" "$other" >&2 || true
    different=1
  fi
done
"$work/target-one/release/nabu-hub" --version
exit "$different"
