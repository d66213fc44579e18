#!/bin/bash
# Runs every libFuzzer program in a folder: fuzz.sh FOLDER SECONDS. What they find worth keeping grows in FOLDER/NAME.corpus, from the seeds of the
# program on; an input that breaks one stays in FOLDER as NAME.crash-..., and the exit status is 1.
set -euo pipefail
folder=$(cd "$1" && pwd)
seconds=$2
export FUSIONLLM_SOURCE_DIR
FUSIONLLM_SOURCE_DIR=$(cd "$(dirname "$0")/.." && pwd)
shopt -s nullglob
failed=()
for program in "$folder"/*_fuzz; do
  name=${program##*/}
  corpus=$folder/$name.corpus
  mkdir -p "$corpus"
  echo "== $name, $seconds s"
  # A first start, without a run, writes seeds and words.
  if ! FUSIONLLM_FUZZ_SEEDS=$corpus "$program" -runs=0 "$corpus" >"$folder/$name.log" 2>&1; then
    cat "$folder/$name.log"
    failed+=("$name")
    continue
  fi
  "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -dict="$corpus.dict" \
    -artifact_prefix="$folder/$name." -print_final_stats=1 "$corpus" 2>"$folder/$name.log" || failed+=("$name")
  grep -E '^stat::number_of_executed_units|^==.*ERROR|does not hold|SUMMARY' "$folder/$name.log" || true
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "fuzz: failed: ${failed[*]} (logs and inputs are in $folder)"
  exit 1
fi
