#!/usr/bin/env python3
"""What the planner makes of `microBatchSize: auto`, against every size tried: predicted, and with --run measured.

  tools/perf/micro_batches.py JOB.yaml [--topology T.yaml] [--set FIELD=VALUE ...] [--run STEPS [--repeat 5]] [--fusionctl build/bin/fusionctl]
  tools/perf/micro_batches.py --draw COUNT [--seed 1] [--run STEPS [--repeat 5]] [--fusionctl build/bin/fusionctl]

Each divisor of the global batch is planned (or run for STEPS steps) by itself, and `auto`. Prints a row for each size and how far auto is
from the best. --draw makes jobs of its own: small GPT-2s over two or three sites joined by 5 to 50 Mbit/s and 2 to 30 ms, emulated on this machine.
A run's figure is its median step; with --repeat each size is run so often, in rounds over all sizes, and the median of its runs counts. After two
rounds, sizes that are 15 % above the best are dropped. Weighed: measured, but to an equal loss (adr/0003), which is what auto minimises: sizes
differ in what hides their links, and that in what it costs in loss. Runs one after the other: on a busy machine the figures are worth little.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

TIME_PER_NAT = 2.9  # kTimePerNat of lib/scheduler/assignment.h

JOB = """apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {{name: drawn}}
spec:
  model: {{family: gpt2, preset: tiny, config: {{nLayer: {layers}, nHead: 2, nEmbd: 64, vocabSize: 256, tieWeights: {tied}}}, init: {{seed: 1}}}}
  data: {{kind: text, path: [text.txt]}}
  training: {{steps: 10, globalBatchSize: {batch}, sequenceLength: {length}}}
  strategy: {{stages: {stages}}}
  compression: {{policy: {policy}}}
"""


def draw(seed, folder):
    """Writes job.yaml, topology.yaml and text.txt into the folder."""
    rng = random.Random(seed)
    stages = rng.choice([2, 2, 3])
    (folder / "job.yaml").write_text(JOB.format(
        layers=rng.randint(3, 6), tied=rng.choice(["true", "false"]), batch=rng.choice([8, 12, 16]), length=rng.choice([32, 64]), stages=stages,
        policy=rng.choice(["none", "adatopk"])))
    sites = "abc"[:stages]
    lines = ["apiVersion: fusionllm.io/v1alpha1", "kind: Topology", "metadata: {name: drawn}", "spec:", "  sites:"]
    lines += [f"  - {{name: {site}, devices: [{{name: {site}-0, computeScale: {round(rng.uniform(0.2, 0.5), 2)}}}]}}" for site in sites]
    lines.append("  links:")
    for i, a in enumerate(sites):
        for b in sites[i + 1:]:
            lines.append(f"  - {{from: {a}, to: {b}, bandwidth: {rng.choice([5, 10, 20, 50])}Mbit, latency: {rng.choice([2, 10, 30])}ms, symmetric: true}}")
    (folder / "topology.yaml").write_text("\n".join(lines) + "\n")
    (folder / "text.txt").write_text("".join(chr(97 + rng.randrange(26)) for _ in range(20000)))


def call(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(arguments)}: exit {done.returncode}\n{done.stderr}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", nargs="?")
    parser.add_argument("--topology")
    parser.add_argument("--profiles")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--run", type=int, default=0, help="train so many steps with each size")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each size")
    parser.add_argument("--draw", type=int, default=0, help="so many jobs of its own")
    parser.add_argument("--seed", type=int, default=1, help="of the first")
    parser.add_argument("--fusionctl", default="build/bin/fusionctl")
    options = parser.parse_args()
    options.fusionctl = str(pathlib.Path(options.fusionctl).resolve())
    if not options.draw:
        compare(options)
        return
    above = {"predicted": [], "measured": [], "weighed": []}
    for seed in range(options.seed, options.seed + options.draw):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            draw(seed, folder)
            options.job, options.topology = str(folder / "job.yaml"), str(folder / "topology.yaml")
            print(f"job {seed}")
            for which, share in compare(options).items():
                above[which].append(share)
    for which, shares in above.items():
        if shares:
            print(f"{which}: within 3 % of the best {sum(share <= 0.03 for share in shares)} of {len(shares)}, the worst {100 * max(shares):+.1f} %")


def compare(options):
    """Prints a table; returns how far auto is above the best size, of 1, by what was looked at."""
    common = [f"--set={setting}" for setting in options.set]
    if options.topology:
        common += ["--topology", options.topology]
    if options.profiles:
        common += ["--profiles", options.profiles]

    def plan(size):
        return call([options.fusionctl, "plan", options.job, *common, f"--set=spec.training.microBatchSize={size}", "--format", "json"])[0]

    def run(size):
        """The median step of one run."""
        with tempfile.TemporaryDirectory() as folder:
            lines = call([options.fusionctl, "run", options.job, *common, f"--set=spec.training.microBatchSize={size}",
                          f"--set=spec.training.steps={options.run}", "--format", "json", "--output", folder])
        return [line for line in lines if line.get("type") == "summary"][-1]["median_step_seconds"]

    auto = plan("auto")
    if "refused" in auto:
        sys.exit("no micro-batch size has a plan")
    chosen, batch = auto["micro_batch_size"], auto["micro_batches"] * auto["micro_batch_size"]
    plans = {size: plan(size) for size in range(1, batch + 1) if batch % size == 0}
    predicted = {size: document["predicted_step_seconds"] for size, document in plans.items() if "refused" not in document}
    runs = {size: [] for size in predicted}
    for round_ in range(options.repeat if options.run else 0):
        worth = set(runs)
        if round_ >= 2:
            medians = {size: statistics.median(seconds) for size, seconds in runs.items()}
            worth = {size for size in runs if size == chosen or medians[size] < 1.15 * min(medians.values())}
        for size in sorted(worth):
            runs[size].append(run(size))
    measured = {size: statistics.median(seconds) for size, seconds in runs.items() if seconds}
    loss_cost = {size: document["loss_cost"] for size, document in plans.items() if size in predicted}
    weighed = {size: seconds * (1 + TIME_PER_NAT * loss_cost[size]) for size, seconds in measured.items()}
    print(f"{'size':>6} {'predicted':>12} {'measured':>12} {'loss cost':>10}  runs")
    for size in plans:
        text = lambda figures: f"{figures[size]:.4f} s" if size in figures else "-"
        cost = f"{loss_cost[size]:.3f}" if size in predicted else "-"
        row = f"{size:>6} {text(predicted):>12} {text(measured):>12} {cost:>10}  {' '.join(f'{seconds:.4f}' for seconds in runs.get(size, []))}"
        print(row + ("  chosen" if size == chosen else ""))
    above = {}
    for name, figures in (("predicted", predicted), ("measured", measured), ("weighed", weighed)):
        if figures:
            best = min(figures, key=figures.get)
            above[name] = figures[chosen] / figures[best] - 1
            print(f"{name}: best {best}, auto {100 * above[name]:+.1f} %", flush=True)
    return above


if __name__ == "__main__":
    main()
