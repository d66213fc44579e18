# A registry of images without TLS, for the scripts that source this: serve_registry starts it, push_images fills it, trust_registry tells a
# cluster's containerd of it. Sets no option of the shell. Needs docker-registry and buildah (tools/install-deps.sh e2e images).
registry_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../listening_lib.sh
. "$registry_folder/../listening_lib.sh"

# serve_registry FOLDER ADDRESS [COMMAND...]: keeps images in FOLDER; on a free port of ADDRESS, started by COMMAND, which must become it.
# Sets registry, HOST:PORT. Whoever owns COMMAND's processes ends it.
serve_registry() {
  local folder=$1 address=$2 port process
  mkdir -p "$folder/images"
  cat >"$folder/registry.yml" <<CONFIG
version: 0.1
log: {level: warn}
storage: {filesystem: {rootdirectory: $folder/images}}
http: {addr: "$address:0"}
CONFIG
  "${@:3}" docker-registry serve "$folder/registry.yml" >"$folder/registry.log" 2>&1 &
  process=$!
  port=$(await_port $process) || {
    echo "$0: the registry does not listen: $(tail -n 5 "$folder/registry.log")" >&2
    return 1
  }
  registry=$address:$port
}

# push_images PREFIX TAG ARCHIVE...: as PREFIX/NAME:TAG, where NAME is the archive's. Prints nothing.
push_images() {
  local archive image
  for archive in "${@:3}"; do
    # The builder has what it has built of these already, and keeps it: nothing is added to its store.
    image=$(buildah pull --quiet "docker-archive:$archive") || return
    buildah push --quiet --tls-verify=false "$image" "docker://$1/$(basename "$archive" .tar):$2" || return
  done
}

# trust_registry CLUSTER: its containerd pulls from there without TLS. It looks for this at each pull.
trust_registry() {
  local folder=$state_root/$1/registries/$registry
  mkdir -p "$folder"
  printf 'server = "http://%s"\n[host."http://%s"]\n  capabilities = ["pull", "resolve"]\n' "$registry" "$registry" >"$folder/hosts.toml"
}
