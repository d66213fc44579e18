# A real S3 server over a folder, for the scripts that source this: serve_s3 starts it, end_s3 ends it. It checks every signature. Sets no
# option of the shell; needs Go the first time (build.sh).
s3_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../listening_lib.sh
. "$s3_folder/../listening_lib.sh"
s3_key=smoke s3_secret='of/the+store=' s3_region=eu-test-1  # what it takes; a secret that no part of an URL may hold as it is
s3_process=

# serve_s3 FOLDER ADDRESS [COMMAND...]: buckets are FOLDER/buckets/NAME; on a free port of ADDRESS, started by COMMAND, which must become it.
# Sets s3_process and s3_url.
serve_s3() {
  local folder=$1 address=$2 program port
  program=$("$s3_folder/build.sh")
  mkdir -p "$folder/buckets" "$folder/metadata"
  ROOT_ACCESS_KEY=$s3_key ROOT_SECRET_KEY=$s3_secret "${@:3}" "$program" --quiet --port "$address:0" --region $s3_region \
    posix --sidecar "$folder/metadata" "$folder/buckets" >"$folder/server.log" 2>&1 &
  s3_process=$!
  port=$(await_port $s3_process) || {
    echo "$0: the S3 server does not listen: $(tail -n 5 "$folder/server.log")" >&2
    return 1
  }
  s3_url=http://$address:$port
}

end_s3() {
  if [ -n "$s3_process" ]; then kill "$s3_process" 2>/dev/null && wait "$s3_process" 2>/dev/null || true; fi
  s3_process=
}
