#!/usr/bin/env python3
"""Writes the run padded_sgd of training.json without PyTorch: in numpy, in double precision, with gradients derived by hand.

Usage: python3 make_padded_golden.py training.json   (needs numpy alone; a second)

make_training_goldens.py defines the run, and writes what PyTorch computes of it; this is for where PyTorch is not at hand, and what made
the numbers says so beside them. fp32 leaves fp64 by some 1e-7 within the ten steps, so either may stand for the other in a test to 1e-6.
"""
import json
import math
import sys

import numpy as np

STEPS, DIRECTIONS = 10, 8
# As make_training_goldens.py has them.
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.05, 0.9, 0.01
VOCABULARY, SEQUENCE, COUNTED, MICRO_BATCH_SAMPLES = 13, 6, (6, 1, 0, 0, 4, 2, 6, 0), 2
SHAPES = {
    "embed.weight": (VOCABULARY, 8),
    "hidden.bias": (16,),
    "hidden.weight": (16, 8),
    "logits.bias": (VOCABULARY,),
    "logits.weight": (VOCABULARY, 16),
}


def formula_values(shape, number, scale, shift):
    """make_goldens.py's, which cannot be imported without PyTorch."""
    with np.errstate(over="ignore"):
        z = (np.arange(math.prod(shape), dtype=np.uint64) + np.uint64(number << 32)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    values = ((z >> np.uint64(40)).astype(np.float64) / 2**24 - 0.5) * scale + shift
    return values.astype(np.float32).astype(np.float64).reshape(shape)


def batch(step):
    def tokens_of(micro_batch):
        values = formula_values((MICRO_BATCH_SAMPLES, SEQUENCE), 100000 + step * 100 + micro_batch, 1.0, 0.5)
        return np.minimum((values * VOCABULARY).astype(np.int64), VOCABULARY - 1)

    tokens = np.concatenate([tokens_of(m) for m in range(len(COUNTED) // MICRO_BATCH_SAMPLES)])
    labels = 1 + (tokens * 5 + 3) % (VOCABULARY - 1)
    for sample in range(len(COUNTED)):
        labels[sample, COUNTED[(sample + step) % len(COUNTED)]:] = 0
    return tokens.ravel(), labels.ravel()


def start():
    def values(number, shape):
        scale = 0.2 if len(shape) == 1 else 3.0 / math.sqrt(math.prod(shape[1:]))
        return formula_values(shape, number, scale, 0.0)

    return {name: values(number, SHAPES[name]) for number, name in enumerate(sorted(SHAPES))}


def loss_and_gradients(p, tokens, labels):
    embed = p["embed.weight"][tokens]
    act = np.tanh(embed @ p["hidden.weight"].T + p["hidden.bias"])
    logits = act @ p["logits.weight"].T + p["logits.bias"]
    shifted = logits - logits.max(1, keepdims=True)
    log_sums = np.log(np.exp(shifted).sum(1))
    rows, counts = np.arange(len(labels)), labels != 0
    loss = (log_sums - shifted[rows, labels])[counts].mean()
    d_logits = np.exp(shifted - log_sums[:, None])
    d_logits[rows, labels] -= 1
    d_logits[~counts] = 0
    d_logits /= counts.sum()
    d_hidden = (d_logits @ p["logits.weight"]) * (1 - act * act)
    d_table = np.zeros_like(p["embed.weight"])
    np.add.at(d_table, tokens, d_hidden @ p["hidden.weight"])
    return loss, {
        "embed.weight": d_table,
        "hidden.bias": d_hidden.sum(0),
        "hidden.weight": d_hidden.T @ embed,
        "logits.bias": d_logits.sum(0),
        "logits.weight": d_logits.T @ act,
    }


def train(dtype):
    p = {name: values.astype(dtype) for name, values in start().items()}
    velocity, losses = {}, []
    for step in range(1, STEPS + 1):
        loss, gradients = loss_and_gradients(p, *batch(step))
        losses.append(float(loss))
        for name in p:
            decayed = gradients[name] + (WEIGHT_DECAY * p[name] if p[name].ndim >= 2 else 0)
            velocity[name] = MOMENTUM * velocity[name] + decayed if name in velocity else decayed
            p[name] = (p[name] - LEARNING_RATE * velocity[name]).astype(dtype)
    return losses, {name: values.astype(np.float64) for name, values in p.items()}


def digest(values, number, moved):
    products = [(values * formula_values(values.shape, 1000 * (k + 1) + number, 12**0.5, 0.0)).sum() for k in range(DIRECTIONS)]
    return {"norm": float(f"{np.linalg.norm(values):.9g}"), "moved": float(f"{moved:.4g}"), "products": [float(f"{p:.9g}") for p in products]}


def main():
    losses, state = train(np.float64)
    rounded_losses, rounded = train(np.float32)
    first = start()
    with open(sys.argv[1]) as file:
        result = json.load(file)
    result["runs"]["padded_sgd"] = {
        "family": "padded", "optimizer": "sgd", "learning_rate": LEARNING_RATE, "momentum": MOMENTUM, "weight_decay": WEIGHT_DECAY,
        "clip": 0.0, "made_by": f"numpy {np.__version__} in fp64 (make_padded_golden.py)", "losses": [float(f"{loss:.9g}") for loss in losses],
        "rounding_of_numpy": {
            "losses": float(f"{max(abs(a - b) / b for a, b in zip(rounded_losses, losses)):.3g}"),
            "parameters": float(f"{max(np.linalg.norm(rounded[name] - state[name]) / np.linalg.norm(state[name]) for name in state):.3g}"),
        },
        "tensors": {
            name: digest(state[name], number, np.linalg.norm(state[name] - first[name]))
            for number, name in enumerate(sorted(state))
        },
    }
    with open(sys.argv[1], "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
