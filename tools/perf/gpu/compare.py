#!/usr/bin/env python3
"""Compares training of one stage on a card with PyTorch at its best settings, in turns on the same card; writes a table for docs/results.

Usage: python3 compare.py FOLDER_OF_PROGRAMS [--model gpt2] [--turns 3] [-o table.md]   (needs torch, and torchvision for resnet)

First each side looks for its best micro-batch (and PyTorch for its best settings, see train_pytorch.py); then both run at those, in
processes of their own, one after the other, --turns times: ours as it is by default, with the same bits in every run, and with --allow-nondeterminism.
The ratio is ours / PyTorch in tokens or images per second: above 1 we are faster. Options after -- go to both sides: -- --layers 2 --width 64.
"""
import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PEAKS = ("Peak memory: ours is what the driver says is taken of the card since the program began, CUDA's context included; PyTorch's is what "
         "its allocator has reserved, without the context.")
WAYS = {"ours": [], "ours, --allow-nondeterminism": ["--allow-nondeterminism"]}  # of training_bench


def last_line(text):
    """Of what a program wrote to stderr, where it says what was wrong; empty where it wrote nothing."""
    lines = [line for line in text.splitlines() if line.strip() and line.strip() != "Run with --help for more information."]
    return lines[-1].strip() if lines else ""


def told(command, timeout, **options):
    """The JSON of the last line that a program prints, within `timeout` seconds; or None, having said why."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout, **options)
        out, problem = done.stdout, (last_line(done.stderr) or f"exit code {done.returncode}") if done.returncode != 0 else ""
    except subprocess.TimeoutExpired as late:
        out = (late.stdout or b"").decode()
        problem = "" if out.strip() else f"nothing after {timeout:.0f} s"
    if problem:
        print(f"  {pathlib.Path(command[0]).name}: {problem}", file=sys.stderr)
        return None
    return json.loads(out.strip().splitlines()[-1])


def commit_of(programs):
    """What pack-portable.sh left beside them; else what git says."""
    file = programs.parent / "COMMIT"
    if file.exists():
        return file.read_text().strip()
    done = subprocess.run(["git", "-C", str(HERE), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def driver():
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True)
    except FileNotFoundError:
        return "no nvidia-smi here"
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else "nvidia-smi says nothing"


def best_of_ours(ours, sizes, seconds):
    """The report of the best micro-batch; one that does not fit is passed over."""
    reports = [report for size in sizes if (report := told([*ours, "--micro-batch", size, "--steps", 5], seconds)) is not None]
    if not reports:
        sys.exit("compare.py: training_bench could not be run with any micro-batch")
    return max(reports, key=lambda report: report["per_second"])


def row(name, setting, reports):
    rates = [report["per_second"] for report in reports]
    peak = reports[-1]["peak_bytes"]
    return (f"| {name} | {setting} | {statistics.median(rates):,.0f} | {', '.join(f'{rate:,.0f}' for rate in rates)} | "
            f"{'-' if peak is None else f'{peak / 2**30:.1f} GiB'} | {reports[-1]['last_loss']:.3f} |")


def main():
    own, rest = (sys.argv[1:sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1:]) if "--" in sys.argv else (sys.argv[1:], [])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--model", choices=["gpt2", "resnet"], default="gpt2")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--micro-batch", default=None, help="sizes to try, separated by commas")
    parser.add_argument("--compile", default="default,max-autotune")
    parser.add_argument("--attention", default="flash,cudnn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--search-seconds", type=float, default=300, help="for PyTorch's settings")
    parser.add_argument("--seconds", type=float, default=570, help="no turn begins that would not be over by then, but the first")
    parser.add_argument("--run-seconds", type=float, default=240, help="the most that one run may take, but PyTorch's search")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="file that gets the table, too")
    arguments = parser.parse_args(own)
    sizes = arguments.micro_batch or ("16,32,64" if arguments.model == "gpt2" else "64,128,256")
    program = arguments.programs.resolve() / "training_bench"
    if not program.is_file():
        parser.error(f"there is no program {program}: make cuda-portable makes it")
    for module, name in (("torch", "PyTorch"), *([("torchvision", "torchvision")] if arguments.model == "resnet" else [])):
        if importlib.util.find_spec(module) is None:
            parser.error(f"{name} is not installed: pip install {module}")
    ours = [program, "--model", arguments.model, "--device", "cuda:0" if arguments.device == "cuda" else "cpu", *rest]
    torchs = [sys.executable, HERE / "train_pytorch.py", "--model", arguments.model, "--device", arguments.device, *rest]

    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache)  # what is compiled in the search need not be in the turns
        print("looking for the best settings", file=sys.stderr)
        our_best = best_of_ours(ours, sizes.split(","), arguments.run_seconds)
        torch_best = told([*torchs, "--micro-batch", sizes, "--compile", arguments.compile, "--attention", arguments.attention, "--steps", 10,
                           "--seconds", arguments.search_seconds], timeout=arguments.search_seconds + 30, env=environment)
        if torch_best is None:
            sys.exit("compare.py: train_pytorch.py failed")
        our_turns, torch_turns = {way: [] for way in WAYS}, []
        turn_seconds = 0
        for turn in range(arguments.turns):
            turn_begin = time.monotonic()
            if turn > 0 and turn_begin - begin + turn_seconds > arguments.seconds:
                print(f"no time for turn {turn + 1}", file=sys.stderr)
                break
            for way, flags in WAYS.items():
                our_turns[way].append(told([*ours, *flags, "--micro-batch", our_best["micro_batch"], "--steps", arguments.steps],
                                           arguments.run_seconds))
            torch_turns.append(told([*torchs, "--micro-batch", torch_best["micro_batch"], "--compile", torch_best["compile"], "--attention",
                                     torch_best["attention"], "--steps", arguments.steps], arguments.run_seconds, env=environment))
            turn_of_all = [*(reports[-1] for reports in our_turns.values()), torch_turns[-1]]
            if None in turn_of_all:
                sys.exit(f"compare.py: turn {turn + 1} failed")
            turn_seconds = time.monotonic() - turn_begin
            print(f"turn {turn + 1}: {', '.join(format(report['per_second'], ',.0f') for report in turn_of_all)}", file=sys.stderr)

    ratios = [f"{way} {statistics.median(a['per_second'] / b['per_second'] for a, b in zip(reports, torch_turns)):.3f}"
              for way, reports in our_turns.items()]
    attention = f", {torch_best['attention']} attention" if arguments.model == "gpt2" else ""
    left_out = [f"{one['micro_batch']}, {one['compile']}, {one['attention']}: {one['left_out']}" for one in torch_best["tried"] if "left_out" in one]
    lines = [
        f"## {arguments.model}, {torch_best['precision']}, {datetime.date.today().isoformat()}",
        "",
        f"Card and driver: {driver()}. Ours: commit {commit_of(arguments.programs.resolve())}, {our_best['device']}; {our_best['versions']}. "
        f"{torch_best['versions']}." + (f" Options: `{' '.join(rest)}`." if rest else ""),
        "",
        f"| | settings | {torch_best['unit']} per second, median | turns | peak memory | last loss |",
        "|---|---|---|---|---|---|",
        *(row(way, f"micro-batch {our_best['micro_batch']}", reports) for way, reports in our_turns.items()),
        row("PyTorch", f"micro-batch {torch_best['micro_batch']}, torch.compile {torch_best['compile']}{attention}", torch_turns),
        "",
        *([PEAKS, ""] if our_best["peak_bytes"] is not None else []),
        f"Ratio to PyTorch, median of the turns: {'; '.join(ratios)}." + (f" Not measured by PyTorch: {'; '.join(left_out)}." if left_out else ""),
    ]
    print("\n".join(lines))
    if arguments.output is not None:
        arguments.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
