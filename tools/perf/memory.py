#!/usr/bin/env python3
"""Compares the memory that plans predict for each stage with the measured high-water mark, on stages of some 500 MB and more.

Usage: python3 tools/perf/memory.py build/bin   (about 4 GB of memory; other work on the machine does not matter)

Prints a Markdown table. The peak is the resident memory of the executor's process less what it held when it joined.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

GPT2 = """
  model: {family: gpt2, config: {nLayer: 6, nHead: 8, nEmbd: %d, vocabSize: %d, blockSize: %d, tieWeights: true}}
  data: {kind: text, path: text.bin, encoding: bytes}
  training: {steps: 3, globalBatchSize: %d, microBatchSize: %d, sequenceLength: %d, optimizer: {name: adamw, learningRate: 3.0e-4}}
"""
RESNET = """
  model: {family: resnet, preset: 18, config: {stem: cifar, numClasses: 10}}
  data: {kind: shapes, shapes: {samples: 256, imageSize: 32, numClasses: 10, seed: 1}}
  training: {steps: 3, globalBatchSize: 64, microBatchSize: 64, optimizer: {name: sgd, learningRate: 0.01, momentum: 0.9}}
"""
TOP_K = "  compression: {policy: uniform, codec: topk, ratio: 10}\n"
# Name, specification, stages.
JOBS = [
    ("GPT-2, 6 layers, width 1024, 128 tokens, micro-batch 1 of 4, AdamW", GPT2 % (1024, 256, 128, 4, 1, 128), 1),
    ("the same in two stages", GPT2 % (1024, 256, 128, 4, 1, 128), 2),
    ("GPT-2, 6 layers, width 384, vocabulary 8192, 256 tokens, micro-batch 4 of 32, AdamW, top-k 10", GPT2 % (384, 8192, 256, 32, 4, 256) + TOP_K, 2),
    ("ResNet-18, 32x32, micro-batch 64, SGD with momentum", RESNET, 1),
]
TOPOLOGY = """apiVersion: fusionllm.io/v1alpha1
kind: Topology
metadata: {name: pair}
spec:
  sites:
  - name: here
    devices: [{name: a, threads: 1, memory: 8Gi}, {name: b, threads: 1, memory: 8Gi}]
    internal: {bandwidth: 100Gbit, latency: 10us}
"""


def run(binaries, folder, specification, stages):
    (folder / "job.yaml").write_text("apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: memory}\nspec:"
                                     f"{specification}  strategy: {{stages: {stages}}}\n")
    command = [str(binaries / "fusionctl"), "--format", "json", "run", str(folder / "job.yaml"), "--output", str(folder / "run"), "--fresh",
               "--topology", str(folder / "pair.yaml")]
    output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if output.returncode != 0:
        sys.exit(output.stderr)
    return next(line for line in map(json.loads, output.stdout.splitlines()) if line["type"] == "summary")["stages"]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    binaries = pathlib.Path(sys.argv[1]).resolve()
    print("| job | stage | predicted | peak | predicted / peak |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.bin").write_bytes(bytes(range(256)) * 4096)
        (folder / "pair.yaml").write_text(TOPOLOGY)
        for job, specification, stages in JOBS:
            for stage in run(binaries, folder, specification, stages):
                predicted, peak = stage["predicted_memory_bytes"], stage["peak_memory_bytes"]
                print(f"| {job} | {stage['index']} of {stages} | {predicted / 1e6:.1f} MB | {peak / 1e6:.1f} MB | {predicted / peak:.2f} |", flush=True)


if __name__ == "__main__":
    main()
