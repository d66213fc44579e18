#!/usr/bin/env python3
"""Writes what PyTorch computes for every op, as small text files that golden_test.cc reads.

Usage: python3 make_goldens.py FOLDER   (needs torch, torchvision, transformers; runs on the CPU in double precision)

A case is a graph in the text form of lib/opdag/text.h, what is fed, and what must come out:
  case NAME / text .. endtext / feed|param|value|grad|state NAME DTYPE SHAPE : NUMBERS / tolerance T / end
The op under test reads x0, x1, ..: reshaped rows of embedding tables named x0, x1, .., so that the gradients of the tables are the
gradients of the inputs. The loss is the sum of the outputs times fixed random numbers, unless the op is a loss.
Models (models.golden) hold no parameters: both sides fill them by the formula in `formula_values`.
"""
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
RNG = np.random.default_rng(20240607)


def numbers(shape, fill):
    count = math.prod(shape)
    if fill == "spread":  # distinct, 0.1 apart, never 0: no kink or tie within a finite difference's step
        values = 0.1 * (np.arange(count) - count // 2 + 0.5)
        RNG.shuffle(values)
    elif fill == "positive":
        values = 0.5 + np.abs(RNG.standard_normal(count))
    else:
        values = RNG.standard_normal(count)
    return torch.tensor(values.astype(np.float32).astype(np.float64).reshape(shape))


def tensor_line(kind, name, tensor):
    integer = tensor.dtype in (torch.int32, torch.int64)
    dtype = {torch.int32: "i32", torch.int64: "i64"}.get(tensor.dtype, "f32")
    values = [str(int(v)) if integer else f"{float(v):.9g}" for v in tensor.detach().flatten()]
    shape = ",".join(str(extent) for extent in tensor.shape)
    return f"{kind} {name} {dtype} [{shape}] : {' '.join(values)}"


class Writer:
    def __init__(self, folder, family):
        self.path = f"{folder}/{family}.golden"
        self.lines = [f"# Written by make_goldens.py with torch {torch.__version__.split('+')[0]}, numpy {np.__version__}."]

    def case(self, name, statement, inputs, function, params=None, loss=None, feeds=None, also=None, state=None, tolerance=None):
        """inputs: name -> (shape, fill). params: the op's own. function(inputs and params) -> outputs by value name."""
        tensors = {key: numbers(*spec) for key, spec in inputs.items()}
        own = {key: numbers(*spec) for key, spec in (params or {}).items()}
        for tensor in (*tensors.values(), *own.values()):
            tensor.requires_grad_()
        text, feed_lines = [], []
        for i, (key, tensor) in enumerate(tensors.items()):
            rows, columns = math.prod(tensor.shape[:-1]), tensor.shape[-1]
            text.append(f't{i} = placeholder() {{role="tokens", dtype="i32", shape=[1, {rows}]}}')
            text.append(f"e{i} = embedding(t{i}; @{key}) {{vocab={rows}, dim={columns}}}")
            text.append(f"{key} = reshape(e{i}) {{shape=[{', '.join(map(str, tensor.shape))}]}}")
            feed_lines.append(tensor_line("feed", f"t{i}", torch.arange(rows, dtype=torch.int32).reshape(1, rows)))
        for key, tensor in (feeds or {}).items():
            dtype = "i32" if tensor.dtype == torch.int32 else "f32"
            text.append(f'{key} = placeholder() {{role="data", dtype="{dtype}", shape=[{", ".join(map(str, tensor.shape))}]}}')
            feed_lines.append(tensor_line("feed", key, tensor))
        text.append(statement)
        outputs = function(**tensors, **{key.replace(".", "_"): value for key, value in own.items()})
        if loss is None:
            terms = []
            for i, (key, value) in enumerate(outputs.items()):
                weights = numbers(value.shape, "normal")
                terms.append((value * weights).sum())
                axes = ", ".join(map(str, range(value.dim())))
                text.append(f'r{i} = placeholder() {{role="data", dtype="f32", shape=[{", ".join(map(str, value.shape))}]}}')
                text.append(f"m{i} = mul({key}, r{i})")
                text.append(f's{i} = reduce(m{i}) {{kind="sum", axes=[{axes}]}}')
                feed_lines.append(tensor_line("feed", f"r{i}", weights))
            total, loss = sum(terms), "s0"
            for i in range(1, len(terms)):
                text.append(f"l{i} = add({loss}, s{i})")
                loss = f"l{i}"
        else:
            total = outputs[loss]
        text.append(f"return {loss}")
        total.backward()
        self.lines += [f"case {name}", "text", f'graph "{name}" {{', *text, "}", "endtext"]
        if tolerance:
            self.lines.append(f"tolerance {tolerance}")
        self.lines += feed_lines
        for key, tensor in {**tensors, **own}.items():
            table = tensor if key in own else tensor.reshape(-1, tensor.shape[-1])
            grad = tensor.grad if tensor.grad is not None else torch.zeros_like(tensor)
            self.lines.append(tensor_line("param", key, table))
            self.lines.append(tensor_line("grad", key, grad.reshape(table.shape)))
        for key, value in {**outputs, **(also() if also else {})}.items():
            self.lines.append(tensor_line("value", key, value))
        for key, value in (state() if state else {}).items():
            self.lines.append(tensor_line("state", key, value))
        self.lines.append("end")

    def close(self):
        with open(self.path, "w") as file:
            file.write("\n".join(self.lines) + "\n")


def nchw(x):
    return x.permute(0, 3, 1, 2)


def nhwc(x):
    return x.permute(0, 2, 3, 1)


def elementwise(folder):
    w = Writer(folder, "elementwise")
    one = {"x0": ((3, 7), "normal")}
    positive = {"x0": ((3, 7), "positive")}
    w.case("gelu_tanh", 'y = gelu(x0) {approximate="tanh"}', one, lambda x0: {"y": F.gelu(x0, approximate="tanh")})
    w.case("gelu_none", 'y = gelu(x0) {approximate="none"}', one, lambda x0: {"y": F.gelu(x0)})
    w.case("relu", "y = relu(x0)", {"x0": ((3, 7), "spread")}, lambda x0: {"y": F.relu(x0)})
    for name in ("tanh", "sigmoid", "exp", "neg", "square"):
        w.case(name, f"y = {name}(x0)", one, lambda x0, name=name: {"y": getattr(torch, name)(x0)})
    for name in ("log", "sqrt"):
        w.case(name, f"y = {name}(x0)", positive, lambda x0, name=name: {"y": getattr(torch, name)(x0)})
    w.case("scale", "y = scale(x0) {factor=-1.5, shift=0.25}", one, lambda x0: {"y": -1.5 * x0 + 0.25})
    shapes = {"same": ((2, 3, 4), (2, 3, 4)), "row": ((2, 3, 4), (4,)), "column": ((2, 3, 1), (2, 1, 4)), "scalar_like": ((1,), (2, 3))}
    for op in ("add", "sub", "mul", "div"):
        for kind, (a, b) in shapes.items():
            function = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}[op]
            w.case(f"{op}_{kind}", f"y = {op}(x0, x1)", {"x0": (a, "normal"), "x1": (b, "positive")},
                   lambda x0, x1, function=function: {"y": function(x0, x1)})
    w.case("twice", "y = mul(x0, x0)", one, lambda x0: {"y": x0 * x0})
    w.case("constant", "c = constant() {value=1.75, shape=[7]}\ny = mul(x0, c)", one, lambda x0: {"y": x0 * 1.75})
    w.close()


def matrices(folder):
    w = Writer(folder, "linear")
    for layout, shape in (("io", (5, 4)), ("oi", (4, 5))):
        w.case(f"linear_{layout}", f'y = linear(x0) {{out=4, layout="{layout}"}}', {"x0": ((2, 3, 5), "normal")},
               lambda x0, y_weight, y_bias, layout=layout: {"y": x0 @ (y_weight if layout == "io" else y_weight.T) + y_bias},
               params={"y.weight": (shape, "normal"), "y.bias": ((4,), "normal")})
        w.case(f"linear_{layout}_no_bias", f'y = linear(x0) {{out=4, layout="{layout}", bias=false}}', {"x0": ((6, 5), "normal")},
               lambda x0, y_weight, layout=layout: {"y": x0 @ (y_weight if layout == "io" else y_weight.T)},
               params={"y.weight": (shape, "normal")})
    for ta in (False, True):
        for tb in (False, True):
            for kind, lead_b in (("batched", (2,)), ("shared", ())):
                a = (2, 4, 3) if ta else (2, 3, 4)
                b = lead_b + ((5, 4) if tb else (4, 5))
                flags = f"transpose_a={str(ta).lower()}, transpose_b={str(tb).lower()}"
                w.case(f"matmul_{kind}_{int(ta)}{int(tb)}", f"y = matmul(x0, x1) {{{flags}}}", {"x0": (a, "normal"), "x1": (b, "normal")},
                       lambda x0, x1, ta=ta, tb=tb: {"y": (x0.mT if ta else x0) @ (x1.mT if tb else x1)})
    w.case("matmul_plain", "y = matmul(x0, x1)", {"x0": ((3, 4), "normal"), "x1": ((4, 2), "normal")}, lambda x0, x1: {"y": x0 @ x1})

    tokens = torch.tensor([[1, 4, 1], [0, 2, 4]], dtype=torch.int32)
    for name, positions in (("embedding", 0), ("embedding_positions", 4)):
        params = {"y.wte": ((6, 5), "normal"), **({"y.wpe": ((4, 5), "normal")} if positions else {})}
        w.case(name, f"y = embedding(tokens) {{vocab=6, dim=5, positions={positions}}}", {},
               lambda y_wte, y_wpe=None: {"y": y_wte[tokens.long()] + (y_wpe[:3] if y_wpe is not None else 0)},
               params=params, feeds={"tokens": tokens})

    for causal in (False, True):
        kept = {}

        def attention(x0, causal=causal, kept=kept):
            q, k, v = (part.reshape(2, 5, 2, 3).transpose(1, 2) for part in x0.split(6, dim=-1))
            scores = q @ k.mT / math.sqrt(3)
            if causal:
                scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
            kept["y:lse"] = torch.logsumexp(scores, -1)
            by_hand = (scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 5, 6)
            fused = F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).reshape(2, 5, 6)
            assert torch.allclose(by_hand, fused)
            return {"y": fused}

        w.case("attention_causal" if causal else "attention_full", f"y = attention(x0) {{heads=2, causal={str(causal).lower()}}}",
               {"x0": ((2, 5, 18), "normal")}, attention, also=lambda kept=kept: kept)
    w.close()


def norms_and_losses(folder):
    w = Writer(folder, "normalization")
    x = {"x0": ((3, 2, 7), "normal")}
    kept = {}

    def layer_norm(x0, y_weight, y_bias):
        kept["y:mean"] = x0.mean(-1).flatten()
        kept["y:rstd"] = (x0.var(-1, correction=0) + 1e-5).rsqrt().flatten()
        return {"y": F.layer_norm(x0, (7,), y_weight, y_bias, 1e-5)}

    vectors = {"y.weight": ((7,), "normal"), "y.bias": ((7,), "normal")}
    w.case("layer_norm", "y = layer_norm(x0) {epsilon=1e-5}", x, layer_norm, params=vectors, also=lambda: kept, tolerance=1e-5)
    w.case("softmax", "y = softmax(x0)", x, lambda x0: {"y": x0.softmax(-1)})
    w.case("log_softmax", "y = log_softmax(x0)", x, lambda x0: {"y": x0.log_softmax(-1)})

    batch_norm = torch.nn.BatchNorm2d(5)
    statistics = {}

    def norm(x0, y_weight, y_bias):
        flat = x0.reshape(-1, 5)
        statistics["y:mean"] = flat.mean(0)
        statistics["y:rstd"] = (flat.var(0, correction=0) + 1e-5).rsqrt()
        y = torch.func.functional_call(batch_norm, {"weight": y_weight, "bias": y_bias}, (nchw(x0),))
        return {"y": nhwc(y)}

    state = lambda: {f"y.{key}": getattr(batch_norm, key) for key in ("running_mean", "running_var", "num_batches_tracked")}
    w.case("batch_norm", "y = batch_norm(x0) {epsilon=1e-5, momentum=0.1}", {"x0": ((2, 3, 2, 5), "normal")}, norm,
           params={"y.weight": ((5,), "normal"), "y.bias": ((5,), "normal")}, also=lambda: statistics, state=state, tolerance=1e-5)

    labels = torch.tensor([[1, 4, -100], [0, 2, 4]], dtype=torch.int32)
    more = {}

    def cross_entropy(x0):
        flat, wanted = x0.reshape(-1, 5), labels.flatten().long()
        more["loss:lse"] = flat.logsumexp(-1)
        more["loss:correct"] = (flat.argmax(-1) == wanted).sum().to(torch.float64)
        return {"loss": F.cross_entropy(flat, wanted)}

    w.case("cross_entropy", "loss = cross_entropy(x0, labels)", {"x0": ((2, 3, 5), "normal")}, cross_entropy, loss="loss",
           feeds={"labels": labels}, also=lambda: more)
    w.case("mse", "loss = mse(x0, x1)", {"x0": ((3, 4), "normal"), "x1": ((3, 4), "normal")}, lambda x0, x1: {"loss": F.mse_loss(x0, x1)},
           loss="loss")
    w.close()


def images(folder):
    w = Writer(folder, "convolution")
    variants = {
        "plain": dict(out=4, kernel=(3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1, bias=False),
        "strided_bias": dict(out=4, kernel=(3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 1), groups=1, bias=True),
        "pointwise_strided": dict(out=6, kernel=(1, 1), stride=(2, 2), padding=(0, 0), dilation=(1, 1), groups=1, bias=False),
        "grouped_dilated": dict(out=4, kernel=(2, 2), stride=(1, 1), padding=(1, 1), dilation=(2, 2), groups=2, bias=True),
        "depthwise": dict(out=4, kernel=(3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=4, bias=False),
    }
    for name, v in variants.items():
        attributes = ", ".join(f"{key}={list(value) if isinstance(value, tuple) else str(value).lower()}" for key, value in v.items())
        params = {"y.weight": ((v["out"], 4 // v["groups"], *v["kernel"]), "normal")}
        if v["bias"]:
            params["y.bias"] = ((v["out"],), "normal")
        w.case(f"conv2d_{name}", f"y = conv2d(x0) {{{attributes}}}", {"x0": ((2, 5, 4, 4), "normal")},
               lambda x0, y_weight, y_bias=None, v=v: {
                   "y": nhwc(F.conv2d(nchw(x0), y_weight, y_bias, v["stride"], v["padding"], v["dilation"], v["groups"]))}, params=params)
    w.close()

    w = Writer(folder, "pooling")
    for name, kernel, stride, padding in (("3x3", (3, 3), (2, 2), (1, 1)), ("2x3", (2, 3), (2, 1), (0, 1))):
        attributes = f"kernel={list(kernel)}, stride={list(stride)}, padding={list(padding)}"
        index = {}

        def max_pool(x0, kernel=kernel, stride=stride, padding=padding, index=index):
            y, where = F.max_pool2d(nchw(x0), kernel, stride, padding, return_indices=True)
            index["y:index"] = nhwc(where).to(torch.int32)
            return {"y": nhwc(y)}

        w.case(f"max_pool2d_{name}", f"y = max_pool2d(x0) {{{attributes}}}", {"x0": ((2, 5, 6, 3), "spread")}, max_pool,
               also=lambda index=index: index)
        w.case(f"avg_pool2d_{name}", f"y = avg_pool2d(x0) {{{attributes}}}", {"x0": ((2, 5, 6, 3), "normal")},
               lambda x0, kernel=kernel, stride=stride, padding=padding: {"y": nhwc(F.avg_pool2d(nchw(x0), kernel, stride, padding))})
    w.case("global_avg_pool", "y = global_avg_pool(x0)", {"x0": ((2, 3, 4, 5), "normal")}, lambda x0: {"y": x0.mean((1, 2))})
    w.close()


def movement(folder):
    w = Writer(folder, "movement")
    x = {"x0": ((2, 3, 4), "normal")}
    w.case("reshape", "y = reshape(x0) {shape=[4, -1]}", x, lambda x0: {"y": x0.reshape(4, 6)})
    w.case("flatten", "y = flatten(x0) {start=1}", x, lambda x0: {"y": x0.flatten(1)})
    w.case("transpose", "y = transpose(x0) {permutation=[2, 0, 1]}", x, lambda x0: {"y": x0.permute(2, 0, 1)})
    w.case("concat", "y = concat(x0, x1, x0) {axis=1}", {**x, "x1": ((2, 2, 4), "normal")}, lambda x0, x1: {"y": torch.cat((x0, x1, x0), 1)})
    w.case("split", "y = split(x0) {axis=2, sizes=[1, 3]}", x, lambda x0: dict(zip(("y", "y:y1"), x0.split((1, 3), 2))))
    w.case("split_part_unread", "y = split(x0) {axis=1, sizes=[1, 1, 1]}", x, lambda x0: {"y:y1": x0[:, 1:2]})
    w.case("slice", "y = slice(x0) {axis=1, begin=1, end=3}", x, lambda x0: {"y": x0[:, 1:3]})
    w.case("broadcast_to", "y = broadcast_to(x0) {shape=[2, 3, 4]}", {"x0": ((3, 1), "normal")}, lambda x0: {"y": x0.expand(2, 3, 4)})
    for kind, function in (("sum", torch.sum), ("mean", torch.mean), ("max", torch.amax)):
        for axes, keep in (((1,), False), ((0, 2), True), ((0, 1, 2), False)):
            if len(axes) == 3:
                keep = True  # a scalar would need no further reduction
            name = f"reduce_{kind}_{''.join(map(str, axes))}"
            w.case(name, f'y = reduce(x0) {{kind="{kind}", axes={list(axes)}, keep_dims={str(keep).lower()}}}', {"x0": ((2, 3, 4), "spread")},
                   lambda x0, function=function, axes=axes, keep=keep: {"y": function(x0, dim=axes, keepdim=keep)})
    w.case("reduce_max_ties", 'z = scale(x0) {factor=0, shift=1}\nw = add(z, x1)\ny = reduce(w) {kind="max", axes=[1]}',
           {"x0": ((2, 3), "normal"), "x1": ((2, 1), "normal")}, lambda x0, x1: {"y": (0 * x0 + 1 + x1).amax(1)})
    w.close()


def formula_values(shape, number, scale, shift):
    """Element i of parameter `number`: scale * (splitmix64 in [-0.5, 0.5)) + shift; exact in both languages."""
    with np.errstate(over="ignore"):
        z = (np.arange(math.prod(shape), dtype=np.uint64) + np.uint64(number << 32)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    values = ((z >> np.uint64(40)).astype(np.float64) / 2**24 - 0.5) * scale + shift
    return torch.tensor(values.astype(np.float32).astype(np.float64).reshape(shape))


def gradients(module, arguments, loss):
    module.zero_grad()
    total = loss(module, arguments)
    total.backward()
    return total, {key: parameter.grad.clone() for key, parameter in module.named_parameters()}


def model(lines, name, module, arguments, feeds, loss, options):
    """Loss, and of each gradient its norm and its product with a fixed direction, and how far PyTorch's own fp32 is from them."""
    total, exact = gradients(module, arguments, loss)
    single = arguments.float() if arguments.is_floating_point() else arguments
    _, rough = gradients(module.float(), single, loss)
    error = max(((rough[key].double() - exact[key]).norm() / exact[key].norm()).item() for key in exact if exact[key].norm() > 1e-6)
    lines += [f"case {name}", *[f"option {key} {value}" for key, value in options.items()]]
    lines += [tensor_line("feed", key, value) for key, value in feeds.items()]
    lines.append(tensor_line("value", "loss", total))
    lines.append(tensor_line("value", "fp32_error", torch.tensor(error)))
    for number, (key, gradient) in enumerate(sorted(exact.items())):
        direction = formula_values(gradient.shape, number + 7, 2.0, 0.0)
        lines.append(tensor_line("digest", key, torch.stack((gradient.norm(), (gradient * direction).sum()))))
    lines.append("end")


def fill(module, norm_weight_mean, norm_bias=0.0):
    """norm_bias: how far the biases of batch norm lie from zero, on the side that a formula chooses for each channel."""
    batch_norms = {f"{key}.bias" for key, part in module.named_modules() if isinstance(part, torch.nn.BatchNorm2d)}
    with torch.no_grad():
        for number, (key, parameter) in enumerate(sorted(module.named_parameters())):
            norm_weight = key.endswith("weight") and parameter.dim() == 1
            fan = parameter[0].numel() if parameter.dim() > 1 else 1
            scale = 0.2 if parameter.dim() == 1 else 3.0 / math.sqrt(fan)
            parameter.copy_(formula_values(parameter.shape, number, scale, norm_weight_mean if norm_weight else 0.0))
            if key in batch_norms:
                side = formula_values(parameter.shape, number + 5000, 1.0, 0.0).sign()
                parameter.copy_((parameter + norm_bias * side).float().double())


def models(folder):
    import torchvision
    import transformers
    lines = [f"# Written by make_goldens.py with torch {torch.__version__.split('+')[0]}, torchvision {torchvision.__version__.split('+')[0]}, "
             f"transformers {transformers.__version__}."]
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=31, n_positions=12, resid_pdrop=0.0, embd_pdrop=0.0,
                                     attn_pdrop=0.0)
    for tied in (True, False):
        config.tie_word_embeddings = tied
        gpt2 = transformers.GPT2LMHeadModel(config).double().train()
        fill(gpt2, 1.0)
        tokens = torch.tensor(RNG.integers(0, 31, (3, 9)), dtype=torch.int32)
        loss = lambda module, t: F.cross_entropy(module(t[:, :-1].long()).logits.reshape(-1, 31), t[:, 1:].long().flatten())
        model(lines, "gpt2_tied" if tied else "gpt2_free_head", gpt2, tokens, {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}, loss,
              {"family": "gpt2", "tied": int(tied)})
    # In a network as deep as the second one, some of its million ReLUs lie so near to zero that rounding moves them across, which alone
    # changes gradients by a percent. So its batch norms are shifted to where inputs are rarer, and its pictures are ones for which the
    # nearest ReLU is three times PyTorch's own fp32 error away from zero.
    for depth, stem, size, batch, norm_bias, stream in ((18, "cifar", 16, 6, 0.0, 99), (50, "imagenet", 32, 12, 0.6, 140)):
        resnet = getattr(torchvision.models, f"resnet{depth}")(num_classes=10)
        if stem == "cifar":
            resnet.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
            resnet.maxpool = torch.nn.Identity()
        resnet = resnet.double().train()
        fill(resnet, 0.3, norm_bias)
        pictures = formula_values((batch, size, size, 3), stream, 2.0, 0.0)
        labels = torch.tensor([3, 0, 7, 1, 9, 4, 2, 8, 5, 6, 3, 0][:batch], dtype=torch.int32)
        loss = lambda module, x: F.cross_entropy(module(nchw(x)), labels.long())
        model(lines, f"resnet{depth}_{stem}", resnet, pictures, {"labels": labels}, loss,
              {"family": "resnet", "depth": depth, "stem": stem, "size": size, "norm_bias": norm_bias, "pictures": stream})
    with open(f"{folder}/models.golden", "w") as file:
        file.write("\n".join(lines) + "\n")


def main():
    folder = sys.argv[1]
    for write in (elementwise, matrices, norms_and_losses, images, movement, models):
        write(folder)


if __name__ == "__main__":
    main()
