#!/bin/bash
# check.sh: whether Grafana's own types take the dashboards of the chart. Needs Go, no Grafana and no cluster.
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$(e2e/build-go-program.sh e2e/dashboards fusionllm.io/e2e/dashboards)
"$program" helm/fusionllm/dashboards/*.json
# It would say nothing either if it did not look: a field that no dashboard has must be told.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
sed '0,/"uid":/s//"notAField": 1, &/' helm/fusionllm/dashboards/job.json >"$scratch/unknown_field.json"
sed '0,/"type": "stat"/s//"type": "stat", "notAField": 1/' helm/fusionllm/dashboards/job.json >"$scratch/unknown_field_of_panel.json"
sed '0,/"textMode": "value"/s//"textMode": 7/' helm/fusionllm/dashboards/job.json >"$scratch/wrong_type_of_option.json"
for wrong in "$scratch"/*.json; do
  if "$program" "$wrong" 2>/dev/null; then
    echo "e2e/dashboards/check.sh: $(basename "$wrong") was accepted" >&2
    exit 1
  fi
done
echo "Grafana's types take $(ls helm/fusionllm/dashboards/*.json | wc -l) dashboards"
