#!/usr/bin/env python3
"""Writes training.json: ten optimizer steps of small models as PyTorch does them, for training_parity_test.cc.

Usage: python3 make_training_goldens.py training.json [RUN ..]   (fp32 on the CPU, half a minute)
All runs need torch, torchvision and transformers. With names of runs only these are made again, in the file that is there, and each says
what made it (`made_by`); padded_sgd needs torch alone:
  python3 -m venv ../venv && ../venv/bin/pip install torch numpy && ../venv/bin/python make_training_goldens.py training.json padded_sgd

Neither weights nor data are stored: both sides make them by formula_values of make_goldens.py. Parameters after the last step are stored
as their norm and as products with fixed directions of unit variance: the mean square of the differences of such products is an unbiased
estimate of the squared norm of the difference of the tensors, so a few numbers check every element.
"""
import json
import sys

import torch
import torch.nn.functional as F

from make_goldens import fill, formula_values

STEPS = 10
MICRO_BATCHES = 2
DIRECTIONS = 8
VOCABULARY, CLASSES = 61, 10
SEQUENCE, LANGUAGE_SAMPLES = 24, 4  # samples of a micro-batch
IMAGE_SIZE, IMAGE_SAMPLES = 16, 8
# A batch whose samples have very unlike numbers of targets that count (the others are 0, which is ignored), some none at all: its loss is
# the mean over all of them, which no mean of means of micro-batches is.
PADDED_VOCABULARY, PADDED_SEQUENCE, PADDED_COUNTED = 13, 6, (6, 1, 0, 0, 4, 2, 6, 0)
PADDED_MICRO_BATCH_SAMPLES = 2

# Epsilon of AdamW: the gradient of the key biases is zero but for rounding, and 1e-8 would divide rounding errors by themselves.
# Learning rate of ResNet: batch norm over few samples makes training chaotic; at 5e-3 PyTorch's fp32 leaves its own fp64 by half a percent
# within ten steps. The distance between the two is recorded, so that a reader sees that a tolerance of 1e-4 means something.
RUNS = {
    "gpt2_sgd": dict(family="gpt2", optimizer="sgd", learning_rate=0.05, momentum=0.9, weight_decay=0.01, clip=0.0),
    "gpt2_adamw": dict(family="gpt2", optimizer="adamw", learning_rate=1e-3, beta1=0.9, beta2=0.95, epsilon=1e-5, weight_decay=0.1, clip=1.0),
    "padded_sgd": dict(family="padded", optimizer="sgd", learning_rate=0.05, momentum=0.9, weight_decay=0.01, clip=0.0),
    "resnet18_sgd": dict(family="resnet", optimizer="sgd", learning_rate=3e-4, momentum=0.9, weight_decay=5e-4, clip=0.0),
}


def integers(shape, number, bound):
    """Whole numbers below `bound` by the formula; [0, 1) times the bound, rounded down."""
    return (formula_values(shape, number, 1.0, 0.5) * bound).long().clamp(max=bound - 1)


def padded_batch(step):
    """The whole of it: tokens are made by the formula for each micro-batch of PADDED_MICRO_BATCH_SAMPLES."""
    shape = (PADDED_MICRO_BATCH_SAMPLES, PADDED_SEQUENCE)
    micro_batches = len(PADDED_COUNTED) // PADDED_MICRO_BATCH_SAMPLES
    tokens = torch.cat([integers(shape, 100000 + step * 100 + m, PADDED_VOCABULARY) for m in range(micro_batches)])
    labels = 1 + (tokens * 5 + 3) % (PADDED_VOCABULARY - 1)
    for sample in range(len(PADDED_COUNTED)):
        labels[sample, PADDED_COUNTED[(sample + step) % len(PADDED_COUNTED)]:] = 0
    return tokens, labels


class Padded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(PADDED_VOCABULARY, 8)
        self.hidden = torch.nn.Linear(8, 16)
        self.logits = torch.nn.Linear(16, PADDED_VOCABULARY)

    def forward(self, tokens):
        return self.logits(torch.tanh(self.hidden(self.embed(tokens))))


def batch(family, step, micro_batch):
    number = 100000 + step * 100 + micro_batch
    if family == "gpt2":
        tokens = integers((LANGUAGE_SAMPLES, SEQUENCE), number, VOCABULARY)
        return tokens, (tokens * 5 + 3) % VOCABULARY  # something that can be learnt
    pictures = formula_values((IMAGE_SAMPLES, IMAGE_SIZE, IMAGE_SIZE, 3), number, 2.0, 0.0)
    return pictures.permute(0, 3, 1, 2), integers((IMAGE_SAMPLES,), number + 50, CLASSES)


def build(family):
    if family == "gpt2":
        import transformers
        config = transformers.GPT2Config(n_layer=2, n_head=4, n_embd=32, vocab_size=VOCABULARY, n_positions=SEQUENCE, resid_pdrop=0.0,
                                         embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager")
        model = transformers.GPT2LMHeadModel(config)
    elif family == "padded":
        model = Padded()
    else:
        import torchvision
        model = torchvision.models.resnet18(num_classes=CLASSES)
        model.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        model.maxpool = torch.nn.Identity()
    model.double().train()
    fill(model, 0.3 if family == "resnet" else 1.0)
    return model


def loss_of(family, model, inputs, labels):
    if family == "padded":
        return F.cross_entropy(model(inputs).flatten(0, 1), labels.flatten(), ignore_index=0)
    logits = model(inputs).logits.flatten(0, 1) if family == "gpt2" else model(inputs)
    return F.cross_entropy(logits, labels.flatten())


def optimizer_of(run, model):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": run["weight_decay"]}, {"params": plain, "weight_decay": 0.0}]
    if run["optimizer"] == "sgd":
        return torch.optim.SGD(groups, lr=run["learning_rate"], momentum=run["momentum"])
    return torch.optim.AdamW(groups, lr=run["learning_rate"], betas=(run["beta1"], run["beta2"]), eps=run["epsilon"])


def train(run, dtype):
    """Losses of all steps, the state afterwards (trainable parameters and running statistics, by name) and how far each parameter moved."""
    family = run["family"]
    model = build(family).to(dtype)
    optimizer = optimizer_of(run, model)
    start = {name: parameter.detach().double().clone() for name, parameter in model.named_parameters()}
    losses = []
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        total = 0.0
        micro_batches = 1 if family == "padded" else MICRO_BATCHES
        for micro_batch in range(micro_batches):
            inputs, labels = padded_batch(step) if family == "padded" else batch(family, step, micro_batch)
            inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs
            loss = loss_of(family, model, inputs, labels) / micro_batches
            loss.backward()
            total += loss.item()
        if run["clip"]:
            torch.nn.utils.clip_grad_norm_(model.parameters(), run["clip"])
        optimizer.step()
        losses.append(total)
    state = dict(model.named_parameters())
    state.update({name: buffer for name, buffer in model.named_buffers() if "running" in name})
    state = {name: state[name].detach().double() for name in sorted(state)}
    return losses, state, {name: (state[name] - start[name]).norm().item() if name in start else 0.0 for name in state}


def digest(tensor, number, moved):
    products = [(tensor * formula_values(tensor.shape, 1000 * (k + 1) + number, 12**0.5, 0.0)).sum().item() for k in range(DIRECTIONS)]
    return {"norm": float(f"{tensor.norm().item():.9g}"), "moved": float(f"{moved:.4g}"), "products": [float(f"{p:.9g}") for p in products]}


def golden(run):
    losses, state, moved = train(run, torch.float32)
    exact_losses, exact, _ = train(run, torch.float64)
    rounding = {
        "losses": max(abs(a - b) / b for a, b in zip(losses, exact_losses)),
        "parameters": max(((state[key] - exact[key]).norm() / exact[key].norm()).item() for key in state),
    }
    print(losses[0], losses[-1], "fp32 against fp64:", rounding)
    return {
        **run, "losses": [float(f"{loss:.9g}") for loss in losses],
        "rounding_of_pytorch": {key: float(f"{value:.3g}") for key, value in rounding.items()},
        "tensors": {key: digest(tensor, number, moved[key]) for number, (key, tensor) in enumerate(state.items())},
    }


def version(module):
    return module.__version__.split("+")[0]


def main():
    torch.set_num_threads(1)
    path, *names = sys.argv[1:]
    if names:
        with open(path) as file:
            result = json.load(file)
        for name in names:
            print(name)
            result["runs"][name] = {**golden(RUNS[name]), "made_by": f"torch {version(torch)}"}
    else:
        import torchvision
        import transformers
        result = {"versions": {m.__name__: version(m) for m in (torch, torchvision, transformers)}, "steps": STEPS, "runs": {}}
        for name, run in RUNS.items():
            print(name)
            result["runs"][name] = golden(run)
    with open(path, "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
