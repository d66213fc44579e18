#!/usr/bin/env python3
"""Compares whole training steps of one executor on one thread with PyTorch on one thread, in turns on the same machine.

Usage: python3 tools/perf/compare_pytorch.py build/bin [--model gpt2|resnet50] [--turns 3] [--steps 6]   (needs torch, torchvision, transformers)

Both sides run in a process of their own, first one and then the other, `--turns` times. Of each turn the first two steps are not counted.
Prints for each turn and side: median wall seconds of a step, and mean CPU seconds of the training process in a step, which other work on
the machine disturbs less. The ratios are ours / PyTorch in steps per second: above 1 we are faster.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

WARM_STEPS = 2
GPT2 = dict(layers=6, heads=6, embd=384, vocabulary=256, sequence=256, batch=8)
RESNET = dict(size=32, classes=10, batch=32)

JOBS = {
    "gpt2": """
  model: {family: gpt2, config: {nLayer: 6, nHead: 6, nEmbd: 384, vocabSize: 256, blockSize: 256, tieWeights: true}}
  data: {kind: text, path: text.bin, encoding: bytes}
  training:
    steps: %d
    globalBatchSize: 8
    microBatchSize: 8
    sequenceLength: 256
    optimizer: {name: adamw, learningRate: 3.0e-4, weightDecay: 0.1}
""",
    "resnet50": """
  model: {family: resnet, preset: 50, config: {stem: cifar, numClasses: 10}}
  data: {kind: shapes, shapes: {samples: 256, imageSize: 32, numClasses: 10, seed: 1}}
  training:
    steps: %d
    globalBatchSize: 32
    microBatchSize: 32
    optimizer: {name: sgd, learningRate: 0.01, momentum: 0.9, weightDecay: 5.0e-4}
""",
}


def pytorch_step(model_name):
    """A function that does one training step, as a PyTorch user would write it for speed on one core."""
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if model_name == "gpt2":
        import transformers
        config = transformers.GPT2Config(n_layer=GPT2["layers"], n_head=GPT2["heads"], n_embd=GPT2["embd"], vocab_size=GPT2["vocabulary"],
                                         n_positions=GPT2["sequence"], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0,
                                         eos_token_id=0, use_cache=False, attn_implementation="sdpa")
        model = transformers.GPT2LMHeadModel(config).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
        inputs = torch.randint(0, GPT2["vocabulary"], (GPT2["batch"], GPT2["sequence"]))
        labels = torch.randint(0, GPT2["vocabulary"], (GPT2["batch"], GPT2["sequence"])).flatten()
        forward = lambda: model(inputs).logits.flatten(0, 1)
    else:
        import torchvision
        model = torchvision.models.resnet50(num_classes=RESNET["classes"])
        model.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        model.maxpool = torch.nn.Identity()
        model = model.to(memory_format=torch.channels_last).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
        inputs = torch.randn(RESNET["batch"], 3, RESNET["size"], RESNET["size"]).to(memory_format=torch.channels_last)
        labels = torch.randint(0, RESNET["classes"], (RESNET["batch"],))
        forward = lambda: model(inputs)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(forward(), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def pytorch_turn(model_name, steps):
    """Runs in a process of its own: prints wall and CPU seconds of each step."""
    step = pytorch_step(model_name)
    times = []
    for _ in range(steps):
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
    print(json.dumps(times))


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def summary(times):
    """(median wall seconds, mean CPU seconds) of the counted steps."""
    counted = times[WARM_STEPS:]
    return statistics.median(wall for wall, _ in counted), statistics.mean(cpu for _, cpu in counted)


def run_pytorch(model_name, steps):
    environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    out = subprocess.run([sys.executable, __file__, "--child", model_name, "--steps", str(steps)], env=environment, capture_output=True, text=True, check=True)
    return summary(json.loads(out.stdout.splitlines()[-1]))


def run_ours(binaries, folder, steps):
    """One more step than counted: its executor must still live when the last counted line is read."""
    command = [str(binaries / "fusionctl"), "--format", "json", "run", str(folder / "job.yaml"), "--output", str(folder / "run"), "--fresh",
               "--profiles", str(folder / "profiles.json"), "--set", f"spec.training.steps={steps + 1}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    pid, times, before = None, [], 0.0
    for text in process.stdout:
        line = json.loads(text)
        if line["type"] == "event" and line["reason"] == "ExecutorJoined":
            pid = line["pid"]
        if line["type"] == "step" and line["step"] <= steps:
            now = cpu_seconds(pid)
            times.append((line["step_seconds"], now - before))
            before = now
    if process.wait() != 0 or len(times) != steps:
        sys.exit("fusionctl run failed")
    return summary(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", nargs="?", type=pathlib.Path)
    parser.add_argument("--model", choices=sorted(JOBS), default="gpt2")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        pytorch_turn(arguments.child, arguments.steps)
        return
    binaries = arguments.binaries.resolve()
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.bin").write_bytes(os.urandom(1 << 18))
        (folder / "job.yaml").write_text(f"apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {{name: compare}}\nspec:"
                                         f"{JOBS[arguments.model] % 1}  executors: {{threads: 1}}\n")
        subprocess.run([str(binaries / "fusionctl"), "bench", str(folder / "job.yaml"), "--calibrate", "-o", str(folder / "profiles.json")],
                       check=True, capture_output=True)
        for turn in range(1, arguments.turns + 1):
            ours = run_ours(binaries, folder, arguments.steps)
            theirs = run_pytorch(arguments.model, arguments.steps)
            ratios.append([b / a for a, b in zip(ours, theirs)])
            print(f"turn {turn}: ours {ours[0]:.3f} s wall {ours[1]:.3f} s CPU, PyTorch {theirs[0]:.3f} s wall {theirs[1]:.3f} s CPU, "
                  f"rate ours/PyTorch {ratios[-1][0]:.2f} wall {ratios[-1][1]:.2f} CPU, load {os.getloadavg()[0]:.1f}", flush=True)
    print(f"{arguments.model}: median ratio {statistics.median(r[0] for r in ratios):.2f} wall, "
          f"{statistics.median(r[1] for r in ratios):.2f} CPU over {len(ratios)} turns of {arguments.steps - WARM_STEPS} counted steps")


if __name__ == "__main__":
    main()
