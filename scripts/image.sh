#!/usr/bin/env bash
# Puts an image together without a container daemon: an OCI archive that any runtime or registry tool takes
# (`podman load`, `docker load`, `ctr image import`, `skopeo copy oci-archive:…`).
#
#   scripts/image.sh hub|agent FOLDER ARCHIVE    from the binaries in FOLDER
#
# In it are the stripped programs, the shared libraries that they name, and for the hub the authorities of the web; no shell,
# nothing that can be written to, and no root. The same inputs give the same archive, byte for byte.
set -euo pipefail

if [[ $# -ne 3 ]]; then
  sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
image=$1 binaries=$2 archive=$3
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# As scripts/image-root.sh has it.
user=65532

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
root=$work/root
mkdir -p "$work/layout/blobs/sha256"

"$repository/scripts/image-root.sh" "$image" "$binaries" "$root"

# Times, owners and order say nothing about the content, so they are always the same.
tar_of() { # folder
  tar --create --directory "$1" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --format=ustar .
}

blob() { # media type; reads the content, prints its descriptor
  local content=$work/blob digest
  cat >"$content"
  digest=$(sha256sum "$content" | cut -d ' ' -f 1)
  local size
  size=$(stat -c %s "$content")
  mv "$content" "$work/layout/blobs/sha256/$digest"
  printf '{"mediaType":"%s","digest":"sha256:%s","size":%s}' "$1" "$digest" "$size"
}

case "$(uname -m)" in
  x86_64) architecture=amd64 ;;
  aarch64) architecture=arm64 ;;
  *) architecture=$(uname -m) ;;
esac
version=$(sed -nE '/^\[workspace.package\]/,/^\[/s/^version = "(.*)"/\1/p' "$repository/Cargo.toml")
commit=$(git -C "$repository" rev-parse HEAD 2>/dev/null || echo unknown)
oci=application/vnd.oci.image

diff_id=$(tar_of "$root" | sha256sum | cut -d ' ' -f 1)
layer=$(tar_of "$root" | gzip -n -6 | blob "$oci.layer.v1.tar+gzip")
labels="{\"org.opencontainers.image.title\":\"nabu-$image\",\"org.opencontainers.image.version\":\"$version\""
labels+=",\"org.opencontainers.image.revision\":\"$commit\",\"org.opencontainers.image.licenses\":\"Apache-2.0\"}"
config=$(
  printf '{"architecture":"%s","os":"linux","config":{"User":"%s:%s","Entrypoint":["/%s"],"WorkingDir":"/","Labels":%s},' \
    "$architecture" "$user" "$user" "nabu-$image" "$labels"
  printf '"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' "$diff_id"
)
config=$(printf '%s' "$config" | blob "$oci.config.v1+json")
manifest=$(printf '{"schemaVersion":2,"mediaType":"%s","config":%s,"layers":[%s]}' "$oci.manifest.v1+json" "$config" "$layer" |
  blob "$oci.manifest.v1+json")
printf '{"imageLayoutVersion":"1.0.0"}' >"$work/layout/oci-layout"
printf '{"schemaVersion":2,"mediaType":"%s","manifests":[%s]}' "$oci.index.v1+json" \
  "${manifest%\}},\"annotations\":{\"org.opencontainers.image.ref.name\":\"nabu-$image:$version\"}}" >"$work/layout/index.json"
mkdir -p "$(dirname "$archive")"
tar_of "$work/layout" >"$archive"
echo "image: $archive: nabu-$image:$version, $(($(stat -c %s "$archive") / 1024)) KiB" >&2
