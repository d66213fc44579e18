#!/usr/bin/env python3
"""Trains GPT-2 in one stage and in two, the two in processes of their own on the same card, joined by gRPC over loopback: what the cut costs.

Usage: python3 two_stages.py FOLDER_OF_PROGRAMS [--device cuda:0] [--codec fp32] [--steps 12]

Both runs have the same seed, data and micro-batches, so their losses have the same bits unless the link is compressed; it says whether
they have. The two processes share the card in time slices: what two cards would gain by working at once is not seen here.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

WARM_STEPS = 2

JOB = """apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {{name: two-stages}}
spec:
  model: {{family: gpt2, config: {{nLayer: {layers}, nHead: {heads}, nEmbd: {width}, vocabSize: {vocabulary}, blockSize: {sequence}, tieWeights: true}}}}
  data: {{kind: tokens, tokenDtype: uint16, path: [{folder}/tokens.bin]}}
  training:
    steps: {steps}
    globalBatchSize: {batch}
    microBatchSize: {micro_batch}
    sequenceLength: {sequence}
    precision: {precision}
    optimizer: {{name: adamw, learningRate: 3.0e-4, weightDecay: 0.1}}
  strategy: {{stages: {stages}}}
  compression: {compression}
  checkpoint: {{path: kept, everySteps: 0}}
"""


class Program:
    """A child whose lines are kept; a server's address is in the first of them."""

    def __init__(self, log, *command):
        self.log = open(log, "w")
        self.process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=self.log, text=True, cwd=log.parent)
        self.lines, self.news = [], threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            with self.news:
                self.lines.append(line)
                self.news.notify_all()

    def address(self):
        def found():
            return next((line.split()[-1] for line in self.lines if line.startswith("listening on ")), None)
        with self.news:
            self.news.wait_for(found, timeout=30)
            return found() or sys.exit("two_stages.py: a server said no address")


def end_of(broker, children, seconds):
    """The broker's exit code, or why it is not waited for."""
    until = time.monotonic() + seconds
    while broker.process.poll() is None:
        failed = [child for child in children if child.process.poll() not in (None, 0)]
        if failed:
            return f"a {pathlib.Path(failed[0].process.args[0]).name} that ended with {failed[0].process.returncode}"
        if time.monotonic() > until:
            return f"nothing after {seconds:.0f} s"
        time.sleep(0.05)
    return broker.process.returncode


def run(arguments, name, stages):
    """The step lines of a run."""
    with tempfile.TemporaryDirectory() as path:
        folder, programs = pathlib.Path(path), arguments.programs.resolve()
        rng = random.Random(1)
        tokens = bytearray()
        for _ in range(64 * arguments.sequence):
            tokens += rng.randrange(arguments.vocabulary).to_bytes(2, "little")
        (folder / "tokens.bin").write_bytes(tokens)
        compression = "{policy: none}" if arguments.codec == "fp32" else f"{{policy: uniform, codec: {arguments.codec}}}"
        (folder / "job.yaml").write_text(JOB.format(stages=stages, folder=folder, compression=compression, **{
            key: value for key, value in vars(arguments).items() if key != "programs"}))
        children = []
        try:
            scheduler = Program(folder / "scheduler.log", programs / "fusion-scheduler", "--listen", "127.0.0.1:0", "--insecure")
            children.append(scheduler)
            executors = [f"stage-{i}" for i in range(stages)]
            broker = Program(folder / "broker.log", programs / "fusion-broker", "--job", folder / "job.yaml", "--output", folder / "out",
                             "--base", folder, "--listen", "127.0.0.1:0", "--scheduler", scheduler.address(), "--expect", ",".join(executors), "--alone", "--fresh")
            children.append(broker)
            for executor in executors:
                children.append(Program(folder / f"{executor}.log", programs / "fusion-executor", "--broker", broker.address(), "--name", executor,
                                        "--device", arguments.device))
            code = end_of(broker, children, arguments.seconds)
        finally:
            for child in reversed(children):
                child.process.kill()
                child.process.wait()
        told = [json.loads(line) for line in broker.lines if line.startswith("{")]
        if code != 0:
            logs = "\n".join(f"{log.name}: {(log.read_text().splitlines() or ['empty'])[-1]}" for log in sorted(folder.glob("*.log")))
            sys.exit(f"two_stages.py: {name}: the run ended with {code}\n{logs}")
        return [line for line in told if line.get("type") == "step"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--codec", default="fp32", help="of the link: fp32 (as it is), bf16, int8, topk ...")
    parser.add_argument("--batch", type=int, default=64, help="samples of a step")
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=240, help="the most that one run may take")
    for name, value in dict(layers=12, heads=12, width=768, vocabulary=50304, sequence=1024).items():
        parser.add_argument("--" + name, type=int, default=value)
    arguments = parser.parse_args()
    if arguments.steps <= WARM_STEPS:
        parser.error(f"--steps: the first {WARM_STEPS} do not count")
    one, two = run(arguments, "one stage", 1), run(arguments, "two stages", 2)
    seconds = [statistics.median(line["step_seconds"] for line in lines if line["step"] > WARM_STEPS) for lines in (one, two)]
    same = [a["loss_bits"] == b["loss_bits"] for a, b in zip(one, two)]
    tokens = arguments.batch * arguments.sequence
    print("| | seconds a step | tokens per second | last loss |")
    print("|---|---|---|---|")
    for name, lines, median in (("one stage", one, seconds[0]), ("two stages, loopback", two, seconds[1])):
        print(f"| {name} | {median:.4f} | {tokens / median:,.0f} | {lines[-1]['loss']:.4f} |")
    print(f"\nTwo stages take {seconds[1] / seconds[0]:.3f} times as long. The losses of {sum(same)} of {len(same)} steps have the same bits.")


if __name__ == "__main__":
    main()
