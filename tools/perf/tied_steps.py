#!/usr/bin/env python3
"""Steps of tied GPT-2s over slow links: predicted against measured.

    tools/perf/tied_steps.py [--build build] [--count 12] [--steps 6] [--seed 1] [--policy none]

Draws small jobs (two or three stages, tied embedding and head on different sites) and topologies (2 to 10 Mbit/s, 5 to 60 ms), plans and runs each with fusionctl on emulated devices of this machine, and prints the predicted step, the median of the measured ones
from the third on, and what limits the step. The exchange at the end dominates by design, so that figures hold on a busy machine, too.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import tempfile

JOB = """apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {{name: tied}}
spec:
  model: {{family: gpt2, preset: tiny, config: {{nLayer: {layers}, nHead: 2, nEmbd: {width}, vocabSize: {vocabulary}}}, init: {{seed: 1}}}}
  data: {{kind: text, path: [text.txt]}}
  training: {{steps: {steps}, globalBatchSize: {batch}, microBatchSize: {micro_batch}, sequenceLength: 32, gradientClipNorm: 1.0}}
  strategy: {{stages: {stages}, pins: [{{ops: "{first}", device: a-0}}, {{ops: "{last}", device: b-{last_device}}}]}}
  compression: {{policy: {policy}}}
"""

TOPOLOGY = """apiVersion: fusionllm.io/v1alpha1
kind: Topology
metadata: {{name: drawn}}
spec:
  sites:
  - {{name: a, internal: {{bandwidth: 1Gbit, latency: 1ms}}, devices: [{{name: a-0, computeScale: 0.4}}]}}
  - name: b
    internal: {{bandwidth: 1Gbit, latency: 1ms}}
    devices: [{devices}]
  links:
  - {{from: a, to: b, bandwidth: {there}Mbit, latency: {latency}ms}}
  - {{from: b, to: a, bandwidth: {back}Mbit, latency: {latency}ms}}
"""


def draw(rng, steps, policy):
    stages = rng.choice([2, 2, 3])
    micro_batch = rng.choice([1, 2])
    job = dict(layers=rng.randint(2, 4), width=rng.choice([64, 128]), vocabulary=rng.choice([4096, 8192]), steps=steps, policy=policy,
               batch=micro_batch * rng.randint(2, 6), micro_batch=micro_batch, stages=stages, first="embed", last="lm_head",
               last_device=stages - 2)
    there = rng.choice([2, 5, 10])
    topology = dict(there=there, back=rng.choice([there, there, max(2, there // 2)]), latency=rng.choice([5, 20, 40, 60]),
                    devices=", ".join("{name: b-%d, computeScale: 0.3}" % d for d in range(stages - 1)))
    return job, topology


def run(fusionctl, folder, steps):
    command = [fusionctl, "--format", "json", "run", "job.yaml", "--topology", "topology.yaml", "--output", "out"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    plans = [line for line in lines if line.get("type") == "plan"]
    summaries = [line for line in lines if line.get("type") == "summary"]
    if done.returncode != 0 or not plans or not summaries:
        raise SystemExit(f"{' '.join(command)}: {done.returncode}\n{done.stderr[-2000:]}")
    return plans[-1], summaries[-1]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--build", default="build")
    arguments.add_argument("--count", type=int, default=12)
    arguments.add_argument("--steps", type=int, default=6)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--policy", default="none", help="spec.compression.policy")
    options = arguments.parse_args()
    fusionctl = str(pathlib.Path(options.build).resolve() / "bin" / "fusionctl")
    rng = random.Random(options.seed)
    errors = []
    print("stages  there  back  latency  tied      predicted  measured  error   limit")
    for _ in range(options.count):
        job, topology = draw(rng, options.steps, options.policy)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "job.yaml").write_text(JOB.format(**job))
            (path / "topology.yaml").write_text(TOPOLOGY.format(**topology))
            (path / "text.txt").write_text("".join(chr(97 + rng.randrange(26)) for _ in range(20000)))
            plan, summary = run(fusionctl, folder, options.steps)
        predicted, measured = plan["predicted_step_seconds"], summary["median_step_seconds"]
        errors.append(abs(measured / predicted - 1))
        tied = sum(exchange["bytes"] for exchange in plan["tied"])
        codecs = "/".join(exchange["codec"] for exchange in plan["tied"])
        limit = plan.get("bottleneck", "").split(":")[0]
        print(f"{len(plan['stages']):6d} {topology['there']:4d} M {topology['back']:4d} M {topology['latency']:5d} ms {tied / 1e6:6.2f} MB"
              f" {predicted:9.3f} s {measured:7.3f} s {100 * (measured / predicted - 1):+6.1f} %  {codecs}  {limit}", flush=True)
    errors.sort()
    print(f"error of {len(errors)}: median {100 * statistics.median(errors):.1f} %, worst {100 * errors[-1]:.1f} %")


if __name__ == "__main__":
    main()
