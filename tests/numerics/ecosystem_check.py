#!/usr/bin/env python3
"""Checks by hand that checkpoints pass between fusionctl, transformers and torchvision, both ways, and that the losses agree.

Usage: python3 tests/numerics/ecosystem_check.py build/bin/fusionctl
Needs torch, torchvision, transformers, safetensors. Prints a line for each check; exit status 1 when one fails.

The data of a run are one global batch, so that its loss does not depend on the order of the samples. A loss is that of the weights before
the update; an evaluation that of the weights after it.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F
import torchvision
import transformers

SEQUENCE, SAMPLES, VOCABULARY = 64, 8, 256
TOLERANCE = 1e-5
FAILURES = []

GPT2_JOB = """
apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: ecosystem-gpt2}
spec:
  model: {family: gpt2, preset: tiny, config: {vocabSize: %d}}
  data: {kind: text, path: text.txt}
  training: {steps: 1, globalBatchSize: %d, microBatchSize: 2, sequenceLength: %d, optimizer: {name: adamw, learningRate: 1.0e-3}}
  checkpoint: {path: checkpoints, everySteps: 1}
""" % (VOCABULARY, SAMPLES, SEQUENCE)

RESNET_JOB = """
apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: ecosystem-resnet}
spec:
  model: {family: resnet, preset: 18, config: {stem: cifar, numClasses: 10}}
  data: {kind: cifar10, path: data_batch_1.bin, validation: {path: data_batch_1.bin}}
  training: {steps: 1, globalBatchSize: %d, microBatchSize: %d, optimizer: {name: sgd, learningRate: 1.0e-3}, evaluation: {everySteps: 1, batches: 1}}
  checkpoint: {path: checkpoints, everySteps: 1}
""" % (SAMPLES, SAMPLES)

TWO_DEVICES = """
apiVersion: fusionllm.io/v1alpha1
kind: Topology
metadata: {name: two-devices}
spec:
  sites:
  - name: here
    internal: {bandwidth: 10Gbit, latency: 0us}
    devices: [{name: here-0, computeScale: 1}, {name: here-1, computeScale: 1}]
"""


class Runner:
    def __init__(self, program, folder):
        self.program, self.folder, self.count = program, folder, 0

    def run(self, job, *arguments):
        """Lines of a run by type, and its folder of checkpoints."""
        self.count += 1
        (self.folder / "job.yaml").write_text(job)
        output = self.folder / f"run-{self.count}"
        command = [self.program, "--format", "json", "run", str(self.folder / "job.yaml"), "--output", str(output), "--fresh", *arguments]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{result.stdout}\n{result.stderr}")
        lines = {}
        for line in result.stdout.splitlines():
            lines.setdefault(json.loads(line)["type"], []).append(json.loads(line))
        return lines, output / "checkpoints"

    def export(self, checkpoint):
        out = self.folder / f"export-{self.count}"
        subprocess.run([self.program, "checkpoint", "export", str(checkpoint), str(out)], check=True, capture_output=True)
        return next(out.rglob("*.safetensors")) if out.is_dir() else out


def check(what, ours, theirs):
    error = abs(ours - theirs) / abs(theirs)
    print(f"{'ok  ' if error <= TOLERANCE else 'FAIL'} {what}: {ours:.8g} here, {theirs:.8g} there, relative difference {error:.2g}")
    if not error <= TOLERANCE:
        FAILURES.append(what)


def gpt2():
    config = transformers.GPT2Config(n_layer=4, n_head=4, n_embd=128, vocab_size=VOCABULARY, n_positions=SEQUENCE, resid_pdrop=0.0,
                                     embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    return transformers.GPT2LMHeadModel(config)


def gpt2_loss(model, text):
    windows = np.lib.stride_tricks.sliding_window_view(text, SEQUENCE + 1)[::SEQUENCE].astype(np.int64)
    with torch.no_grad():
        logits = model(torch.tensor(windows[:, :-1])).logits
    return F.cross_entropy(logits.flatten(0, 1), torch.tensor(windows[:, 1:]).flatten()).item()


def check_gpt2(runner):
    text = np.random.default_rng(1).integers(32, 127, SAMPLES * SEQUENCE + 1).astype(np.uint8)
    (runner.folder / "text.txt").write_bytes(text.tobytes())
    (runner.folder / "two.yaml").write_text(TWO_DEVICES)

    _, checkpoints = runner.run(GPT2_JOB, "--set", "spec.training.steps=0")
    model = gpt2()
    safetensors.torch.load_model(model, checkpoints / "step-000000" / "model.safetensors", strict=True)
    lines, checkpoints = runner.run(GPT2_JOB)
    check("gpt2: our initial checkpoint in transformers, loss", lines["step"][0]["loss"], gpt2_loss(model, text))

    two = ("--topology", str(runner.folder / "two.yaml"), "--set", "spec.strategy.stages=2")
    _, checkpoints = runner.run(GPT2_JOB, *two)
    index = json.loads((checkpoints / "step-000001" / "model.safetensors.index.json").read_text())
    sharded = {}
    for shard in sorted(set(index["weight_map"].values())):
        sharded.update(safetensors.torch.load_file(checkpoints / "step-000001" / shard))
    merged = runner.export(checkpoints / "step-000001")
    safetensors.torch.load_model(model, merged, strict=True)
    same = all(torch.equal(model.state_dict()[name], tensor) for name, tensor in sharded.items())
    check("gpt2: shards of two stages equal their export", float(same), 1.0)
    lines, _ = runner.run(GPT2_JOB, "--set", f"spec.model.init.from={checkpoints / 'step-000001'}")
    check("gpt2: trained in two stages, exported, in transformers, loss", lines["step"][0]["loss"], gpt2_loss(model, text))

    torch.manual_seed(3)
    theirs = gpt2()
    theirs.save_pretrained(runner.folder / "hugging-face")
    for source in ("hugging-face", "hugging-face/model.safetensors"):
        lines, _ = runner.run(GPT2_JOB, "--set", f"spec.model.init.from={runner.folder / source}")
        check(f"gpt2: save_pretrained of transformers here (init.from {source}), loss", lines["step"][0]["loss"], gpt2_loss(theirs, text))


def resnet18():
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    model.maxpool = torch.nn.Identity()
    return model


def check_resnet(runner):
    rng = np.random.default_rng(2)
    records = rng.integers(0, 256, (SAMPLES, 3073)).astype(np.uint8)
    records[:, 0] %= 10
    (runner.folder / "data_batch_1.bin").write_bytes(records.tobytes())
    mean, std = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])
    images = torch.tensor(records[:, 1:].reshape(SAMPLES, 3, 32, 32) / 255.0, dtype=torch.float32)
    images = (images - mean[:, None, None]) / std[:, None, None]
    labels = torch.tensor(records[:, 0].astype(np.int64))

    def loss(model):
        with torch.no_grad():
            return F.cross_entropy(model(images), labels).item()

    _, checkpoints = runner.run(RESNET_JOB, "--set", "spec.training.steps=0")
    model = resnet18()
    model.load_state_dict(safetensors.torch.load_file(checkpoints / "step-000000" / "model.safetensors"), strict=True)
    lines, checkpoints = runner.run(RESNET_JOB)
    check("resnet18: our initial checkpoint in torchvision, loss", lines["step"][0]["loss"], loss(model.train()))
    model.load_state_dict(safetensors.torch.load_file(checkpoints / "step-000001" / "model.safetensors"), strict=True)
    check("resnet18: our checkpoint after a step in torchvision, evaluation", lines["eval"][-1]["loss"], loss(model.eval()))

    torch.manual_seed(4)
    theirs = resnet18()
    safetensors.torch.save_file(theirs.state_dict(), runner.folder / "torchvision.safetensors")
    lines, _ = runner.run(RESNET_JOB, "--set", f"spec.model.init.from={runner.folder / 'torchvision.safetensors'}")
    check("resnet18: state dict of torchvision here, loss", lines["step"][0]["loss"], loss(theirs.train()))


def main():
    for module in (torch, torchvision, transformers, safetensors):
        print(module.__name__, module.__version__)
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(folder))
        check_gpt2(runner)
        check_resnet(runner)
    sys.exit(1 if FAILURES else 0)


if __name__ == "__main__":
    main()
