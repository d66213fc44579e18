#!/bin/bash
# Builds Kueue's controller (../build-go-program.sh), and prints the path of the program and the folder of its module, a line each. Cold: twenty
# minutes on two cores.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
"$here/../build-go-program.sh" "$here" sigs.k8s.io/kueue/cmd/kueue
go=$(command -v go || echo /usr/local/go/bin/go)
(cd "$here" && GOFLAGS=-mod=readonly "$go" list -m -f '{{.Dir}}' sigs.k8s.io/kueue)
