#!/usr/bin/env bash
# Writes the bill of materials of each program, in CycloneDX 1.5 (JSON): every crate that it is made of, with version,
# licence and source.
#
#   scripts/sbom.sh FOLDER    writes nabu-hub.cdx.json, nabuctl.cdx.json and nabu-agent.cdx.json
#
# The same sources give the same files, but for a random serial number that is left out.
set -euo pipefail

if [[ $# -ne 1 ]]; then
  sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd -P)
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
export PATH="${XDG_CACHE_HOME:-$HOME/.cache}/nabu/cargo-tools/bin:$PATH"
if ! command -v cargo-cyclonedx >/dev/null; then
  echo "sbom: cargo-cyclonedx is missing; to install it: make prerequisites" >&2
  exit 1
fi

# The tool writes beside each Cargo.toml, so it is given a copy.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git -C "$repository" ls-files -z --cached -- '*.rs' '*.toml' '*.proto' Cargo.lock |
  tar --create --directory "$repository" --null --files-from - | tar --extract --directory "$work"
SOURCE_DATE_EPOCH=$(git -C "$repository" log -1 --format=%ct)
export SOURCE_DATE_EPOCH
for crate in hub agent; do
  cargo cyclonedx --quiet --manifest-path "$work/$crate/Cargo.toml" --format json --spec-version 1.5 \
    --describe binaries --no-build-deps --target "$(rustc -vV | sed -n 's/^host: //p')"
done
for program in nabu-hub nabuctl nabu-agent; do
  found=$(find "$work" -name "${program}_bin.cdx.json")
  # Paths of this machine are of no use to anybody.
  sed -e '/"serialNumber"/d' -e "s#$work#/nabu#g" "$found" >"$folder/$program.cdx.json"
done
