#!/usr/bin/env python3
"""Whether plans with codec auto cost no more loss than they say: seeded topologies of two to four sites, three families of models.

  tools/perf/loss_targets.py build/bin --results FILE [--count 40] [--first 1] [--families gpt resnet mlp] [--steps 300] [--jobs 2]
                             [--set FIELD=VALUE ..]

Each topology is emulated on this machine: a device or two at each site, links of 3 to 50 Mbit/s between the sites. The job asks for a stage at
every site at least, so that slow links are crossed whatever they cost, policy adatopk and codec auto. What a run's validation loss after the
last step rises over that of the uncompressed run of the same family and seed (one run: stages do not change its bits) is compared with the
`loss_cost` of its plan. Aims: within 0.02 nats above what the plan states on 38 of 40 topologies, whatever the family, and no run above 0.1.
Some minutes a topology; losses do not depend on what else the machine does. Runs that stand in the file are not repeated.

A rise of 0.02 means something only where a run repeats itself as closely. The models are chosen for that (docs/results/loss-cost.md): with
learning rates that differ by a thousandth the uncompressed losses differ by less than 0.005.
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import sys
import tempfile
import time

import loss_cost

FAMILIES = ["gpt", "resnet", "mlp"]
AIM_ABOVE_PLAN = 0.02
AIM_WORST = 0.1
AIM_SHARE = 38 / 40
SHARE_OF_CORES = 1.4
SITES = ["alba", "bern", "cork", "dax"]
PLAIN = 0  # the place of a topology's seed in the key of an uncompressed run
SEED = 3  # of models and data: not one that the prior was measured with


def topology(seed):
    """YAML of a topology drawn from the seed, and how many stages the job asks for."""
    draw = random.Random(seed)
    sites = SITES[: draw.choice([2, 2, 3, 4])]
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


def prepare(binaries, folder, families):
    """loss_cost.prepare(), its calibrations for every device that a topology may have: plans depend on the seed and on this machine's speed
    when it was measured, not on what else it does while the runs are on."""
    loss_cost.prepare(binaries, folder, families)
    for family in families:
        document = json.loads((folder / f"{family}.json").read_text())
        names = [f"{site}-{i}" for site in SITES for i in range(len(SITES) + 1)]
        document["devices"] = [dict(document["devices"][0], name=name) for name in names + ["local-0"]]
        document["links"] = []
        (folder / f"{family}.json").write_text(json.dumps(document))


def run(binaries, folder, family, seed, steps, settings):
    text, sites = topology(seed)
    with tempfile.TemporaryDirectory(dir=folder) as own:
        own = pathlib.Path(own)
        (own / "job.yaml").write_text(loss_cost.job(family, SEED, steps, folder / "text.txt"))
        (own / "topology.yaml").write_text(text)
        command = [binaries / "fusionctl", "--format", "json", "run", own / "job.yaml", "--fresh", "--no-checkpoint", "--output", own / "out",
                   "--topology", own / "topology.yaml", "--profiles", folder / f"{family}.json"]
        for setting in ["spec.compression.policy=adatopk", f"spec.strategy.stages={sites}"] + settings:
            command += ["--set", setting]
        begin = time.time()
        lines = [json.loads(line) for line in loss_cost.call(command).splitlines()]
    plan = next(line for line in lines if line["type"] == "plan")
    losses = [line["loss"] for line in lines if line["type"] == "eval" and line["step"] == steps]
    events = [line["message"] for line in lines if line["type"] == "event" and line["reason"] in ("CompressionBackoff", "Replanned")]
    forward = [link for link in plan["links"] if link["direction"] == "forward"]
    codecs = [link["codec"] for link in forward if set(link["value_kinds"]) != {"data"}] + [f"tied {tied['codec']}" for tied in plan["tied"]]
    return {"loss": losses[-1], "expected": plan["loss_cost"], "codecs": codecs, "kinds": [link["value_kinds"] for link in forward],
            "step_seconds": plan["predicted_step_seconds"], "events": events, "seconds": time.time() - begin}


def plain(binaries, folder, family, steps):
    return {"loss": loss_cost.run(binaries, folder, family, None, "none", SEED, steps)["eval"][steps]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--families", nargs="*", default=FAMILIES)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--set", nargs="*", default=[], dest="settings", help="fields of the job, as spec.compression.maxLossIncrease=1")
    arguments = parser.parse_args()
    binaries = arguments.binaries.resolve()
    known = {}
    if arguments.results.exists():
        known = {tuple(json.loads(line)["key"]): json.loads(line) for line in arguments.results.read_text().splitlines()}
    seeds = range(arguments.first, arguments.first + arguments.count)
    wanted = [(seed, family, arguments.steps) for seed in [PLAIN, *seeds] for family in arguments.families]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(binaries, folder, arguments.families)

        def one(key):
            seed, family, steps = key
            result = plain(binaries, folder, family, steps) if seed == PLAIN else run(binaries, folder, family, seed, steps, arguments.settings)
            known[key] = {"key": key, **result}
            with arguments.results.open("a") as out:
                out.write(json.dumps(known[key]) + "\n")
            print(key, result, file=sys.stderr, flush=True)

        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(one, [key for key in wanted if key not in known]))
    return table([known[key] for key in wanted if key[0] != PLAIN], {family: known[PLAIN, family, arguments.steps] for family in arguments.families})


def table(rows, uncompressed):
    rises, within, good_topologies = [], 0, {}
    print("| topology | family | codecs | planned step | plan states | observed | |")
    print("|---|---|---|--:|--:|--:|---|")
    for row in rows:
        seed, family, _ = row["key"]
        rise = row["loss"] - uncompressed[family]["loss"]
        good = rise <= row["expected"] + AIM_ABOVE_PLAN
        rises.append(rise)
        within += good
        good_topologies[seed] = good_topologies.get(seed, True) and good
        note = ", ".join([f"{len(row['events'])} events"] * bool(row["events"]) + ["above the plan"] * (not good))
        print(f"| {seed} | {family} | {', '.join(row['codecs'])} | {row['step_seconds']:.3f} s | {row['expected']:.3f} | {rise:+.3f} | {note} |")
    share = sum(good_topologies.values())
    print(f"\nwithin {AIM_ABOVE_PLAN} of what the plan states: {within} of {len(rises)} runs, all families of {share} of {len(good_topologies)} "
          f"topologies (aim {AIM_SHARE:.0%}); the worst {max(rises):+.3f} (aim {AIM_WORST:+.1f})")
    return 0 if share >= AIM_SHARE * len(good_topologies) and max(rises) <= AIM_WORST else 1


if __name__ == "__main__":
    sys.exit(main())
