#!/usr/bin/env python3
"""What a lossy codec on a cut costs in loss, by the kind of value that crosses, the codec, the number of cuts and the length of training.

  tools/perf/loss_cost.py measure build/bin --results FILE [--models gpt ..] [--cuts stream ..] [--codecs int8 ..] [--seeds 1 2] [--steps 300]
                                             [--guard none] [--jobs 2]
  tools/perf/loss_cost.py table FILE .. [--steps 300]

`measure` trains small models with `fusionctl run`: two to four executors on this machine over loopback, cuts forced by pins, policy uniform.
Each (model, seed) is trained uncompressed first; stages do not change its bits, so one executor does that. Each result is a line of JSON in
FILE; runs that stand there are not repeated, so a measurement may be stopped and continued. Losses do not depend on what else the machine
does. `table` prints Markdown: the rise of the validation loss after the last step over the uncompressed run of the same seed and length.
The guard is off, so that codecs stay what they are. "topk@3:int4" has its kept values as int4. A codec "tied-int4" leaves the cuts exact and sends gradients of tied parameters so.

The models are chosen so that a run repeats itself: with learning rates that differ by a thousandth, losses after 300 steps differ by less
than 0.005. Networks of ReLUs without normalisation do not (by 0.05), nor did a GPT whose loss still fell by 0.01 a step.

Nothing is sent lossily that lib/compression/loss_prior.h rules out: with programs that have that rule, cuts of loss inputs show the codec
that is allowed there. The results of docs/results/loss-cost.md for loss inputs are of programs from before it.
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

CODECS = ["int8", "int4", "topk@2", "topk@3", "topk@5", "topk@8", "topk@12", "topk@30", "topk@100"]


def words(seed, count=120_000, lexicon_size=16, choices=2):
    """Text of a made-up language of few words: each is followed by one of a few, some often."""
    draw = random.Random(seed)
    letters = "etaoinshrdlucmfwyp"
    lexicon = ["".join(draw.choice(letters) for _ in range(draw.randint(2, 5))) for _ in range(lexicon_size)]
    followers = [[draw.randrange(lexicon_size) for _ in range(choices)] for _ in lexicon]
    weights = [2.0 ** -i for i in range(choices)]
    text, word = [], 0
    for _ in range(count):
        word = draw.choices(followers[word], weights)[0]
        text.append(lexicon[word])
        if draw.random() < 0.1:
            text[-1] += "."
    return " ".join(text)


def conv(name, x, out, stride=1):
    return [f"{name} = conv2d({x}) {{out={out}, kernel=[3, 3], stride=[{stride}, {stride}], padding=[1, 1]}}",
            f"{name}.bn = batch_norm({name})"]


def resnet(blocks=4, width=8):
    """The blocks of the resnet family, narrow enough to train in seconds."""
    lines = ['x = placeholder() {role="images", dtype="f32", shape=[b, 16, 16, 3]}', 'y = placeholder() {role="labels", dtype="i32", shape=[b]}']
    lines += conv("stem", "x", width, 2) + ["stem.relu = relu(stem.bn)"]
    x = "stem.relu"
    for i in range(blocks):
        b = f"block.{i}"
        lines += conv(f"{b}.conv1", x, width) + [f"{b}.relu1 = relu({b}.conv1.bn)"] + conv(f"{b}.conv2", f"{b}.relu1", width)
        lines += [f"{b}.add = add({b}.conv2.bn, {x})", f"{b}.relu = relu({b}.add)"]
        x = f"{b}.relu"
    lines += [f"pool = global_avg_pool({x})", "fc = linear(pool) {out=10}", "loss = cross_entropy(fc, y)", "return loss"]
    return 'graph "small-resnet" {\n' + "\n".join(lines) + "\n}\n"


def branched(width=8):
    """Two branches of different depth over a stem, joined by concat, then a sum of two more."""
    lines = ['x = placeholder() {role="images", dtype="f32", shape=[b, 16, 16, 3]}', 'y = placeholder() {role="labels", dtype="i32", shape=[b]}']
    lines += conv("stem", "x", width, 2) + ["stem.relu = relu(stem.bn)"]
    lines += conv("left.a", "stem.relu", width) + ["left.relu = relu(left.a.bn)"]
    lines += conv("right.a", "stem.relu", width) + ["right.relu = relu(right.a.bn)"] + conv("right.b", "right.relu", width)
    lines += ["right.relu2 = relu(right.b.bn)", "join = concat(left.relu, right.relu2) {axis=3}"]
    lines += conv("merge", "join", width) + ["merge.relu = relu(merge.bn)"]
    lines += ["flat = flatten(merge.relu)", "up = linear(flat) {out=64}", "up.gelu = gelu(up)", "gate = linear(flat) {out=64}",
              "gate.tanh = tanh(gate)", "mixed = add(up.gelu, gate.tanh)", "head = linear(mixed) {out=10}", "loss = cross_entropy(head, y)",
              "return loss"]
    return 'graph "branched" {\n' + "\n".join(lines) + "\n}\n"


def indent(text, by):
    return "".join(" " * by + line + "\n" for line in text.splitlines())


SHAPES = """  data: {kind: shapes, shapes: {samples: 6000, imageSize: 16, numClasses: 10}, validation: {fraction: 0.3}}
"""


def image_training(batch, optimizer):
    return f"""    globalBatchSize: {batch}
    microBatchSize: {batch}
    optimizer: {optimizer}
    schedule: {{name: cosine, warmupSteps: 20}}
"""


class Model:
    """`spec` is the job's text, {seed} to be filled in; a cut lists for each executor the ops that it must run."""

    def __init__(self, spec, training, cuts):
        self.spec, self.training, self.cuts = spec, training, cuts


def gpt_cuts():
    def blocks(*numbers):
        return [f"block.{n}.*" for n in numbers]

    inside = {  # of block 1: what the first executor has of it, and the second
        "attention-input": (["block.1.ln_1", "block.1.attn.c_attn"],
                            ["block.1.attn", "block.1.attn.c_proj", "block.1.attn.add", "block.1.ln_2", "block.1.mlp.*"]),
        "norm": (["block.1.ln_1", "block.1.attn", "block.1.attn.*", "block.1.ln_2"], ["block.1.mlp.*"]),
        "hidden": (["block.1.ln_1", "block.1.attn", "block.1.attn.*", "block.1.ln_2", "block.1.mlp.c_fc", "block.1.mlp.gelu"],
                   ["block.1.mlp.c_proj", "block.1.mlp.add"]),
    }
    rear = ["ln_f", "lm_head", "loss"]
    everything = ["embed"] + blocks(0, 1, 2, 3)
    cuts = {
        "stream": [["embed"] + blocks(0, 1), blocks(2, 3) + rear],
        "stream-early": [["embed"], blocks(0, 1, 2, 3) + rear],
        "stream-late": [everything, rear],
        "stream-second": [["embed"] + blocks(0), blocks(1, 2, 3) + rear],
        "stream-last-but-one": [["embed"] + blocks(0, 1, 2), blocks(3) + rear],
        "stream-x3": [["embed"] + blocks(0), blocks(1), blocks(2), blocks(3) + rear],
        "stream-and-norm": [["embed"] + blocks(0, 1), blocks(2, 3) + ["ln_f"], ["lm_head", "loss"]],
        "final-norm": [everything + ["ln_f"], ["lm_head", "loss"]],
        "logits": [everything + ["ln_f", "lm_head"], ["loss"]],
    }
    for name, (front, back) in inside.items():
        cuts[name] = [["embed"] + blocks(0) + front, back + blocks(2, 3) + rear]
    return cuts


MODELS = {
    "gpt": Model("""  model: {family: gpt2, preset: tiny, config: {nLayer: 4, nHead: 2, nEmbd: 32}, init: {seed: SEED}}
  data: {kind: text, path: TEXT, validation: {fraction: 0.1}}
""", """    globalBatchSize: 16
    microBatchSize: 16
    sequenceLength: 32
    gradientClipNorm: 1.0
    optimizer: {name: adamw, learningRate: 4.0e-3, beta2: 0.95}
    schedule: {name: cosine, warmupSteps: 20}
""", gpt_cuts()),
    "resnet": Model("  model:\n    init: {seed: SEED}\n    graph:\n      inline: |\n" + indent(resnet(), 8) + SHAPES,
                    image_training(64, "{name: adamw, learningRate: 2.0e-3}"),
                    {
                        "stream": [["stem*", "block.0.*", "block.1.*"], ["block.2.*", "block.3.*", "pool", "fc", "loss"]],
                        "stream-x3": [["stem*", "block.0.*"], ["block.1.*"], ["block.2.*"], ["block.3.*", "pool", "fc", "loss"]],
                        "stream-early": [["stem*"], ["block.*", "pool", "fc", "loss"]],
                        "stream-late": [["stem*", "block.*"], ["pool", "fc", "loss"]],
                        "stream-second": [["stem*", "block.0.*"], ["block.1.*", "block.2.*", "block.3.*", "pool", "fc", "loss"]],
                        "stream-last-but-one": [["stem*", "block.0.*", "block.1.*", "block.2.*"], ["block.3.*", "pool", "fc", "loss"]],
                        "norm": [["stem*", "block.0.*", "block.1.conv1", "block.1.conv1.bn"],
                                 ["block.1.relu1", "block.1.conv2*", "block.1.add", "block.1.relu", "block.2.*", "block.3.*", "pool", "fc", "loss"]],
                        "hidden": [["stem*", "block.0.*", "block.1.conv1", "block.1.conv1.bn", "block.1.relu1"],
                                   ["block.1.conv2*", "block.1.add", "block.1.relu", "block.2.*", "block.3.*", "pool", "fc", "loss"]],
                        "pooled": [["stem*", "block.*", "pool"], ["fc", "loss"]],
                        "logits": [["stem*", "block.*", "pool", "fc"], ["loss"]],
                    }),
    "mlp": Model("  model: {family: mlp, config: {layers: [768, 96, 64, 64, 48, 10], activation: gelu}, init: {seed: SEED}}\n" + SHAPES,
                 image_training(64, "{name: adamw, learningRate: 1.0e-3}"),
                 {
                     "hidden": [["layers.0*", "layers.1", "layers.1.*"], ["layers.2*", "layers.3*", "layers.4", "loss"]],
                     "before-gelu": [["layers.0*", "layers.1"], ["layers.1.gelu", "layers.2*", "layers.3*", "layers.4", "loss"]],
                     "hidden-x2": [["layers.0*", "layers.1*"], ["layers.2*"], ["layers.3*", "layers.4", "loss"]],
                     "hidden-x3": [["layers.0*"], ["layers.1*"], ["layers.2*"], ["layers.3*", "layers.4", "loss"]],
                     "hidden-late": [["layers.0*", "layers.1*", "layers.2*", "layers.3*"], ["layers.4", "loss"]],
                     "logits": [["layers.*"], ["loss"]],
                 }),
    "branched": Model("  model:\n    init: {seed: SEED}\n    graph:\n      inline: |\n" + indent(branched(), 8) + SHAPES,
                      image_training(64, "{name: adamw, learningRate: 2.0e-3}"),
                      {
                          "branches": [["stem*", "left*", "right*"],
                                       ["join", "merge*", "flat", "up*", "gate*", "mixed", "head", "loss"]],
                          "stem": [["stem*"], ["left*", "right*", "join", "merge*", "flat", "up*", "gate*", "mixed", "head", "loss"]],
                          "sum": [["stem*", "left*", "right*", "join", "merge*", "flat", "up*", "gate*", "mixed"], ["head", "loss"]],
                          "logits": [["stem*", "left*", "right*", "join", "merge*", "flat", "up*", "gate*", "mixed", "head"], ["loss"]],
                      }),
}


def job(model, seed, steps, text):
    spec = MODELS[model].spec.replace("SEED", str(seed)).replace("TEXT", str(text))
    return f"""apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {{name: loss-cost}}
spec:
{spec}  training:
    steps: {steps}
    seed: {seed}
    evaluation: {{everySteps: {steps // 3}}}
{MODELS[model].training}"""


def settings_of(codec, guard):
    if codec == "none":
        return []
    codec, _, values = codec.partition(":")
    kind, _, ratio = codec.partition("@")
    if kind.startswith("tied-"):
        return ["spec.compression.policy=uniform", "spec.compression.codec=fp32", f"spec.compression.tiedGradients={kind[5:]}"]
    out = ["spec.compression.policy=uniform", f"spec.compression.codec={kind}", f"spec.compression.guard={guard}"]
    out += [f"spec.compression.ratio={ratio}"] if ratio else []
    return out + ([f"spec.compression.topkValues={values}"] if values else [])


HERE = """apiVersion: fusionllm.io/v1alpha1
kind: Topology
metadata: {name: here}
spec:
  sites:
  - name: local
    internal: {bandwidth: 10Gbit, latency: 0.1ms}
    devices: [{name: local-0}, {name: local-1}, {name: local-2}, {name: local-3}]
"""


def call(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(str(part) for part in command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def prepare(binaries, folder, models):
    """What all runs share: the text, and for each model a calibration, so that not every run makes its own."""
    (folder / "text.txt").write_text(words(7))
    (folder / "here.yaml").write_text(HERE)
    for model in models:
        (folder / f"{model}.yaml").write_text(job(model, 1, 300, folder / "text.txt"))
        call([binaries / "fusionctl", "bench", folder / f"{model}.yaml", "--calibrate", "--topology", folder / "here.yaml",
              "-o", folder / f"{model}.json"])


def run(binaries, folder, model, cut, codec, seed, steps, guard="none"):
    """Validation losses by step, and what the run says of its links. `folder`: prepare()'s."""
    executors = 1 if cut is None else len(MODELS[model].cuts[cut])
    text = job(model, seed, steps, folder / "text.txt")
    if cut is not None:
        pins = [f"    - {{ops: \"{ops}\", device: local-{i}}}" for i, group in enumerate(MODELS[model].cuts[cut]) for ops in group]
        text += f"  strategy:\n    stages: {executors}\n    pins:\n" + "\n".join(pins) + "\n"
    with tempfile.TemporaryDirectory(dir=folder) as own:
        path = pathlib.Path(own) / "job.yaml"
        path.write_text(text)
        command = [binaries / "fusionctl", "--format", "json", "run", path, "--device", ",".join(["cpu"] * executors), "--fresh",
                   "--no-checkpoint", "--output", pathlib.Path(own) / "out", "--profiles", folder / f"{model}.json"]
        for setting in ["spec.executors.threads=1"] + settings_of(codec, guard):
            command += ["--set", setting]
        lines = [json.loads(line) for line in call(command).splitlines()]
    losses = {line["step"]: line["loss"] for line in lines if line["type"] == "eval"}
    summary = next(line for line in lines if line["type"] == "summary")
    plan = next(line for line in lines if line["type"] == "plan")
    events = [line for line in lines if line["type"] == "event" and line["reason"] in ("CompressionBackoff", "Replanned")]
    forward = [link for link in plan["links"] if link["direction"] == "forward"]
    return {"eval": losses, "values": [link["values"] for link in forward], "kinds": [link["value_kinds"] for link in forward],
            "expected": plan["loss_cost"], "codecs": sorted({link["codec"] for link in plan["links"]}), "links": summary["links"],
            "events": [event["message"] for event in events]}


def measure(arguments):
    results = pathlib.Path(arguments.results)
    known = set()
    if results.exists():
        for line in results.read_text().splitlines():
            known.add(tuple(json.loads(line)["key"]))
    binaries = arguments.binaries.resolve()
    wanted = []
    for seed in arguments.seeds:
        wanted += [(model, None, "none", seed, arguments.steps) for model in arguments.models]
        wanted += [(model, cut, codec, seed, arguments.steps) for codec in arguments.codecs for model in arguments.models
                   for cut in MODELS[model].cuts if not arguments.cuts or cut in arguments.cuts]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(binaries, folder, arguments.models)

        def one(key):
            begin = time.time()
            try:
                result = run(binaries, folder, *key, guard=arguments.guard)
            except RuntimeError as error:
                print(error, file=sys.stderr, flush=True)
                return
            with results.open("a") as out:
                out.write(json.dumps({"key": key, **result}) + "\n")
            print(f"{key}: {result['eval'].get(arguments.steps)} {result['events']} {time.time() - begin:.0f} s", flush=True)

        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            for _ in pool.map(one, [key for key in wanted if key not in known]):
                pass
    return 0


def table(arguments):
    """A row for each cut, a column for each codec; of each cell the seeds in order."""
    rows = {}
    for name in arguments.files:
        for line in pathlib.Path(name).read_text().splitlines():
            row = json.loads(line)
            if row["key"][4] == arguments.steps:
                rows[tuple(row["key"][:4])] = row["eval"][str(arguments.steps)]
    codecs = sorted({key[2] for key in rows} - {"none"}, key=lambda codec: (codec not in CODECS, CODECS.index(codec) if codec in CODECS else codec))
    print("| model | cut | " + " | ".join(codecs) + " |")
    print("|---|---|" + "--:|" * len(codecs))
    for model, cut in sorted({key[:2] for key in rows if key[1] is not None}):
        seeds = sorted({key[3] for key in rows if key[0] == model})
        cells = [", ".join(f"{rows[model, cut, codec, seed] - rows[model, None, 'none', seed]:+.3f}" for seed in seeds
                           if (model, cut, codec, seed) in rows and (model, None, "none", seed) in rows) for codec in codecs]
        print(f"| {model} | {cut} | {' | '.join(cells)} |")
    print("\nUncompressed:")
    for model, _, _, seed in sorted(key for key in rows if key[1] is None):
        print(f"- {model}, seed {seed}: {rows[model, None, 'none', seed]:.3f} after {arguments.steps} steps")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure")
    one.add_argument("binaries", type=pathlib.Path)
    one.add_argument("--results", required=True)
    one.add_argument("--models", nargs="*", default=list(MODELS))
    one.add_argument("--cuts", nargs="*", default=[])
    one.add_argument("--codecs", nargs="*", default=CODECS)
    one.add_argument("--seeds", type=int, nargs="*", default=[1, 2])
    one.add_argument("--steps", type=int, default=300)
    one.add_argument("--guard", default="none", choices=["none", "warn", "auto"])
    one.add_argument("--jobs", type=int, default=2, help="runs at a time")
    two = commands.add_parser("table")
    two.add_argument("files", nargs="+")
    two.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    return measure(arguments) if arguments.command == "measure" else table(arguments)


if __name__ == "__main__":
    sys.exit(main())
