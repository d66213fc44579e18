#!/bin/bash
# Builds kube-router (../build-go-program.sh), whose firewall enforces NetworkPolicies on a node, and prints the path of the program. Cold: five
# minutes on a core that others use, too.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/../build-go-program.sh" "$here" github.com/cloudnativelabs/kube-router/cmd/kube-router
