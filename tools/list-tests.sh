#!/bin/bash
# list-tests.sh [BUILD_FOLDER]: every case that ctest would run there, a line `NAME-OF-CTEST SUITE.CASE` each, sorted; of a build before and after a
# change of the build, `diff` tells what was lost. Starts each test program once for each name, to list, not to run. Default: build.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build}
ctest --test-dir "$folder" --show-only=json-v1 | python3 -c '
import json, os, subprocess, sys
for test in json.load(sys.stdin)["tests"]:
    command = test["command"]
    if "--check_test_files" in command:
        continue
    environment = dict(os.environ)
    for p in test.get("properties", []):
        if p["name"] == "ENVIRONMENT":
            environment.update(e.split("=", 1) for e in p["value"])
    listed = subprocess.run(command + ["--gtest_list_tests"], env=environment, capture_output=True, text=True)
    if listed.returncode != 0:
        sys.exit("%s: %s" % (test["name"], listed.stderr))
    suite = ""
    for line in listed.stdout.splitlines():
        word = line.split("#")[0].rstrip()
        if word.endswith(".") and not word.startswith(" "):
            suite = word
        elif word.startswith("  "):
            print(test["name"], suite + word.strip())
' | LC_ALL=C sort
