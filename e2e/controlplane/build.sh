#!/bin/bash
# build.sh [MODULE...]: builds the programs of the end-to-end clusters (kubernetes, etcd, helm, coredns), or those of these modules alone, from
# their own sources, the Go modules beside this file, and prints the folder they are in. Cold on two cores: about eight minutes, helm alone
# one; a second call finds them by a hash of the modules, and prints at once.
#   FUSIONLLM_CACHE           where they are kept; ${XDG_CACHE_HOME:-$HOME/.cache}/fusionllm when unset
#   FUSIONLLM_E2E_KUBERNETES  another minor release of Kubernetes, one of those in releases/: 1.31
# Needs Go 1.21 or newer (it fetches the release a module asks for by itself), or any older `go` with which that one is fetched. Where
# there is none, `golang-go` is installed from Debian's packages. Installs nothing else.
set -euo pipefail
cd "$(dirname "$0")"
cache=${FUSIONLLM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fusionllm}/controlplane
recipe=2  # to be counted up when what this script does to the modules changes
release=${FUSIONLLM_E2E_KUBERNETES:-}
if [ -n "$release" ] && ! [ -f "releases/$release/go.mod" ]; then
  echo "$0: FUSIONLLM_E2E_KUBERNETES is '$release'; there are: $(ls releases | paste -sd' ')" >&2
  exit 1
fi
# folder_of MODULE [RELEASE]
folder_of() { if [ "$1" = kubernetes ] && [ -n "${2:-}" ]; then echo "releases/$2"; else echo "$1"; fi; }
hash_of() {
  local folders=(coredns etcd helm "$(folder_of kubernetes "$1")")
  (echo "$recipe" && cat "${folders[@]/%//go.mod}" "${folders[@]/%//go.sum}") | sha256sum | cut -c1-16
}
hash=$(hash_of "$release")
modules=("$@")
[ ${#modules[@]} -gt 0 ] || modules=(kubernetes etcd helm coredns)
# Of a Debian release whose own Go is too old to fetch a newer one.
newer_go=1.25.4

programs_of() {
  case $1 in
    kubernetes) echo kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl ;;
    etcd | helm | coredns) echo "$1" ;;
    *) echo "$0: no such module: $1" >&2; return 1 ;;
  esac
}
# has FOLDER MODULE: all that is built of it.
has() {
  local program programs
  programs=$(programs_of "$2")
  for program in $programs; do [ -x "$1/$program" ] || return 1; done
}
complete() {
  local module
  for module in "${modules[@]}"; do has "$cache/$hash" "$module" || return 1; done
}

for module in "${modules[@]}"; do programs_of "$module" >/dev/null; done
if complete; then
  echo "$cache/$hash"
  exit 0
fi
mkdir -p "$cache"
# Two builds at once would take twice the time and memory for the same result: the second waits and finds it.
exec 9>"$cache/lock"
flock 9
if complete; then
  echo "$cache/$hash"
  exit 0
fi

find_go() {
  local candidate
  for candidate in "$(command -v go || true)" /usr/local/go/bin/go /usr/lib/go-1.*/bin/go; do
    if [ -x "$candidate" ]; then
      echo "$candidate"
      return
    fi
  done
}
go=$(find_go)
if [ -z "$go" ]; then
  echo "No Go compiler: installing golang-go with apt-get." >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends golang-go ca-certificates >&2
  go=$(find_go)
fi
minor=$("$go" env GOVERSION | sed -E 's/^go1\.([0-9]+).*/\1/')
if [ "$minor" -lt 21 ]; then
  # Go is itself a Go module; a release before 1.21 can download it but not switch to it.
  echo "Go 1.$minor is too old to build Kubernetes: fetching Go $newer_go." >&2
  scratch=$(mktemp -d)
  (cd "$scratch" && "$go" mod init scratch >/dev/null 2>&1)
  fetched=$(cd "$scratch" && "$go" mod download -json "golang.org/toolchain@v0.0.1-go$newer_go.linux-$("$go" env GOARCH)" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
  rm -rf "$scratch"
  # Its files come unexecutable.
  rm -rf "$cache/go$newer_go"
  cp -r --no-preserve=mode "$fetched" "$cache/go$newer_go"
  chmod +x "$cache/go$newer_go"/bin/* "$cache/go$newer_go"/pkg/tool/*/*
  go=$cache/go$newer_go/bin/go
fi

version_of() { awk -v module="$2" '$1 == module && $2 ~ /^v/ { print $2 } $1 == "require" && $2 == module { print $3 }' "$1/go.mod" | head -1; }

staging=$cache/.building-$hash
rm -rf "$staging"
mkdir "$staging"
trap 'rm -rf "$staging"' EXIT
build() {
  local module=$1 flags=$2 start=$SECONDS
  shift 2
  echo "building $module: $*" >&2
  (cd "$(folder_of "$module" "$release")" && CGO_ENABLED=0 GOFLAGS='-buildvcs=false -mod=readonly -trimpath' nice -n 19 "$go" build -p "${JOBS:-2}" -o "$staging/" -ldflags="-s -w $flags" "$@" >&2)
  echo "built $module in $((SECONDS - start)) s" >&2
}

# What each module is told at link time; then its programs, whole, are where they are found.
build_kubernetes() {
  local kubernetes number stamp= package
  kubernetes=$(version_of "$(folder_of kubernetes "$release")" k8s.io/kubernetes)
  number=${kubernetes#v}
  # Without these a node reports v0.0.0-master, and a chart's kubeVersion check refuses the cluster.
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    stamp+=" -X $package.gitVersion=$kubernetes -X $package.gitMajor=${number%%.*} -X $package.gitMinor=$(cut -d. -f2 <<<"$number") -X $package.gitTreeState=clean"
  done
  build kubernetes "$stamp" k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kube-proxy,kubelet,kubectl}
}
build_etcd() {
  build etcd "" go.etcd.io/etcd/server/v3
  mv "$staging/server" "$staging/etcd" 2>/dev/null || mv "$staging/v3" "$staging/etcd"
}
build_helm() {
  local client stamp package
  client=$(version_of helm k8s.io/client-go)
  stamp="-X helm.sh/helm/v3/internal/version.version=$(version_of helm helm.sh/helm/v3)"
  # Unstamped, `helm template` and `helm lint` think of Kubernetes 1.20. client-go 0.N belongs to Kubernetes 1.N.
  for package in helm.sh/helm/v3/pkg/chartutil helm.sh/helm/v3/pkg/lint/rules; do
    stamp+=" -X $package.k8sVersionMajor=1 -X $package.k8sVersionMinor=$(cut -d. -f2 <<<"$client")"
  done
  build helm "$stamp" helm.sh/helm/v3/cmd/helm
}
build_coredns() { build coredns "" github.com/coredns/coredns; }

mkdir -p "$cache/$hash"
for module in "${modules[@]}"; do
  if has "$cache/$hash" "$module"; then continue; fi
  # Releases of Kubernetes share the rest.
  if [ "$module" != kubernetes ] && has "$cache/$(hash_of '')" "$module"; then
    ln "$cache/$(hash_of '')/$module" "$cache/$hash/"
    continue
  fi
  "build_$module"
  has "$staging" "$module" || { echo "$0: a program of $module is missing in $staging" >&2; exit 1; }
  for program in $(programs_of "$module"); do mv "$staging/$program" "$cache/$hash/"; done
done
echo "$cache/$hash"
