#!/usr/bin/env bash
# Checks for what building and testing need, and names the command that installs what is missing.
#
#   scripts/prerequisites.sh             check what a build and the demo need
#   scripts/prerequisites.sh --install   install what the tests and checks need beside that
#
# Says nothing when everything is there. Packages come from apt; what comes from elsewhere goes into the cache.
set -euo pipefail

cache="${XDG_CACHE_HOME:-$HOME/.cache}/nabu"
cargo_tools="$cache/cargo-tools"

# Both build with the toolchain of rust-toolchain.toml.
cargo_deny_version=0.20.2
mdbook_version=0.5.4

# GitHub's published schemas, that the tests hold our test forge to.
graphql_schema_version=15.26.1
openapi_version=23.0.2
# Webhooks as GitHub sends them.
webhooks_version=7.6.1
# Clients that the tests hold against it, and against the one that speaks as GitLab.
octokit_version=5.0.5
pygithub_version=2.10.0
python_gitlab_version=8.6.0

# Writes bills of materials, and checks that they are what the standard says.
cargo_cyclonedx_version=0.5.9
cyclonedx_version=11.12.0

# Checks the files of the protocol; the client of gRPC that the tests hold the admin API against.
buf_version=1.75.0
grpcurl_version=1.9.3
# CRDs of others, that the charts and examples are held to: Go modules, and the folder and files in each.
crd_modules=(
  "github.com/cert-manager/cert-manager@v1.21.2 deploy/crds cert-manager.io_certificates.yaml"
  "sigs.k8s.io/gateway-api@v1.5.0 config/crd/standard gateway.networking.k8s.io_tlsroutes.yaml gateway.networking.k8s.io_httproutes.yaml"
  "github.com/prometheus-operator/prometheus-operator@v0.85.0 example/prometheus-operator-crd monitoring.coreos.com_servicemonitors.yaml monitoring.coreos.com_prometheusrules.yaml"
  "github.com/argoproj/argo-cd/v3@v3.3.0 manifests/crds application-crd.yaml"
  "github.com/fluxcd/source-controller@v1.8.0 config/crd/bases source.toolkit.fluxcd.io_ocirepositories.yaml"
)
# Flux publishes the schema of a HelmRelease in no module that the proxy has; this package is made from it.
flux_models_version=4.0.0

oldest_go=1.26

as_root() {
  if [[ $EUID -eq 0 ]]; then "$@"; else sudo "$@"; fi
}

# The apt package that has a program.
package_of() {
  case "$1" in
    cc | make) echo build-essential ;;
    node) echo nodejs ;;
    pip3) echo python3-pip ;;
    flock) echo util-linux ;;
    *) echo "$1" ;;
  esac
}

missing=0
need() { # program, command that installs it
  if ! command -v "$1" >/dev/null; then
    echo "prerequisites: $1 is missing; to install it: $2" >&2
    missing=1
  fi
}

need_go() {
  need go "follow https://go.dev/doc/install (version $oldest_go or newer)"
  if command -v go >/dev/null; then
    local version
    version=$(go env GOVERSION)
    if ! printf 'go%s\n%s\n' "$oldest_go" "${version%% *}" | sort -V -C; then
      echo "prerequisites: $version is too old; follow https://go.dev/doc/install (version $oldest_go or newer)" >&2
      missing=1
    fi
  fi
}

install_packages() { # programs
  local program packages=()
  for program in "$@"; do
    command -v "$program" >/dev/null || packages+=("$(package_of "$program")")
  done
  if [[ ${#packages[@]} -eq 0 ]]; then
    return
  fi
  if ! command -v apt-get >/dev/null; then
    echo "prerequisites: no apt-get here; please install: ${packages[*]}" >&2
    exit 1
  fi
  echo "prerequisites: installing ${packages[*]}" >&2
  as_root apt-get update -q >&2
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${packages[@]}" >&2
}

install_cargo_tool() { # crate, version, further flags of cargo install
  local crate=$1 version=$2 started=$SECONDS
  shift 2
  if [[ -x "$cargo_tools/bin/$crate" ]] && grep -qs "^\"$crate $version " "$cargo_tools/.crates.toml"; then
    return
  fi
  echo "prerequisites: building $crate $version, some minutes" >&2
  CARGO_TARGET_DIR="$cache/tools-target" cargo install --quiet --locked --force \
    --root "$cargo_tools" --version "$version" "$@" "$crate" >&2
  rm -rf "$cache/tools-target"
  echo "prerequisites: built $crate in $((SECONDS - started)) s" >&2
}

install_go_tool() { # package, version
  local name=${1##*/} started=$SECONDS
  local program="$cache/bin/$name-v$2"
  if [[ -x "$program" ]]; then
    return
  fi
  echo "prerequisites: building $name $2, about a minute" >&2
  GOBIN="$cache/bin/.$name.new" CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' "$1@v$2" >&2
  mv "$cache/bin/.$name.new/$name" "$program"
  rm -r "$cache/bin/.$name.new"
  echo "prerequisites: built $name in $((SECONDS - started)) s" >&2
}

install_npm_packages() { # name@version…
  local package missing_packages=()
  for package in "$@"; do
    if ! grep -qs "\"version\": \"${package##*@}\"" "$cache/npm/node_modules/${package%@*}/package.json"; then
      missing_packages+=("$package")
    fi
  done
  if [[ ${#missing_packages[@]} -eq 0 ]]; then
    return
  fi
  echo "prerequisites: installing ${missing_packages[*]}" >&2
  npm install --prefix "$cache/npm" --save-exact --ignore-scripts --no-audit --no-fund --loglevel=error \
    "${missing_packages[@]}" >&2
}

install_python_packages() { # name==version…
  local package name missing=false
  for package in "$@"; do
    name=${package%==*}
    name=${name%%[*}
    name=${name,,}
    [[ -d "$cache/python/${name//-/_}-${package#*==}.dist-info" ]] || missing=true
  done
  if ! $missing; then
    return
  fi
  echo "prerequisites: installing $*" >&2
  rm -rf "$cache/python"
  python3 -m pip install --quiet --no-warn-conflicts --target "$cache/python" --disable-pip-version-check --root-user-action=ignore "$@" >&2
}

# Copies single files out of Go modules; the modules themselves are large and not kept.
install_crds() { # "module@version folder file…"
  local entry module folder file dir target="$cache/crds"
  for entry in "$@"; do
    read -r module folder file <<<"$entry"
    # Its name changes with the version and with the files that are wanted.
    local marker
    marker="$target/.$(cut -c 1-12 <<<"$(sha256sum <<<"$entry")")"
    if [[ -e "$marker" ]]; then
      continue
    fi
    echo "prerequisites: fetching CRDs of $module" >&2
    mkdir -p "$target"
    dir=$(
      cd "$target"
      GOFLAGS=-modcacherw GOMODCACHE="$cache/.crds-modules" go mod download -json "$module" |
        sed -nE 's/^[[:space:]]*"Dir": "(.*)",?$/\1/p'
    )
    for file in $file; do
      cp --no-preserve=mode "$dir/$folder/$file" "$target/$file"
    done
    touch "$marker"
  done
  rm -rf "$cache/.crds-modules"
}

install=false
case "${1:-}" in
  "") ;;
  --install) install=true ;;
  *)
    sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac

if $install; then
  install_packages cc make git curl flock shellcheck sqlite3 faketime node npm python3 pip3 gh zsh fish
fi

need cargo "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
need_go
need git "sudo apt-get install git"
need cc "sudo apt-get install build-essential"
need flock "sudo apt-get install util-linux"
if [[ $missing -ne 0 ]]; then
  exit 1
fi

if $install; then
  mkdir -p "$cache/bin"
  # Whoever comes second waits, and then finds the work done.
  exec 9>"$cache/.prerequisites.lock"
  flock 9
  install_cargo_tool cargo-deny "$cargo_deny_version"
  install_cargo_tool cargo-cyclonedx "$cargo_cyclonedx_version"
  install_cargo_tool mdbook "$mdbook_version" --no-default-features --features search
  install_npm_packages "@octokit/graphql-schema@$graphql_schema_version" "@octokit/openapi@$openapi_version" \
    "@octokit/webhooks-examples@$webhooks_version" "octokit@$octokit_version" \
    "@kubernetes-models/flux-cd@$flux_models_version" "@bufbuild/buf@$buf_version"
  # Of half a gigabyte one file is used.
  find "$cache/npm/node_modules/@octokit/openapi/generated" -name '*.json' ! -name api.github.com.json -delete
  install_crds "${crd_modules[@]}"
  install_go_tool github.com/fullstorydev/grpcurl/cmd/grpcurl "$grpcurl_version"
  install_python_packages "PyGithub==$pygithub_version" "python-gitlab==$python_gitlab_version" \
    "cyclonedx-python-lib[json-validation]==$cyclonedx_version"
fi
