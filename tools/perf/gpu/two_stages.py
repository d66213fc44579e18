#!/usr/bin/env python3
"""Trains GPT-2 in one stage and in two, the two in processes of their own on one card, joined by gRPC over loopback: what the cut costs.

Usage: python3 two_stages.py FOLDER_OF_PROGRAMS [--device cuda:0] [--codec fp32] [--steps 12]

Both runs have the same seed, data and micro-batches, so their losses have the same bits unless the link is compressed; it says whether
they have. The two processes share the card in time slices: what two cards would gain by working at once is not seen here.
"""
import argparse
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PROGRAMS = ("fusion-scheduler", "fusion-broker", "fusion-executor")
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


def last_line(text):
    """Of what a program wrote to stderr, where it says what was wrong; empty where it wrote nothing."""
    lines = [line for line in text.splitlines() if line.strip() and line.strip() != "Run with --help for more information."]
    return lines[-1].strip() if lines else ""


class Program:
    """A child whose lines are kept; a server's address is in the first of them."""

    def __init__(self, log, *command):
        self.log, self.name = log, command[0].name
        with open(log, "w") as stderr:
            self.process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=stderr, text=True,
                                            cwd=log.parent)
        self.lines, self.ended, self.news = [], False, threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            with self.news:
                self.lines.append(line)
                self.news.notify_all()
        with self.news:
            self.ended = True
            self.news.notify_all()

    def address(self):
        def found():
            return next((line.split()[-1] for line in self.lines if line.startswith("listening on ")), None)
        with self.news:
            self.news.wait_for(lambda: found() or self.ended, timeout=30)
            if found() is None:
                why = f"ended with {self.process.wait()}" if self.ended else "said no address in 30 s"
                sys.exit(f"two_stages.py: {self.name} {why}\n{self.log.name}: {last_line(self.log.read_text()) or 'empty'}")
            return found()


def end_of(broker, children, seconds):
    """The broker's exit code, or why it is not waited for."""
    until = time.monotonic() + seconds
    while broker.process.poll() is None:
        failed = [child for child in children if child.process.poll() not in (None, 0)]
        if failed:
            return f"a {failed[0].name} that ended with {failed[0].process.returncode}"
        if time.monotonic() > until:
            return f"nothing after {seconds:.0f} s"
        time.sleep(0.05)
    return broker.process.returncode


def run(arguments, name, stages):
    """The step lines of a run, and what it computed on."""
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
                             "--base", folder, "--listen", "127.0.0.1:0", "--scheduler", scheduler.address(),
                             "--expected-executors", ",".join(executors), "--closed", "--fresh")
            children.append(broker)
            for executor in executors:
                children.append(Program(folder / f"{executor}.log", programs / "fusion-executor", "--broker", broker.address(),
                                        "--name", executor, "--device", arguments.device))
            code = end_of(broker, children, arguments.seconds)
        finally:
            for child in reversed(children):
                child.process.kill()
                child.process.wait()
        told = [json.loads(line) for line in broker.lines if line.startswith("{")]
        if code != 0:
            logs = "\n".join(f"{log.name}: {last_line(log.read_text()) or 'empty'}" for log in sorted(folder.glob("*.log")))
            sys.exit(f"two_stages.py: {name}: the run ended with {code}\n{logs}")
        computing = re.search(r"computing on (.*)", children[-1].log.read_text())
        return [line for line in told if line.get("type") == "step"], computing.group(1) if computing else arguments.device


def driver():
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True)
    except FileNotFoundError:
        return "no nvidia-smi here"
    return f"driver {done.stdout.split()[0]}" if done.returncode == 0 and done.stdout.strip() else "nvidia-smi says nothing"


def version_of(programs):
    done = subprocess.run([programs / "fusion-executor", "--version"], capture_output=True, text=True)
    return done.stdout.strip() or "fusion-executor of no version"


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
    if not 1 <= arguments.vocabulary <= 65536:
        parser.error("--vocabulary: 1 to 65536, for tokens are kept in 16 bits")
    for program in PROGRAMS:
        if not (arguments.programs / program).is_file():
            parser.error(f"there is no program {arguments.programs / program}: make cuda-portable makes it")
    (one, computing), (two, _) = run(arguments, "one stage", 1), run(arguments, "two stages", 2)
    seconds = [statistics.median(line["step_seconds"] for line in lines if line["step"] > WARM_STEPS) for lines in (one, two)]
    same = [a["loss_bits"] == b["loss_bits"] for a, b in zip(one, two)]
    tokens = arguments.batch * arguments.sequence
    print(f"{computing}; {driver()}; {version_of(arguments.programs.resolve())}\n")
    print("| | seconds a step | tokens per second | last loss |")
    print("|---|---|---|---|")
    for name, lines, median in (("one stage", one, seconds[0]), ("two stages, loopback", two, seconds[1])):
        print(f"| {name} | {median:.4f} | {tokens / median:,.0f} | {lines[-1]['loss']:.4f} |")
    print(f"\nTwo stages take {seconds[1] / seconds[0]:.3f} times as long. "
          f"The losses of {sum(same)} of {len(same)} steps have the same bits.")


if __name__ == "__main__":
    main()
