#!/bin/bash
# cuda_libraries.sh HOME: the libraries that fusion-executor opens by itself on a machine with a GPU, one a line, of the toolkit in HOME
# (tools/install-cuda.sh). cuBLASLt, and of cuDNN what convolutions are chosen and carried out by: its graph part opens all three kinds of
# engines when it starts, whichever is used. The parts that nothing here opens (adv, ext) stay out, and so does NVRTC, the compiler for
# kernels that are made at run time: none of those is used.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: cuda_libraries.sh HOME" >&2; exit 2; }
echo "$1/toolkit/lib/libcublasLt.so.13"
echo "$1/cudnn/lib/libcudnn.so.9"
for part in graph heuristic engines_precompiled engines_runtime_compiled engines_tensor_ir ops cnn; do
  echo "$1/cudnn/lib/libcudnn_$part.so.9"
done
