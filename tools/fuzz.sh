#!/bin/bash
# Runs libFuzzer programs of a folder: fuzz.sh FOLDER SECONDS [JOBS [NAME_fuzz...]]; by default all of them, one at a time. What they find worth
# keeping grows in FOLDER/NAME.corpus, from the seeds of the program on; an input that breaks one stays in FOLDER as NAME.crash-..., and the exit
# status is 1.
set -euo pipefail
folder=$(cd "$1" && pwd)
seconds=$2
jobs=${3:-1}
export FUSIONLLM_SOURCE_DIR
FUSIONLLM_SOURCE_DIR=$(cd "$(dirname "$0")/.." && pwd)

# One program; its summary goes to stdout at once, so that those of several do not mix.
fuzz() {
  local name=$1 status=0
  local program=$folder/$name corpus=$folder/$name.corpus log=$folder/$name.log
  mkdir -p "$corpus"
  # A first start, without a run, writes seeds and words.
  FUSIONLLM_FUZZ_SEEDS=$corpus "$program" -runs=0 "$corpus" >"$log" 2>&1 || status=1
  if [ $status = 0 ]; then
    "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -dict="$corpus.dict" \
      -artifact_prefix="$folder/$name." -print_final_stats=1 "$corpus" >>"$log" 2>&1 || status=1
  fi
  printf '%s\n' "== $name, $seconds s$([ $status = 0 ] || echo ': FAILED')
$(grep -E '^stat::number_of_executed_units|^==.*ERROR|does not hold|SUMMARY' "$log" || true)"
  return $status
}
export -f fuzz
export folder seconds

names=("${@:4}")
if [ ${#names[@]} -eq 0 ]; then
  shopt -s nullglob
  for program in "$folder"/*_fuzz; do names+=("${program##*/}"); done
fi
if ! printf '%s\n' "${names[@]}" | xargs -r -P "$jobs" -I{} bash -c 'set -euo pipefail; fuzz {}'; then
  echo "fuzz: some failed (logs and inputs are in $folder)"
  exit 1
fi
