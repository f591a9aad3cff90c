#!/usr/bin/env bash
# Writes the files that are generated from the code, or checks that they are not stale.
#
#   scripts/generated.sh --write [crds|flags]
#   scripts/generated.sh --check
#
# Generated are charts/crds/ (from the Rust types) with its copies in the charts, and docs/src/reference/{nabu-hub,nabu-agent,nabuctl}.md
# (from the flags of the binaries).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

crds=charts/crds
reference=docs/src/reference

run() { # crate, binary, arguments
  local crate=$1 binary=$2
  shift 2
  cargo run --quiet --locked -p "$crate" --bin "$binary" -- "$@"
}

# Which CRDs each chart brings.
agent_crds=(eventresponses securityevents)
hub_crds=(gitopsresponderconfigs)

write_crds() { # root folder
  mkdir -p "$1/$crds" "$1/charts/nabu-agent/crds" "$1/charts/nabu-hub/crds"
  run nabu-common crdgen --out "$1/$crds"
  local name
  for name in "${agent_crds[@]}"; do
    cp "$1/$crds/$name.yaml" "$1/charts/nabu-agent/crds/"
  done
  for name in "${hub_crds[@]}"; do
    cp "$1/$crds/$name.yaml" "$1/charts/nabu-hub/crds/"
  done
}

write_flags() { # root folder
  mkdir -p "$1/$reference"
  run nabu-hub nabu-hub markdown-help >"$1/$reference/nabu-hub.md"
  run nabu-agent nabu-agent markdown-help >"$1/$reference/nabu-agent.md"
  run nabu-hub nabuctl markdown-help >"$1/$reference/nabuctl.md"
}

check() {
  local fresh stale=0 file
  fresh=$(mktemp -d)
  # shellcheck disable=SC2064 # the folder of now is meant
  trap "rm -rf '$fresh'" EXIT
  write_crds "$fresh"
  write_flags "$fresh"
  local folder
  for folder in "$crds" charts/nabu-agent/crds charts/nabu-hub/crds; do
    diff -ruN "$folder" "$fresh/$folder" || stale=1
  done
  for file in nabu-hub nabu-agent nabuctl; do
    diff -uN "$reference/$file.md" "$fresh/$reference/$file.md" || stale=1
  done
  if [[ $stale -ne 0 ]]; then
    echo "generated: stale files; write them again with: make crds docs-flags" >&2
    exit 1
  fi
}

case "${1:-} ${2:-}" in
  "--write ") write_crds . && write_flags . ;;
  "--write crds") write_crds . ;;
  "--write flags") write_flags . ;;
  "--check ") check ;;
  *)
    sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
