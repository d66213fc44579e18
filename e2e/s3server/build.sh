#!/bin/bash
# Builds versitygw, an S3 server over a folder (../build-go-program.sh), and prints the path of the program. Cold: eight minutes on a core that
# others use, too; its gateway to Azure is part of it, and most of what is compiled.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/../build-go-program.sh" "$here" github.com/versity/versitygw/cmd/versitygw
