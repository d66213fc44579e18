#!/bin/bash
# all.sh BESIDE SCENARIO... LAST: scenarios by their names, one after the other, each with the seconds that it took. BESIDE, which waits for
# most of its time, runs beside the first of them; LAST looks at what all of them have kept. Goes on after one that fails; ends with their names.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
[ $# -ge 3 ] || { echo "usage: all.sh BESIDE SCENARIO... LAST" >&2; exit 2; }
beside=$1 last=${*: -1} failed=()
log=$(mktemp)
waiting=
trap '[ -z "$waiting" ] || { kill "$waiting"; wait "$waiting"; }; rm -f "$log"' EXIT  # it takes its clusters down

run() {
  local begin=$SECONDS status=passed
  "./$1.sh" || status=FAILED
  echo "== $1 $status after $((SECONDS - begin)) s"
  [ $status = passed ]
}

"./$beside.sh" >"$log" 2>&1 &
waiting=$!
for scenario in "${@:2:$#-2}"; do
  echo "== $scenario"
  run "$scenario" || failed+=("$scenario")
done
echo "== $beside, which ran beside the others"
wait $waiting || failed+=("$beside")
waiting=
cat "$log"
echo "== $last"
run "$last" || failed+=("$last")
[ ${#failed[@]} -eq 0 ] || { echo "failed: ${failed[*]}" >&2; exit 1; }
echo "all $# scenarios passed in $SECONDS s"
