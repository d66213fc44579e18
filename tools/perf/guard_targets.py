#!/usr/bin/env python3
"""Whether the guard alone keeps training whole: plans forced to codecs that ruin it, on cuts of every kind.

  tools/perf/guard_targets.py build/bin --results FILE [--models gpt mlp resnet] [--cuts stream ..] [--codecs int4 topk@10 ..] [--seeds 1]
                              [--steps 300] [--jobs 2] [--guard auto]

The models and cuts of loss_cost.py, one to three of them compressed, policy uniform, real runs of `fusionctl run` over loopback: what the
validation loss after the last step rises over that of the uncompressed run of the same seed, and the codecs that the guard went on with.
Aim: no run above 0.15. With --results runs that stand in the file are not repeated. `--guard none` shows what would have been.
Two or three runs at a time take about a minute on two cores.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import sys
import tempfile

import loss_cost

MODELS = ["gpt", "mlp", "resnet"]
CODECS = ["int4", "topk@10", "topk@12.5", "topk@20", "topk@30", "topk@60", "topk@100"]
AIM_WORST = 0.15


def went_by(events):
    """The codecs that senders went on with, in short: how many values by which."""
    found = [found[1] for found in (re.search(r"it goes by ([^ ,]+)", event) for event in events) if found]
    return ", ".join(f"{found.count(codec)} by {codec}" for codec in sorted(set(found)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--cuts", nargs="*", default=[])
    parser.add_argument("--codecs", nargs="*", default=CODECS)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--guard", default="auto", choices=["none", "warn", "auto"])
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    arguments = parser.parse_args()
    binaries = arguments.binaries.resolve()
    known = {}
    if arguments.results.exists():
        known = {tuple(json.loads(line)["key"]): json.loads(line) for line in arguments.results.read_text().splitlines()}
    wanted = [(model, None, "none", seed, arguments.steps) for seed in arguments.seeds for model in arguments.models]
    wanted += [(model, cut, codec, seed, arguments.steps) for seed in arguments.seeds for codec in arguments.codecs for model in arguments.models
               for cut in loss_cost.MODELS[model].cuts if not arguments.cuts or cut in arguments.cuts]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        loss_cost.prepare(binaries, folder, arguments.models)

        def one(key):
            result = {"key": key, **loss_cost.run(binaries, folder, *key, guard=arguments.guard)}
            with arguments.results.open("a") as out:
                out.write(json.dumps(result) + "\n")
            known[key] = result
            print(key, result["eval"][arguments.steps], went_by(result["events"]), file=sys.stderr, flush=True)

        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(one, [key for key in wanted if key not in known]))

    def loss(key):
        return {int(step): value for step, value in known[key]["eval"].items()}[arguments.steps]

    print("| model | cut | codec | rise, by seed | the guard |")
    print("|---|---|---|--:|---|")
    rises = []
    for model, cut, codec in dict.fromkeys(key[:3] for key in wanted if key[1] is not None):
        keys = [(model, cut, codec, seed, arguments.steps) for seed in arguments.seeds]
        cells = [loss(key) - loss((model, None, "none", *key[3:])) for key in keys]
        rises += cells
        print(f"| {model} | {cut} | {codec} | {', '.join(f'{cell:+.3f}' for cell in cells)} | {went_by(known[keys[0]]['events'])} |")
    within = sum(rise <= AIM_WORST for rise in rises)
    print(f"\nwithin {AIM_WORST}: {within} of {len(rises)}; the worst {max(rises):+.3f} (aim {AIM_WORST:+})")
    return 0 if within == len(rises) else 1


if __name__ == "__main__":
    sys.exit(main())
