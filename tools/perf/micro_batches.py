#!/usr/bin/env python3
"""What the planner makes of `microBatchSize: auto`, against every size tried: predicted, and with --run measured.

  tools/perf/micro_batches.py JOB.yaml [--topology T.yaml] [--set FIELD=VALUE ...] [--run STEPS] [--fusionctl build/bin/fusionctl]

Each divisor of the global batch is planned (or run for STEPS steps) by itself, and `auto`. Prints a row for each size and how far auto is
from the best. Runs one after the other: on a busy machine the figures are worth little.
"""
import argparse
import json
import subprocess
import sys
import tempfile


def call(arguments):
    done = subprocess.run(arguments, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(arguments)}: exit {done.returncode}\n{done.stderr}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job")
    parser.add_argument("--topology")
    parser.add_argument("--profiles")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--run", type=int, default=0, help="train so many steps with each size")
    parser.add_argument("--fusionctl", default="build/bin/fusionctl")
    options = parser.parse_args()
    common = [f"--set={setting}" for setting in options.set]
    if options.topology:
        common += ["--topology", options.topology]
    if options.profiles:
        common += ["--profiles", options.profiles]

    def plan(size):
        return call([options.fusionctl, "plan", options.job, *common, f"--set=spec.training.microBatchSize={size}", "--format", "json"])[0]

    def seconds(size):
        """Predicted and measured; none: refused."""
        document = plan(size)
        if "refused" in document:
            return None, None, None
        measured = None
        if options.run:
            with tempfile.TemporaryDirectory() as folder:
                lines = call([options.fusionctl, "run", options.job, *common, f"--set=spec.training.microBatchSize={size}",
                              f"--set=spec.training.steps={options.run}", "--format", "json", "--output", folder])
                measured = [line for line in lines if line.get("type") == "summary"][-1]["median_step_seconds"]
                document = [line for line in lines if line.get("type") == "plan"][-1]
        return document["predicted_step_seconds"], measured, document["micro_batch_size"]

    chosen = seconds("auto")
    if chosen[0] is None:
        sys.exit("no micro-batch size has a plan")
    first = plan("auto")
    batch = first["micro_batches"] * first["micro_batch_size"]
    rows = {size: seconds(size) for size in range(1, batch + 1) if batch % size == 0}
    best = {}
    for which, name in ((0, "predicted"), (1, "measured")):
        known = {size: row[which] for size, row in rows.items() if row[which] is not None}
        if known:
            best[name] = min(known, key=known.get)
    print(f"{'size':>6} {'predicted':>12} {'measured':>12}")
    text = lambda value: "-" if value is None else f"{value:.4f} s"
    for size, row in rows.items():
        print(f"{size:>6} {text(row[0]):>12} {text(row[1]):>12}{'  chosen' if size == chosen[2] else ''}")
    for which, name in ((0, "predicted"), (1, "measured")):
        if name in best:
            print(f"{name}: best {best[name]}, auto {100 * (rows[chosen[2]][which] / rows[best[name]][which] - 1):+.1f} %")


if __name__ == "__main__":
    main()
