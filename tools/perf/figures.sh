#!/bin/bash
# The figures of docs/results/, one after the other: figures.sh BIN_FOLDER. Half an hour on a machine with nothing else to do.
set -euo pipefail
bin=$1
here=$(dirname "$0")
python=${PYTHON:-python3}

echo "## the demo's job: planners and codecs"
"$python" "$here/frontier.py" --steps 60
echo "## planners over seeded topologies: predicted against measured"
"$python" "$here/strategies.py" "$bin"
echo "## two stages against two runs side by side"
"$python" "$here/two_stage.py" "$bin"
echo "## the planner: DT-FM's objective"
"$bin/../benchmarks/dt_fm_report"
echo "## the planner: OP-Fence against exact on small jobs"
"$bin/../benchmarks/optimality_report"
echo "## the planner: steps of GPT-2 XL"
"$bin/../benchmarks/iteration_report"
echo "## memory of stages"
"$python" "$here/memory.py" "$bin"
if "$python" -c 'import torch, torchvision, transformers' 2>/dev/null; then
  for model in gpt2 resnet50; do
    echo "## $model against PyTorch"
    "$python" "$here/compare_pytorch.py" "$bin" --model "$model"
  done
else
  echo "## PyTorch: left out, since $python has no torch, torchvision and transformers (PYTHON=... names another)"
fi
