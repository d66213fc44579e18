#!/usr/bin/env python3
"""Measures what a pipeline of two stages makes of two cores, against two independent runs of one stage side by side.

Usage: python3 tools/perf/two_stage.py build/bin [--turns 3] [--steps 8] [--layers 6] [--embd 384]

Two stages over an unshaped loopback link with m micro-batches can reach m / (m + 1) of the combined rate of the two runs: the pipeline
fills and drains once a step. The aim is 0.9 of that. Both sides process the same samples per step, 16 micro-batches of one sample. The
machine must have two free cores; the load is printed, and a figure taken under load says nothing.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

MICRO_BATCHES = 16
WARM_STEPS = 2
AIM = 0.9

JOB = """apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: two-stage}
spec:
  model: {family: gpt2, config: {nLayer: %d, nHead: 6, nEmbd: %d, vocabSize: 256, blockSize: 256, tieWeights: false}}
  data: {kind: text, path: text.bin, encoding: bytes}
  training: {steps: %d, globalBatchSize: 16, microBatchSize: 1, sequenceLength: 256, optimizer: {name: adamw, learningRate: 3.0e-4}}
  executors: {threads: 1}
"""

TOPOLOGY = """apiVersion: fusionllm.io/v1alpha1
kind: Topology
metadata: {name: loopback}
spec:
  sites:
  - name: here
    internal: {bandwidth: 100Gbit, latency: 0us}
    devices: [{name: here-0, computeScale: 1, threads: 1}, {name: here-1, computeScale: 1, threads: 1}]
"""


def start(binaries, folder, number, *arguments):
    command = [str(binaries / "fusionctl"), "--format", "json", "run", str(folder / "job.yaml"), "--output", str(folder / f"run-{number}"),
               "--fresh", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def step_seconds(process):
    """Median of the counted steps of a run, once it has ended."""
    lines = [json.loads(line) for line in process.communicate()[0].splitlines()]
    if process.returncode != 0:
        sys.exit(f"fusionctl run failed: {lines[-1] if lines else ''}")
    return statistics.median(line["step_seconds"] for line in lines if line["type"] == "step" and line["step"] > WARM_STEPS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--embd", type=int, default=384)
    arguments = parser.parse_args()
    binaries = arguments.binaries.resolve()
    shares = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.bin").write_bytes(os.urandom(1 << 18))
        (folder / "job.yaml").write_text(JOB % (arguments.layers, arguments.embd, arguments.steps))
        (folder / "loopback.yaml").write_text(TOPOLOGY)
        for turn in range(1, arguments.turns + 1):
            alone = [start(binaries, folder, f"alone-{turn}-{i}") for i in range(2)]
            combined = sum(1 / step_seconds(process) for process in alone)
            pipeline = 1 / step_seconds(
                start(binaries, folder, f"pipeline-{turn}", "--topology", str(folder / "loopback.yaml"), "--set", "spec.strategy.stages=2"))
            shares.append(pipeline / combined)
            print(f"turn {turn}: two runs {combined:.3f} steps/s together, two stages {pipeline:.3f} steps/s, share {shares[-1]:.3f}, "
                  f"load {os.getloadavg()[0]:.1f}", flush=True)
    bound = MICRO_BATCHES / (MICRO_BATCHES + 1)
    share = statistics.median(shares)
    print(f"median share {share:.3f}; the bubble allows {bound:.3f}, the aim is {AIM * bound:.3f}: {'reached' if share >= AIM * bound else 'missed'}")


if __name__ == "__main__":
    main()
