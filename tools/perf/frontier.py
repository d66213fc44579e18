#!/usr/bin/env python3
"""Measures the demo's job over its two emulated sites: planners and codecs one by one.

Prints Markdown tables: step time predicted and measured, bytes over the slow link, loss after the same number of steps.
Run from the repository's root after `make build`; nothing else should run on the machine.

  tools/perf/frontier.py [--steps 60] [--only NAME ...]
"""
import argparse
import json
import os
import platform
import subprocess
import tempfile

JOB = "examples/jobs/demo.yaml"
TOPOLOGY = "examples/topologies/demo.yaml"
ALL = ["spec.strategy.stages=6"]


def compression(policy, codec="auto", ratio=100):
    return [f"spec.compression.policy={policy}", f"spec.compression.codec={codec}", f"spec.compression.ratio={ratio}"]


NAIVE = ["spec.strategy.planner=equal-ops"] + ALL
FENCE = ["spec.strategy.planner=op-fence"] + ALL
RUNS = {
    "equal-ops, fp32 (naive)": NAIVE + compression("none"),
    "equal-ops + AdaTopK": NAIVE + compression("adatopk"),
    "op-fence, fp32": FENCE + compression("none"),
    "op-fence + AdaTopK": FENCE + compression("adatopk"),
    "op-fence unrestricted + AdaTopK": ["spec.strategy.planner=op-fence"] + compression("adatopk"),
    "uniform bf16": FENCE + compression("uniform", "bf16"),
    "uniform fp16": FENCE + compression("uniform", "fp16"),
    "uniform int8": FENCE + compression("uniform", "int8"),
    "uniform int4": FENCE + compression("uniform", "int4"),
    "uniform top-k 5": FENCE + compression("uniform", "topk", 5),
    "uniform top-k 10": FENCE + compression("uniform", "topk", 10),
    "uniform top-k 10, fp16 values": FENCE + compression("uniform", "topk", 10) + ["spec.compression.topkValues=fp16"],
    "uniform top-k 30": FENCE + compression("uniform", "topk", 30),
    "uniform top-k 100": FENCE + compression("uniform", "topk", 100),
}


def site(device):
    return device.rsplit("-", 1)[0]


def run(settings, steps):
    with tempfile.TemporaryDirectory() as folder:
        command = ["build/bin/fusionctl", "run", JOB, "--topology", TOPOLOGY, "--format", "json", "--output", os.path.join(folder, "run"),
                   "--set", f"spec.training.steps={steps}"]
        for setting in settings:
            command += ["--set", setting]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [json.loads(line) for line in output.splitlines()]
    summary = next(line for line in lines if line["type"] == "summary")
    losses = [line["loss"] for line in lines if line["type"] == "step"]
    crossing = sum(link["bytes"] for link in summary["links"] if site(link["src"]) != site(link["dst"]))
    codecs = sorted({link["codec"] for link in summary["links"] if site(link["src"]) != site(link["dst"])})
    return summary, sum(losses[-5:]) / 5, crossing / steps, codecs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--only", nargs="*", default=list(RUNS))
    arguments = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {arguments.steps} steps; loss: mean of the last 5 steps\n")
    print("| run | step predicted | measured | slow link a step | codecs across sites | loss | speed-up |")
    print("|---|---|---|---|---|---|---|")
    base = None
    for name in arguments.only:
        summary, loss, crossing, codecs = run(RUNS[name], arguments.steps)
        measured = summary["median_step_seconds"]
        base = base or measured
        print(f"| {name} | {summary['predicted_step_seconds']:.2f} s | {measured:.2f} s | {crossing / 1e3:.0f} kB | {', '.join(codecs)} | "
              f"{loss:.4f} | {base / measured:.2f}x |", flush=True)


if __name__ == "__main__":
    main()
