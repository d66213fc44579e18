#!/usr/bin/env python3
"""Times training steps of PyTorch at its best settings: GPT-2 or ResNet-101, prints a line of JSON like bin/training_bench.

Usage: python3 train_pytorch.py [--model gpt2|resnet] [--micro-batch 16,32,64] [--compile default,max-autotune] [--attention flash,cudnn]

Every list is searched: first the micro-batches with the first of the other settings, then those settings at the best micro-batch. bf16 by
autocast, AdamW(fused=True), the parameters in fp32 as ours are, channels_last for images; the batch stays on the device. Times are CUDA
events from step to step, without waiting for the host between them. What does not fit the card, or does not compile, is left out and said.
The best so far is printed after each setting, so that the last line counts, whoever ends this.
"""
import argparse
import contextlib
import importlib.util
import json
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    print("train_pytorch.py: PyTorch is not installed: pip install torch", file=sys.stderr)
    sys.exit(2)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (part.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2) for part in self.qkv(self.ln_1(x)).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """As lib/models/gpt2/graph.h: pre-norm, learned positions, tied head, no dropout."""

    def __init__(self, layers, heads, width, vocabulary, sequence):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(width)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        for block in self.blocks:
            for linear in (block.projection, block.down):
                nn.init.normal_(linear.weight, std=0.02 / (2 * layers) ** 0.5)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class ResNet(nn.Module):
    def __init__(self, depth, classes):
        super().__init__()
        import torchvision
        self.net = getattr(torchvision.models, f"resnet{depth}")(num_classes=classes)

    def forward(self, images, labels):
        return F.cross_entropy(self.net(images), labels)


def attention_backend(name):
    """cuDNN's attention is not what PyTorch takes by itself; flash is."""
    if name == "flash":
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel([SDPBackend.CUDNN_ATTENTION])


def measure(arguments, micro_batch, compile_mode, attention, steps):
    """Seconds of each counted step, the first and the last loss, and the peak of memory."""
    torch.manual_seed(arguments.seed)
    torch._dynamo.reset()
    device = torch.device(arguments.device)
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    if arguments.model == "gpt2":
        model = Gpt2(arguments.layers, arguments.heads, arguments.width, arguments.vocabulary, arguments.sequence).to(device)
        shape, count = (micro_batch, arguments.sequence), arguments.vocabulary
        inputs, labels = torch.randint(0, count, shape, device=device), torch.randint(0, count, shape, device=device)
    else:
        model = ResNet(arguments.depth, arguments.classes).to(device, memory_format=torch.channels_last)
        inputs = torch.rand(micro_batch, 3, arguments.image_size, arguments.image_size, device=device) * 2 - 1
        inputs = inputs.to(memory_format=torch.channels_last)
        labels = torch.randint(0, arguments.classes, (micro_batch,), device=device)
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=3e-4, weight_decay=0.1, fused=cuda)
    run = model if compile_mode == "none" else torch.compile(model, mode=compile_mode)
    losses, marks = [], []
    with attention_backend(attention):
        for _ in range(arguments.warm + steps + 1):
            if cuda:
                marks.append(torch.cuda.Event(enable_timing=True))
                marks[-1].record()
            else:
                marks.append(time.perf_counter())
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device.type, torch.bfloat16, enabled=arguments.precision == "bf16"):
                loss = run(inputs, labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().clone())
    if cuda:
        torch.cuda.synchronize()
    counted = marks[arguments.warm:]
    seconds = [1e-3 * a.elapsed_time(b) if cuda else b - a for a, b in zip(counted, counted[1:])]
    return seconds, float(losses[0]), float(losses[-1]), torch.cuda.max_memory_reserved() if cuda else None


def sizes(text):
    if not all(size.isdecimal() and int(size) > 0 for size in text.split(",")):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of sizes from 1, such as 16,32")
    return [int(size) for size in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda choices: lambda text: [name if name in choices else parser.error(f"{name} is none of {', '.join(choices)}") for name in text.split(",")]
    parser.add_argument("--model", choices=["gpt2", "resnet"], default="gpt2")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--micro-batch", type=sizes, default=[16, 32, 64])
    parser.add_argument("--compile", type=names(("none", "default", "reduce-overhead", "max-autotune")), default=["default", "max-autotune"])
    parser.add_argument("--attention", type=names(("flash", "cudnn")), default=["flash", "cudnn"], help="of gpt2")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=400, help="after so many nothing more is tried")
    parser.add_argument("--seed", type=int, default=1)
    for name, value in dict(layers=12, heads=12, width=768, vocabulary=50304, sequence=1024, depth=101, image_size=224, classes=1000).items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    arguments = parser.parse_args()
    if arguments.model == "resnet" and importlib.util.find_spec("torchvision") is None:
        parser.error("--model resnet needs torchvision: pip install torchvision")
    if arguments.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("train_pytorch.py: PyTorch sees no CUDA device (--device cpu is for trying this out)")
    attentions = arguments.attention if arguments.model == "gpt2" else ["flash"]
    until = time.monotonic() + arguments.seconds
    tried, best = [], None

    def attempt(micro_batch, compile_mode, attention):
        nonlocal best
        setting = dict(micro_batch=micro_batch, compile=compile_mode, attention=attention)
        if time.monotonic() > until and best is not None:
            tried.append(dict(setting, left_out="no time"))
            return
        try:
            seconds, first, last, peak = measure(arguments, micro_batch, compile_mode, attention, arguments.steps)
        except Exception as error:  # whatever a setting runs into: another is measured instead, and this one is told
            tried.append(dict(setting, left_out=f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"))
            return
        per_second = micro_batch * (arguments.sequence if arguments.model == "gpt2" else 1) / statistics.median(seconds)
        tried.append(dict(setting, per_second=per_second))
        if best is None or per_second > best["per_second"]:
            best = dict(setting, per_second=per_second, step_seconds=statistics.median(seconds), step_seconds_least=min(seconds),
                        step_seconds_most=max(seconds), steps=len(seconds), peak_bytes=peak, first_loss=first, last_loss=last)

    cuda = arguments.device.startswith("cuda")
    versions = f"PyTorch {torch.__version__}" + (f", CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}" if cuda else "")

    def tell():
        if best is not None:
            print(json.dumps(dict(program="pytorch", model=arguments.model, device=torch.cuda.get_device_name() if cuda else "CPU", versions=versions,
                                  precision=arguments.precision, unit="tokens" if arguments.model == "gpt2" else "images", **best, tried=tried)), flush=True)

    for size in arguments.micro_batch:
        attempt(size, arguments.compile[0], attentions[0])
        tell()
    if best is None:
        sys.exit(f"train_pytorch.py: nothing could be measured: {json.dumps(tried)}")
    micro_batch = best["micro_batch"]
    for compile_mode in arguments.compile:
        for attention in attentions:
            if (compile_mode, attention) != (arguments.compile[0], attentions[0]):
                attempt(micro_batch, compile_mode, attention)
                tell()


if __name__ == "__main__":
    main()
