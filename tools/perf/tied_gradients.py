#!/usr/bin/env python3
"""What compressing the gradients of a tied parameter costs and saves: docs/results/tied-gradients.md.

    python3 tools/perf/tied_gradients.py build/bin TEXT [--steps 300] [--seeds 1,2] [--codecs fp32,int8,int4] [--links "{...}"] [--fast]

Runs the tiny GPT-2 on two sites of one device each (computeScale 0.5, 2 Mbit/s, 30 ms), cut between its second and third block, with each
codec of spec.compression.tiedGradients, and prints the time of a step and losses. --fast: links that hide nothing, for losses alone.
`--codecs -` leaves the field out, for builds that do not have it.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

TOPOLOGY = """
apiVersion: fusionllm.io/v1alpha1
kind: Topology
metadata: {name: two-sites}
spec:
  sites:
  - {name: paris, devices: [{name: paris-0, %s memory: 1Gi}]}
  - {name: tokyo, devices: [{name: tokyo-0, %s memory: 1Gi}]}
  links: [{from: paris, to: tokyo, bandwidth: %s, latency: %s, symmetric: true}]
"""
JOB = """
apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: tied}
spec:
  model: {family: gpt2, preset: tiny, init: {seed: 1}}
  data: {kind: text, path: [%s], validation: {fraction: 0.05}}
  training: {steps: %d, globalBatchSize: 8, sequenceLength: 64, evaluation: {everySteps: %d, batches: 20}}
  strategy: {stages: 2, pins: [{ops: "block.1.*", device: paris-0}, {ops: "block.2.*", device: tokyo-0}]}
"""
LAST = 50  # steps whose losses are averaged


def run(bin_folder, folder, seed, links, codec):
    compression = links.strip()[1:-1] + ("" if codec == "-" else f", tiedGradients: {codec}")
    command = [os.path.join(bin_folder, "fusionctl"), "run", "job.yaml", "--topology", "topology.yaml", "--format", "json", "--output",
               f"out-{seed}-{codec}", "--set", f"spec.model.init.seed={seed}", "--set", "spec.compression={" + compression + "}"]
    lines = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    parsed = [json.loads(line) for line in lines.splitlines()]
    steps = [line for line in parsed if line["type"] == "step"]
    plan = next(line for line in parsed if line["type"] == "plan")
    summary = parsed[-1]
    return {
        "codec": plan["tied"][0].get("codec", "fp32"),
        "link": plan["links"][0]["codec"],
        "predicted": summary["predicted_step_seconds"],
        "measured": summary["median_step_seconds"],
        "loss": statistics.mean(step["loss"] for step in steps[-LAST:]),
        "validation": [line["loss"] for line in parsed if line["type"] == "eval"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin")
    parser.add_argument("text")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--codecs", default="fp32,int8,int4")
    parser.add_argument("--links", default="{policy: uniform, codec: topk, ratio: 16}", help="spec.compression but for tiedGradients")
    parser.add_argument("--fast", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scale, rate, latency = ("", "1Gbit", "1ms") if arguments.fast else ("computeScale: 0.5,", "2Mbit", "30ms")
        with open(os.path.join(folder, "topology.yaml"), "w") as out:
            out.write(TOPOLOGY % (scale, scale, rate, latency))
        with open(os.path.join(folder, "job.yaml"), "w") as out:
            out.write(JOB % (os.path.abspath(arguments.text), arguments.steps, max(1, arguments.steps // 3)))
        print("| seed | tied gradients | links | predicted s | median s | training loss, last 50 | validation loss |")
        print("|---|---|---|---|---|---|---|")
        for seed in arguments.seeds.split(","):
            for codec in arguments.codecs.split(","):
                got = run(arguments.bin, folder, int(seed), arguments.links, codec)
                validation = ", ".join(f"{loss:.4f}" for loss in got["validation"])
                print(f"| {seed} | {got['codec']} | {got['link']} | {got['predicted']:.3f} | {got['measured']:.3f} | {got['loss']:.4f} | {validation} |",
                      flush=True)


if __name__ == "__main__":
    main()
