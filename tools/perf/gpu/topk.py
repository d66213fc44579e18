#!/usr/bin/env python3
"""Times the exact top-k selection of compression on a card against torch.topk and CUB's DeviceTopK; prints a table for docs/results.

Usage: python3 topk.py FOLDER_OF_PROGRAMS [--values 10000000,100000000] [--shares 0.001,0.01] [--cccl FOLDER]   (needs torch)

All three look for the k values of greatest magnitude and their indices; ours in ascending order of indices, ties to the lower index, the
others in any order. CUDA events, the median of 40 calls after 10, calls go round four buffers. torch.topk is given the magnitudes by abs(),
which it has no other way to; its time without that is told as well. CUB is compiled by nvcc where the toolkit, or --cccl (the folder
nvidia/cu13/include/cccl of the wheel nvidia-cuda-cccl 13.2 or later), has cub/device/device_topk.cuh.
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CALLS, WARM, BUFFERS = 50, 10, 4


def last_line(text):
    """Of what a program wrote to stderr, where it says what was wrong; empty where it wrote nothing."""
    lines = [line for line in text.splitlines() if line.strip() and line.strip() != "Run with --help for more information."]
    return lines[-1].strip() if lines else ""


def lines_of(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        return None, last_line(done.stderr) or f"exit code {done.returncode}"
    return [json.loads(line) for line in done.stdout.splitlines()], ""


def numbers(text, least, most, what):
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(least <= value <= most for value in values):  # NaN is neither
        raise argparse.ArgumentTypeError(f"'{text}' is no list of {what}")
    return values


def counts(text):
    return [int(value) for value in numbers(text, 1, 2e9, "counts from 1 to 2e9, such as 10000000,1e8")]


def shares(text):
    return numbers(text, 1e-9, 1, "shares from 1e-9 to 1, such as 0.001,0.01")


def torch_seconds(torch, values, kept, with_abs):
    buffers = [torch.randn(values, device="cuda") for _ in range(BUFFERS)]
    if not with_abs:
        for buffer in buffers:
            buffer.abs_()
    seconds = []
    for call in range(CALLS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        source = buffers[call % BUFFERS]
        begin.record()
        torch.topk(source.abs() if with_abs else source, kept, sorted=False)
        end.record()
        end.synchronize()
        seconds.append(1e-3 * begin.elapsed_time(end))
    return statistics.median(seconds[WARM:])


def cub_program(folder, cccl):
    """(program, "") or (None, why not)."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not pathlib.Path(nvcc).exists():
        return None, "no nvcc here"
    program = pathlib.Path(folder) / "cub_topk"
    include = ["-I", cccl] if cccl else []
    command = [nvcc, "-O3", "-std=c++17", "-arch=native", *map(str, include), str(HERE / "cub_topk.cu"), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    return (program, "") if done.returncode == 0 else (None, (errors or ["nvcc failed"])[0].split("error")[-1].lstrip(": "))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("--values", type=counts, default=[10**7, 10**8], help="how many to select from, separated by commas")
    parser.add_argument("--shares", type=shares, default=[0.001, 0.01], help="of them to keep, separated by commas")
    parser.add_argument("--cccl", type=pathlib.Path, help="headers of a CCCL later than the toolkit's")
    arguments = parser.parse_args()
    program = arguments.programs.resolve() / "topk_bench"
    if not program.is_file():
        parser.error(f"there is no program {program}: make cuda-portable makes it")
    try:
        import torch
        if not torch.cuda.is_available():
            torch = None
            print("torch sees no CUDA device, so there is no column of it", file=sys.stderr)
    except ImportError:
        torch = None
        print("there is no torch, so no column of it", file=sys.stderr)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        cub, why = cub_program(folder, arguments.cccl)
        if cub is None:
            print(f"CUB is left out: {why}", file=sys.stderr)
        for values in arguments.values:
            flags = [part for share in arguments.shares for part in ("--share", share)]
            ours, why = lines_of([program, "--values", values, "--calls", CALLS, "--buffers", BUFFERS, *flags])
            if ours is None:
                sys.exit(f"topk.py: {why}")
            for line in ours:
                cells = [line["seconds"]]
                for with_abs in (True, False):
                    cells.append(torch_seconds(torch, values, line["kept"], with_abs) if torch else None)
                told, why = lines_of([cub, values, line["kept"]]) if cub else (None, "")
                if cub and told is None:
                    print(f"CUB of {values}: {why}", file=sys.stderr)
                cells.append(told[0]["seconds"] if told else None)
                rows.append((values, line["kept"], cells))
        print(f"{ours[0]['device']}" + (f"; PyTorch {torch.__version__}" if torch else "") + (f"; {told[0]['versions']}" if told else "") + "\n")
    print("| values | kept | ours, ms | values per second | torch.topk of abs, ms | torch.topk alone, ms | CUB, ms |")
    print("|---|---|---|---|---|---|---|")
    for values, kept, cells in rows:
        milliseconds = ["-" if cell is None else f"{1e3 * cell:.3f}" for cell in cells]
        print(f"| {values:,} | {kept:,} | {milliseconds[0]} | {values / cells[0]:.3g} | {' | '.join(milliseconds[1:])} |")


if __name__ == "__main__":
    main()
