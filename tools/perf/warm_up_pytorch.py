#!/usr/bin/env python3
"""Whether the loss of PyTorch's own small GPT-2 jumps for a step, too: docs/results/warm-up.md.

    tools/perf/warm_up_pytorch.py TEXT .. [--seeds 10] [--steps 60] [--warm-up 15]

Needs torch and transformers. Trains `GPT2LMHeadModel` of the sizes of preset `tiny` (4 layers, width 128, bytes as tokens, windows of 64) from its own
initial weights on the files, end to end, with AdamW, linear warm-up, cosine to a tenth, and clipping at a norm of 1, eight windows a step in
a drawn order. Weight decay 0.1 is on all parameters here. Prints for each variant the sorted largest rises of the loss from one step to the
next, the sorted largest gradient norms after step 4, and the mean loss of the last 20 steps.
"""
import argparse
import math
import pathlib

import torch
import transformers

BATCH, WINDOW = 8, 64
SIZES = dict(n_layer=4, n_head=4, n_embd=128, vocab_size=256, n_positions=WINDOW)


def train(data, seed, steps, warm_up, rate=1e-3, beta2=0.95, position_scale=1.0, tied=True):
    """Losses and gradient norms by step."""
    torch.manual_seed(seed)
    config = transformers.GPT2Config(**SIZES, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, tie_word_embeddings=tied)
    model = transformers.GPT2LMHeadModel(config)
    model.transformer.wpe.weight.data.mul_(position_scale)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, beta2), weight_decay=0.1)
    windows = len(data) // WINDOW - 1
    order = torch.randperm(windows, generator=torch.Generator().manual_seed(seed))
    losses, norms = [], []
    for step in range(steps):
        decayed = (1 + math.cos(math.pi * (step - warm_up) / (steps - warm_up))) / 2
        for group in optimizer.param_groups:
            group["lr"] = rate * (step + 1) / warm_up if step < warm_up else rate * (0.1 + 0.9 * decayed)
        first = [int(order[(step * BATCH + i) % windows]) * WINDOW for i in range(BATCH)]
        inputs = torch.stack([data[at : at + WINDOW] for at in first])
        targets = torch.stack([data[at + 1 : at + WINDOW + 1] for at in first])
        logits = model(inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="+")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--warm-up", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = torch.tensor(list(b"".join(pathlib.Path(path).read_bytes() for path in arguments.text)))
    variants = {
        "tied, rate 1e-3": {},
        "rate 2e-3": {"rate": 2e-3},
        "rate 5e-4": {"rate": 5e-4},
        "beta2 0.99": {"beta2": 0.99},
        "beta2 0.999": {"beta2": 0.999},
        "positions 0.01": {"position_scale": 0.5},
        "untied": {"tied": False},
    }
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}, {len(data)} bytes")
    for name, options in variants.items():
        runs = [train(data, seed, arguments.steps, arguments.warm_up, **options) for seed in range(1, arguments.seeds + 1)]
        rises = sorted(max(b - a for a, b in zip(losses, losses[1:])) for losses, _ in runs)
        norms = sorted(max(norms[4:]) for _, norms in runs)
        last = sum(sum(losses[-20:]) / 20 for losses, _ in runs) / len(runs)
        print(f"{name}: rises {' '.join(f'{rise:.1f}' for rise in rises)}; norms {' '.join(f'{norm:.0f}' for norm in norms)}; last 20: {last:.3f}",
              flush=True)


if __name__ == "__main__":
    main()
