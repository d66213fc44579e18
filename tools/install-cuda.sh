#!/bin/bash
# Makes a CUDA toolkit from NVIDIA's Python wheels, for machines without one: compiler, headers, cuBLAS, cuDNN and NCCL, some 3 GB. No driver
# and no GPU are needed to compile. Where a toolkit is installed already (nvcc in PATH, or /usr/local/cuda), set CUDACXX or leave it to CMake.
# Prints the folder, which configure.sh passes to CMake. Does nothing, quickly, when it is there.
# FUSIONLLM_CUDA_HOME: another folder than ~/.cache/fusionllm/cuda-VERSION.
set -euo pipefail
version=13.0
home=${FUSIONLLM_CUDA_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/fusionllm/cuda-$version}
packages=(
  "nvidia-cuda-nvcc==$version.*" "nvidia-cuda-crt==$version.*" "nvidia-nvvm==$version.*" "nvidia-cuda-runtime==$version.*"
  "nvidia-cuda-cccl==$version.*" "nvidia-cublas==$version.*" "nvidia-nvjitlink==$version.*" "nvidia-cuda-nvrtc==$version.*" "nvidia-nvml-dev==$version.*"
  "nvidia-cudnn-cu13==9.*" "nvidia-nccl-cu13==2.*"
)
# Headers alone are of use here, and not the compilers that its Python side asks for.
headers=("nvidia-cudnn-frontend==1.32.*")

# Written last, so that a toolkit that is half there is made anew. Other packages than before: likewise.
stamp=$home/complete
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "${packages[*]} ${headers[*]}" ]; then
  echo "$home"
  exit 0
fi
python3 -c 'import venv, ensurepip' 2>/dev/null || {
  echo "$0: python3 with venv is needed (Debian: python3-venv)" >&2
  exit 1
}
echo "Making a CUDA $version toolkit in $home (some 3 GB) ..." >&2
rm -rf "$home"
mkdir -p "$home"
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2
"$home/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps "${headers[@]}" >&2
site=$(echo "$home"/venv/lib/python3*/site-packages)
ln -s "$site/nvidia/cu13" "$home/toolkit"  # bin/nvcc, include, lib
ln -s lib "$site/nvidia/cu13/lib64"  # where nvcc looks
ln -s "$site/nvidia/cudnn" "$home/cudnn"
ln -s "$site/include" "$home/cudnn-frontend"
ln -s "$site/nvidia/nccl" "$home/nccl"
"$home/toolkit/bin/nvcc" --version >/dev/null
echo "${packages[*]} ${headers[*]}" >"$stamp"
echo "$home"
