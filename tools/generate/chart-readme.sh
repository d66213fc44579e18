#!/bin/bash
# helm/CHART/README.md from what Chart.yaml and the comments in values.yaml say. Usage: chart-readme.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."

# One row for each value: a comment above it and one behind it describe it; a mapping without a comment has no row of its own.
table() {
  awk '
    function row(value, text) { gsub(/\|/, "\\|", text); printf "| `%s` | %s | %s |\n", path, value == "" ? "" : "`" value "`", text }
    BEGIN { print "| value | default | |\n|---|---|---|" }
    /^ *$/ { above = ""; next }
    /^ *#/ { sub(/^ *# ?/, ""); above = above (above == "" ? "" : " ") $0; next }
    match($0, /^ *[A-Za-z][A-Za-z0-9]*:/) {
      key = substr($0, 1, RLENGTH - 1)
      rest = substr($0, RLENGTH + 1)
      depth = match(key, /[^ ]/) - 1
      keys[depth] = substr(key, depth + 1)
      path = keys[0]
      for (at = 2; at <= depth; at += 2) path = path "." keys[at]
      behind = ""
      if (match(rest, / +# .*/)) { behind = substr(rest, RSTART); sub(/^ +# /, "", behind); rest = substr(rest, 1, RSTART - 1) }
      sub(/^ +/, "", rest)
      sub(/ +$/, "", rest)
      text = above (above != "" && behind != "" ? " " : "") behind
      above = ""
      if (rest != "" || text != "") row(rest, text)
    }' "$1"
}

field() { sed -n "s/^$2: *//p" "helm/$1/Chart.yaml"; }

readme() {
  printf '# %s\n\n<!-- Generated from Chart.yaml and values.yaml: `tools/check-generated.sh --write` rewrites it. -->\n\n%s\n\n' "$1" "$(field "$1" description)"
  printf 'Version %s, for Kubernetes %s. A value that is not in the table is refused.\n\n```\n%s\n```\n\n' \
    "$(field "$1" version)" "$(field "$1" kubeVersion | sed 's/"//g; s/>=\(.*\)-0/\1 or newer/')" "$2"
  printf '%s\n\n' "$3"
  table "helm/$1/values.yaml"
}

mkdir -p "$1/helm/fusionllm" "$1/helm/fusion-crds"
# shellcheck disable=SC2016  # back quotes of Markdown
readme fusionllm 'helm install fusion helm/fusionllm --namespace fusionllm --create-namespace --set image.registry=REGISTRY,rbac.jobNamespaces={training}
helm test fusion --namespace fusionllm' \
  'In the repository, `docs/tasks/install-operator.md` says how to use what it installs; `ci/` has values that are tried with each change.' \
  >"$1/helm/fusionllm/README.md"
# shellcheck disable=SC2016
readme fusion-crds 'helm install fusion-crds helm/fusion-crds
helm install fusion helm/fusionllm --namespace fusionllm --create-namespace --set crds.install=false,rbac.jobNamespaces={training}' \
  'Definitions that a release of the chart fusionllm has brought along belong to it: `--take-ownership` (helm 3.17) hands them over.' \
  >"$1/helm/fusion-crds/README.md"
