#!/bin/bash
# object_store.sh: `fusionctl run` with its data and checkpoints in a real S3 server, which checks every signature: a run is killed, gone on with
# from another folder, as another machine would, and its losses are, bit by bit, those of a run that never heard of a store. Wrong
# credentials are refused. Needs no clusters, only build/bin and Go (../s3server/build.sh).
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=$PWD/build/bin
fail() {
  echo "$0: $*" >&2
  exit 1
}
[ -x "$bin/fusionctl" ] || fail "$bin/fusionctl is not there: make build"
# shellcheck source=../s3server/server_lib.sh
. e2e/s3server/server_lib.sh

folder=$(mktemp -d)
end() {
  local status=$?
  end_s3
  if [ $status -ne 0 ]; then tail -n 20 "$folder"/*.log "$folder"/store/*.log >&2 || true; fi
  rm -rf "$folder"
}
trap end EXIT
serve_s3 "$folder/store" 127.0.0.1
export AWS_ACCESS_KEY_ID=$s3_key AWS_SECRET_ACCESS_KEY=$s3_secret AWS_REGION=$s3_region AWS_ENDPOINT_URL_S3=$s3_url

models=$folder/store/buckets/models
mkdir -p "$models/corpus"
cp README.md "$models/corpus/"
settings=(--set spec.data.path=s3://models/corpus/ --set spec.strategy.stages=1 --format json)
here=(--set "spec.data.path=$PWD/README.md" --set spec.strategy.stages=1 --format json)
kept=(--set 'spec.checkpoint={path: "s3://models/runs/tiny", everySteps: 10, keep: 2}')
run() { "$bin/fusionctl" run examples/jobs/gpt2-tiny.yaml --output "$folder/$1" "${@:2}" >"$folder/$1.jsonl" 2>>"$folder/runs.log"; }
losses() { sed -n 's/.*"loss_bits":"\([^"]*\)".*"step":\([0-9]*\),.*"type":"step".*/\2 \1/p' "$@" | sort -k1,1n -k2 | uniq; }

run alone "${here[@]}" --set spec.training.steps=40 || fail "the run without a store ended with $?"

# Killed as soon as its first checkpoint is in the store; whatever it was doing there then.
run first "${settings[@]}" "${kept[@]}" --set spec.training.steps=40 &
first=$!
for _ in $(seq 1200); do
  grep -q '"CheckpointCopied"' "$folder/first.jsonl" 2>/dev/null && break
  kill -0 $first 2>/dev/null || break
  sleep 0.05
done
kill -KILL "$(pgrep -P $first -x fusionctl || echo $first)" 2>/dev/null || true
wait $first 2>/dev/null || true
[ -f "$models/runs/tiny/latest" ] || fail "no checkpoint has got into the store"

run second "${settings[@]}" "${kept[@]}" --set spec.training.steps=40 || fail "the run that goes on ended with $?"
grep -q '"CheckpointFetched"' "$folder/second.jsonl" || fail "the second run did not begin with the store's checkpoint"
[ "$(cat "$models/runs/tiny/latest")" = step-000040 ] || fail "latest is $(cat "$models/runs/tiny/latest")"
"$bin/fusionctl" checkpoint verify "$models/runs/tiny/step-000040" || fail "what is in the store is not whole"
losses "$folder/alone.jsonl" >"$folder/expected"
losses "$folder/first.jsonl" "$folder/second.jsonl" >"$folder/found"
[ "$(wc -l <"$folder/expected")" -eq 40 ] || fail "the undisturbed run has $(wc -l <"$folder/expected") losses"
diff "$folder/expected" "$folder/found" >&2 || fail "the losses are others"

# Parameters alone, from the latest of a prefix.
run init "${settings[@]}" --set spec.training.steps=1 --set spec.model.init.from=s3://models/runs/tiny || fail "init.from ended with $?"

AWS_SECRET_ACCESS_KEY=wrong run refused "${settings[@]}" --set spec.training.steps=1 && fail "a wrong key was accepted"
grep -q SignatureDoesNotMatch "$folder/runs.log" || fail "the refusal does not tell the server's word"
echo "object store: passed in $SECONDS s"
