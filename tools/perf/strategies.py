#!/usr/bin/env python3
"""Runs one job with every planner over seeded random topologies: what was predicted, what was measured, and whether the planner that
promised most kept its word.

Usage: tools/perf/strategies.py build/bin [--seeds 1 2 3 4 5 6] [--steps 10] [--strategies op-fence equal-ops ...]

Each topology has four to six unequal emulated devices in two or three sites, with links between the sites that differ by direction. The
devices of a topology calibrate and probe their links once, in its first run; all planners then plan from that. All runs of a topology
share job, micro-batch, schedule and codec policy. Needs about half a minute for each run and a machine with nothing else to do: the load
is printed, and a figure taken under load says nothing.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

JOB = "examples/jobs/demo.yaml"
STRATEGIES = ["op-fence", "equal-ops", "equal-compute", "dt-fm"]
# Together below the cores of the machine, so that no device waits for a core that another one has.
SHARE_OF_CORES = 0.7
AIM_ERROR = 0.10
AIM_REGRET = 0.05


def topology(seed, cores):
    """YAML of a topology drawn from the seed."""
    draw = random.Random(seed)
    sites = ["alba", "bern", "cork"][: draw.choice([2, 2, 3])]
    count = draw.randint(max(4, len(sites)), 6)
    weights = [draw.uniform(1, 3) for _ in range(count)]
    scales = [round(w / sum(weights) * cores * SHARE_OF_CORES, 3) for w in weights]
    homes = sites + [draw.choice(sites) for _ in range(count - len(sites))]
    lines = ["apiVersion: fusionllm.io/v1alpha1", "kind: Topology", f"metadata: {{name: seed-{seed}}}", "spec:", "  sites:"]
    for site in sites:
        lines += [f"  - name: {site}",
                  f"    internal: {{bandwidth: {draw.choice([200, 500, 1000])}Mbit, latency: {draw.choice([0.5, 1, 2])}ms}}", "    devices:"]
        own = [scale for scale, home in zip(scales, homes) if home == site]
        lines += [f"    - {{name: {site}-{i}, computeScale: {min(scale, 1)}, memory: 2Gi}}" for i, scale in enumerate(own)]
    lines.append("  links:")
    for a in sites:
        for b in sites:
            if a != b:
                bandwidth = round(10 ** draw.uniform(0.7, 1.8), 1)
                lines.append(f"  - {{from: {a}, to: {b}, bandwidth: {bandwidth}Mbit, latency: {draw.randint(5, 80)}ms}}")
    return "\n".join(lines) + "\n"


def run(binaries, folder, strategy, steps, profiles):
    output = folder / strategy
    command = [str(binaries / "fusionctl"), "--format", "json", "run", JOB, "--topology", str(folder / "topology.yaml"), "--output", str(output),
               "--fresh", "--set", f"spec.training.steps={steps}", "--set", f"spec.strategy.planner={strategy}", "--set",
               "spec.compression.policy=adatopk"]
    if profiles is not None:
        command += ["--profiles", str(profiles)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return next(line for line in lines if line["type"] == "summary"), output / "profiles.json"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3, 4, 5, 6])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--strategies", nargs="*", default=STRATEGIES)
    arguments = parser.parse_args()
    binaries = arguments.binaries.resolve()
    errors, regrets = [], []
    print("| topology | planner | stages | predicted | measured | measured / predicted | load |")
    print("|---|---|---|---|---|---|---|")
    for seed in arguments.seeds:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "topology.yaml").write_text(topology(seed, os.cpu_count()))
            profiles = None
            predicted, measured = {}, {}
            for strategy in arguments.strategies:
                summary, saved = run(binaries, folder, strategy, arguments.steps, profiles)
                profiles = profiles or saved
                predicted[strategy], measured[strategy] = summary["predicted_step_seconds"], summary["median_step_seconds"]
                ratio = measured[strategy] / predicted[strategy]
                errors.append(abs(ratio - 1))
                print(f"| {seed} | {strategy} | {len(summary['stages'])} | {predicted[strategy]:.3f} s | {measured[strategy]:.3f} s | {ratio:.3f} | "
                      f"{os.getloadavg()[0]:.1f} |", flush=True)
            promised = min(predicted, key=predicted.get)
            regrets.append(measured[promised] / min(measured.values()) - 1)
    print(f"\nerror of the prediction: median {statistics.median(errors):.1%}, largest {max(errors):.1%} (aim: median {AIM_ERROR:.0%})")
    print(f"measured step of the planner with the best prediction over the best measured: at most +{max(regrets):.1%} (aim: {AIM_REGRET:.0%})")
    return 0 if statistics.median(errors) <= AIM_ERROR and max(regrets) <= AIM_REGRET else 1


if __name__ == "__main__":
    sys.exit(main())
