#!/usr/bin/env bash
# Builds the servers and tools that the tests start (tests/servers) and says where they are.
#
#   scripts/testbed.sh build [NAME…]     build what is missing; all of it without a name
#   scripts/testbed.sh path apiserver    the Kubernetes API server (with its etcd)
#   scripts/testbed.sh path gitea        the Gitea server
#   scripts/testbed.sh path gitea-static the folder for Gitea's STATIC_ROOT_PATH
#   scripts/testbed.sh path helm         helm, for the charts
#   scripts/testbed.sh path kubectl      kubectl, of the API server's version
#
# Binaries live in the cache, under a name that carries the version and a digest of everything they are
# built from: a changed module is another file, and an old clone still finds its own. `path` builds nothing.
set -euo pipefail

servers=$(cd "$(dirname "${BASH_SOURCE[0]}")/../tests/servers" && pwd)
programs=(apiserver gitea helm kubectl)
bin="${XDG_CACHE_HOME:-$HOME/.cache}/nabu/bin"

kubernetes_module=k8s.io/kubernetes
gitea_module=code.gitea.io/gitea
helm_module=helm.sh/helm/v3
kubectl_module=k8s.io/kubectl

# The version of module $2 that the go.mod of server $1 requires.
required_version() {
  sed -nE "s#^(require )?[[:space:]]*$2 (v[^ ]+).*#\2#p" "$servers/$1/go.mod"
}

# Twelve digits that change with the sources of server $1, or with how this script builds it.
source_digest() {
  (
    cd "$servers/$1"
    find . -maxdepth 1 \( -name '*.go' -o -name go.mod -o -name go.sum \) -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    declare -f "build_$1"
  ) | sha256sum | cut -c 1-12
}

binary_path() {
  case "$1" in
    apiserver) echo "$bin/kube-apiserver-$(required_version apiserver "$kubernetes_module")-$(source_digest apiserver)" ;;
    gitea) echo "$bin/gitea-$(required_version gitea "$gitea_module")-$(source_digest gitea)" ;;
    helm) echo "$bin/helm-$(required_version helm "$helm_module")-$(source_digest helm)" ;;
    kubectl) echo "$bin/kubectl-$(required_version kubectl "$kubectl_module")-$(source_digest kubectl)" ;;
  esac
}

build_apiserver() { # output file
  local version minor pkg=k8s.io/component-base/version
  version=$(required_version apiserver "$kubernetes_module")
  minor=${version#v*.}
  # Without a version, kubectl and helm cannot parse what the server says about itself.
  CGO_ENABLED=0 go build -trimpath -o "$1" \
    -ldflags "-s -w -X $pkg.gitVersion=$version -X $pkg.gitMajor=1 -X $pkg.gitMinor=${minor%%.*}" .
}

build_gitea() { # output file
  CGO_ENABLED=1 go build -trimpath -tags 'sqlite sqlite_unlock_notify' -ldflags '-s -w' -o "$1" .
  # The files it serves, copied so that they last as long as the binary: a module cache may be emptied.
  local module static
  module=$(go list -m -f '{{.Dir}}' "$gitea_module")
  static=$(binary_path gitea).static
  rm -rf "$static"
  mkdir "$static"
  cp -R --no-preserve=mode "$module"/{options,public,templates} "$static"
}

build_helm() { # output file
  local version flags="-s -w" minor name
  version=$(required_version helm "$helm_module")
  minor=$(required_version helm k8s.io/client-go | cut -d . -f 2)
  flags+=" -X $helm_module/internal/version.version=$version"
  # The Kubernetes that templates are rendered for when no cluster is asked.
  for name in lint/rules chartutil; do
    flags+=" -X $helm_module/pkg/$name.k8sVersionMajor=1 -X $helm_module/pkg/$name.k8sVersionMinor=$minor"
  done
  CGO_ENABLED=0 go build -trimpath -o "$1" -ldflags "$flags" "$helm_module/cmd/helm"
}

build_kubectl() { # output file
  local version pkg=k8s.io/component-base/version
  version=v1.$(required_version kubectl "$kubectl_module" | cut -d . -f 2,3)
  CGO_ENABLED=0 go build -trimpath -o "$1" -ldflags "-s -w -X $pkg.gitVersion=$version" .
}

build() ( # server
  target=$(binary_path "$1")
  if [[ -x "$target" ]]; then
    exit
  fi
  echo "testbed: building $(basename "$target"), one to three minutes on two cores" >&2
  started=$SECONDS
  cd "$servers/$1"
  # One name for whatever an interrupted build left behind; the lock keeps it ours.
  new="$bin/.$1.new"
  "build_$1" "$new"
  mv "$new" "$target"
  echo "testbed: built $(basename "$target") in $((SECONDS - started)) s" >&2
)

build_missing() { # programs
  local program missing=false
  for program in "$@"; do
    [[ -x "$(binary_path "$program")" ]] || missing=true
  done
  if ! $missing; then
    return
  fi
  command -v go >/dev/null || {
    echo "testbed: Go is missing: scripts/prerequisites.sh says how to install it" >&2
    exit 1
  }
  mkdir -p "$bin"
  # Whoever comes second waits, and then finds the work done.
  exec 9>"$bin/.lock"
  flock 9
  for program in "$@"; do
    build "$program"
  done
}

usage() {
  sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

if [[ "${1:-}" == build ]]; then
  wanted=("${@:2}")
  for program in "${wanted[@]}"; do
    [[ " ${programs[*]} " == *" $program "* ]] || usage
  done
  if [[ ${#wanted[@]} -eq 0 ]]; then
    wanted=("${programs[@]}")
  fi
  build_missing "${wanted[@]}"
  exit
fi

case "${1:-} ${2:-}" in
  "path apiserver" | "path gitea" | "path helm" | "path kubectl") binary_path "$2" ;;
  "path gitea-static") echo "$(binary_path gitea).static" ;;
  *) usage ;;
esac
