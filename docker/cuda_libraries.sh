#!/bin/bash
# cuda_libraries.sh HOME: the libraries that fusion-executor opens by itself on a machine with a GPU, one a line, of the toolkit in HOME
# (tools/install-cuda.sh). cuBLASLt, and of cuDNN what convolutions and attention are chosen and carried out by: its graph part opens all three
# kinds of engines when it starts, whichever is used. Attention's are compiled when a stage starts, by cuDNN itself: NVRTC stays out, as the
# parts that nothing here opens (adv, ext) do. The runtime is for cuDNN's frontend; our own is linked statically.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: cuda_libraries.sh HOME" >&2; exit 2; }
echo "$1/toolkit/lib/libcublasLt.so.13"
echo "$1/toolkit/lib/libcudart.so.13"
echo "$1/cudnn/lib/libcudnn.so.9"
for part in graph heuristic engines_precompiled engines_runtime_compiled engines_tensor_ir ops cnn; do
  echo "$1/cudnn/lib/libcudnn_$part.so.9"
done
