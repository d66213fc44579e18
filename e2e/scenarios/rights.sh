#!/bin/bash
# rights.sh: after the scenarios, does an operator use every right that the chart gives it, on its hub and in members? By what the scenarios
# have kept of the API servers' audit logs; that it uses no other they have looked at themselves.
set -euo pipefail
# shellcheck source=scenario_lib.sh
. "$(dirname "$0")/scenario_lib.sh"
only_on_own "it takes the audit logs of clusters of one's own"
shopt -s nullglob
for role in hub member; do
  kept=("$rights_folder/used.$role."*)
  [ ${#kept[@]} -gt 0 ] && [ -s "$rights_folder/granted.$role" ] || die "no scenario has kept its rights in $rights_folder: make e2e"
  unused=$(sort -u "${kept[@]}" | awk 'NR == FNR { used[$0]; next } !($0 in used)' - "$rights_folder/granted.$role")
  [ -z "$unused" ] || fail "the chart grants a $role what none of ${#kept[@]} scenarios has used: $unused"
  echo "$role: $(wc -l <"$rights_folder/granted.$role") rights, each used in ${#kept[@]} scenarios, and no other"
done
