#!/bin/bash
# What kubectl and a real API server make of the rows of lib/job/testdata/yaml_values.txt, which say what it is; lib/job/yaml_values_test.cc
# asks the same of the reader here, so that one file means one job to both.
#   HUB_KUBECONFIG  the cluster to ask; skipped when unset. kubectl comes from KUBECTL or PATH.
# The definitions must be there: crd_test.sh, which runs this, applies them. Nothing is kept.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ -z "${HUB_KUBECONFIG:-}" ]; then
  echo "skipped: HUB_KUBECONFIG names no cluster (make e2e-up prints one)"
  exit 0
fi
k() { "${KUBECTL:-kubectl}" --kubeconfig "$HUB_KUBECONFIG" "$@"; }
data=lib/job/testdata
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0 rows=0
declare -A paths=([VALUE]=.spec.data.volume [STEPS]=.spec.training.steps [RATE]=.spec.training.optimizer.learningRate
  [NESTEROV]=.spec.training.optimizer.nesterov [PRESET]=.spec.model.preset [PATH]=.spec.data.path [PRECISION]=.spec.training.precision
  [NAME]=.metadata.name)

# fill PLACE VALUE: the job with the value there, and at the other places what stands there if nothing is said.
fill() {
  local line word
  while IFS= read -r line; do
    if [[ $line == *@*:*@ ]]; then
      word=${line#*@} word=${word%@}
      if [ "${word%%:*}" = "$1" ]; then line=${line%%@*}$2; else line=${line%%@*}${word#*:}; fi
    fi
    printf '%s\n' "$line"
  done < <(grep -v '^#' "$data/yaml_values_job.yaml")
}

# answer PLACE: what the server says of $work/job.yaml, as the third column has it.
answer() {
  local output
  if [ "$1" = DOCUMENT ]; then
    output=$(k create --dry-run=server --validate=strict -o name -f "$work/job.yaml" 2>"$work/error") || { echo refused; return; }
    case $(wc -l <<<"$output") in 1) echo read ;; *) echo two ;; esac
    return
  fi
  output=$(k create --dry-run=server --validate=strict -o "jsonpath={${paths[$1]}}" -f "$work/job.yaml" 2>"$work/error") ||
    { echo refused; return; }
  # Go's JSON escapes these three, and leaves a no-break space as it is.
  output=${output//\\u003c/<} output=${output//\\u003e/>} output=${output//\\u0026/&} output=${output//$'\xc2\xa0'/\\u00a0}
  if [ "$1" = VALUE ]; then
    output=${output#'{"value":'} output=${output%'}'}
  fi
  printf '%s\n' "$output"
}

while IFS=$'\t' read -r place yaml expected _; do
  case $place in '' | \#*) continue ;; esac
  rows=$((rows + 1))
  [ "$yaml" != "(nothing)" ] || yaml=
  # A text of one word has its quotes in the table alone: jsonpath prints it without.
  case $place in VALUE | DOCUMENT) ;; *) expected=${expected#\"} expected=${expected%\"} ;; esac
  if [ "$place" = DOCUMENT ]; then
    job=$(fill '' '')
    printf '%b' "${yaml//JOB/"$job"$'\n'}" >"$work/job.yaml"
  else
    value=$(printf '%b.' "$yaml") # the dot keeps line feeds at the end
    fill "$place" "${value%.}" >"$work/job.yaml"
  fi
  got=$(answer "$place")
  [ "$got" = "$expected" ] && continue
  failures=$((failures + 1))
  printf 'FAILED: %s %s\n  expected: %s\n  got: %s %s\n' "$place" "$yaml" "$expected" "$got" "$(head -c 300 "$work/error")"
done <"$data/yaml_values.txt"
echo "$rows values and documents, $failures not as the table says"
[ "$failures" -eq 0 ]
