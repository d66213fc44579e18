#!/usr/bin/env python3
"""Whether plans with codec auto cost no more loss than they say: seeded topologies of two to four sites, three families of models.

  tools/perf/loss_targets.py build/bin [--count 40] [--first 1] [--families gpt resnet mlp] [--steps 300] [--results FILE] [--set FIELD=VALUE ..]

Each topology is emulated on this machine: a device or two at each site, links of 3 to 50 Mbit/s between the sites. The job asks for a stage at
every site at least, so that slow links are crossed whatever they cost, policy adatopk and codec auto. What a run's validation loss after the
last step rises over that of the uncompressed run of the same family and seed (one run: stages do not change its bits) is compared with the
`loss_cost` of its plan. Aims: within 0.02 nats above what the plan states on 38 of 40 topologies, and no run above 0.1.
Some minutes a topology; losses do not depend on what else the machine does. With --results runs that stand in the file are not repeated.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import loss_cost

FAMILIES = ["gpt", "resnet", "mlp"]
AIM_ABOVE_PLAN = 0.02
AIM_WORST = 0.1
AIM_SHARE = 38 / 40
SHARE_OF_CORES = 1.4
SEED = 3  # of models and data: not one that the prior was measured with


def topology(seed):
    """YAML of a topology drawn from the seed, and how many stages the job asks for."""
    draw = random.Random(seed)
    sites = ["alba", "bern", "cork", "dax"][: draw.choice([2, 2, 3, 4])]
    homes = sites + [draw.choice(sites) for _ in range(draw.choice([0, 0, 1]))]
    weights = [draw.uniform(1, 2) for _ in homes]
    lines = ["apiVersion: fusionllm.io/v1alpha1", "kind: Topology", f"metadata: {{name: seed-{seed}}}", "spec:", "  sites:"]
    for site in sites:
        lines += [f"  - name: {site}", "    internal: {bandwidth: 1Gbit, latency: 0.2ms}", "    devices:"]
        for i, home in enumerate(homes):
            if home == site:
                scale = min(1, round(weights[i] / sum(weights) * SHARE_OF_CORES, 3))
                lines.append(f"    - {{name: {site}-{i}, computeScale: {scale}, memory: 2Gi}}")
    lines.append("  links:")
    for a in sites:
        for b in sites:
            if a != b:
                bandwidth = round(10 ** draw.uniform(0.5, 1.7), 1)
                lines.append(f"  - {{from: {a}, to: {b}, bandwidth: {bandwidth}Mbit, latency: {draw.randint(1, 5)}ms}}")
    return "\n".join(lines) + "\n", len(sites)


def run(binaries, folder, family, steps, arguments, settings):
    path = folder / "job.yaml"
    path.write_text(loss_cost.job(family, SEED, steps, folder / "text.txt"))
    command = ["nice", str(binaries / "fusionctl"), "--format", "json", "run", str(path), "--fresh", "--output", str(folder / "out")] + arguments
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    plans = [line for line in lines if line["type"] == "plan"]
    losses = [line["loss"] for line in lines if line["type"] == "eval" and line["step"] == steps]
    events = sorted({line["reason"] for line in lines if line["type"] == "event"} & {"CompressionBackoff", "Replanned"})
    codecs = [link["codec"] for link in plans[0]["links"] if link["direction"] == "forward"] + [f"tied {t['codec']}" for t in plans[0]["tied"]]
    return {"loss": losses[-1], "expected": plans[0]["loss_cost"],
            "codecs": codecs, "step_seconds": plans[0]["predicted_step_seconds"], "events": events}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--families", nargs="*", default=FAMILIES)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--set", nargs="*", default=[], dest="settings", help="fields of the job, as spec.compression.maxLossIncrease=1")
    arguments = parser.parse_args()
    binaries = arguments.binaries.resolve()
    known = {}
    if arguments.results and arguments.results.exists():
        known = {tuple(json.loads(line)["key"]): json.loads(line) for line in arguments.results.read_text().splitlines()}

    def remembered(key, make):
        if key not in known:
            known[key] = make()
            if arguments.results:
                with arguments.results.open("a") as out:
                    out.write(json.dumps({"key": key, **known[key]}) + "\n")
        return known[key]

    rises, within = [], 0
    print("| topology | sites | family | codecs | planned step | plan states | observed | |")
    print("|---|--:|---|---|--:|--:|--:|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text(loss_cost.words(7))
        for seed in range(arguments.first, arguments.first + arguments.count):
            text, sites = topology(seed)
            (folder / "topology.yaml").write_text(text)
            for family in arguments.families:
                plain = remembered((0, family, arguments.steps), lambda: run(
                    binaries, folder, family, arguments.steps, ["--device", "cpu"], ["spec.executors.threads=1"]))
                here = remembered((seed, family, arguments.steps), lambda: run(
                    binaries, folder, family, arguments.steps, ["--topology", str(folder / "topology.yaml")],
                    ["spec.compression.policy=adatopk", f"spec.strategy.stages={sites}"] + arguments.settings))
                rise = here["loss"] - plain["loss"]
                rises.append(rise)
                good = rise <= here["expected"] + AIM_ABOVE_PLAN
                within += good
                note = ", ".join(here["events"] + ([] if good else ["above the plan"]))
                print(f"| {seed} | {sites} | {family} | {', '.join(here['codecs'])} | {here['step_seconds']:.3f} s | {here['expected']:.3f} | {rise:+.3f} | "
                      f"{note} |", flush=True)
    print(f"\nwithin {AIM_ABOVE_PLAN} of what the plan states: {within} of {len(rises)} (aim {AIM_SHARE:.0%}); the worst {max(rises):+.3f} "
          f"(aim {AIM_WORST:+.1f})")
    return 0 if within >= AIM_SHARE * len(rises) and max(rises) <= AIM_WORST else 1


if __name__ == "__main__":
    sys.exit(main())
