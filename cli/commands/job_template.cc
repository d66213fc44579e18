#include "cli/commands/job_template.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/job/printer.h"

namespace fusionllm::cli {
namespace {

using job::DataKind;
using job::Family;

// To the column where remarks begin.
std::string Padded(std::string line) {
  constexpr size_t kRemarks = 33;
  line.resize(std::max(line.size() + 1, kRemarks), ' ');
  return line;
}

std::string Model(const TemplateOptions& options) {
  switch (options.family) {
    case Family::kGpt2:
      return absl::StrCat("    family: gpt2                 # fusionctl explain spec.model.family lists the others\n",
                          Padded(absl::StrCat("    preset: ", options.preset.empty() ? "tiny" : options.preset)),
                          "# tiny: 0.8 million parameters in the blocks, seconds on a CPU; small (GPT-2's 124M), medium, large, xl\n",
                          options.data == DataKind::kText
                              ? "    config: {vocabSize: 256}     # as many as there are bytes\n"
                              : "    config: {vocabSize: 50257}   # as many as the tokenizer has: 50257 is GPT-2's\n",
                          "    # init: {from: hf}           # in place of preset and config: a checkpoint, or a folder of transformers "
                          "with model.safetensors\n");
    case Family::kResnet:
      return absl::StrCat("    family: resnet\n", Padded(absl::StrCat("    preset: ", options.preset.empty() ? "18" : options.preset)),
                          "# 18, 34, 50, 101 or 152\n    config: {stem: ",
                          options.data == DataKind::kCifar10 || options.data == DataKind::kShapes || options.data == DataKind::kIdx
                              ? "cifar, numClasses: 10}   # stem cifar: for small images; imagenet: for 224 pixels\n"
                              : "imagenet, numClasses: 10}\n");
    case Family::kMlp:
      return absl::StrCat("    family: mlp\n    config: {layers: [", options.data == DataKind::kIdx ? "784" : "3072",
                          ", 256, 10]}   # widths, input first: ",
                          options.data == DataKind::kIdx ? "28 x 28 gray pixels, as MNIST's" : "32 x 32 pixels of 3 channels",
                          ", to classes\n");
  }
  return "";
}

std::string Data(const TemplateOptions& options) {
  std::string text = absl::StrCat("    kind: ", job::ToString(options.data));
  switch (options.data) {
    case DataKind::kText:
      absl::StrAppend(&text, "                   # every byte of the files is a token; docs/tasks/prepare-data.md has the other kinds\n");
      break;
    case DataKind::kTokens:
      absl::StrAppend(
          &text, "                 # token ids as uint16 or uint32, little-endian; docs/tasks/prepare-data.md shows how to make them\n");
      break;
    case DataKind::kCifar10:
      absl::StrAppend(&text, "                # data_batch_*.bin of CIFAR-10's binary version\n");
      break;
    case DataKind::kIdx:
      absl::StrAppend(&text, "                    # pairs of idx files of images and labels, as MNIST's, not gzipped\n");
      break;
    case DataKind::kShapes:
      absl::StrAppend(&text,
                      "                 # images made up on the fly: nothing to download\n"
                      "    shapes: {samples: 10000, imageSize: 32, numClasses: 10}\n");
      break;
  }
  if (options.data != DataKind::kShapes) {
    std::vector<std::string> quoted;
    for (const std::string& path : options.paths) quoted.push_back(job::YamlText(path));
    absl::StrAppend(&text, "    path: [", absl::StrJoin(quoted, ", "),
                    "]   # files or folders, relative to this file, or s3://BUCKET/KEY\n");
  }
  absl::StrAppend(&text, "    validation: {fraction: 0.05} # of the samples, held out; or {path: [..]}\n");
  return text;
}

std::string Training(const TemplateOptions& options) {
  if (options.family == Family::kGpt2) {
    // Larger presets are GPT-2's own: its length of samples, and batches nearer to its 512 of them (Radford et al. 2019).
    const bool tiny = options.preset.empty() || options.preset == "tiny";
    return absl::StrCat(
        tiny ? "    steps: 200                   # there are no epochs: one is (tokens / (globalBatchSize x sequenceLength)) steps\n"
               "    globalBatchSize: 16          # samples in a step, over all devices\n"
             : "    steps: 1000                  # there are no epochs: one is (tokens / (globalBatchSize x sequenceLength)) steps\n"
               "    globalBatchSize: 64          # samples in a step, over all devices; GPT-2 had 512\n",
        "    microBatchSize: auto         # samples in one pass; a number: the same bits in every run\n",
        tiny ? "    sequenceLength: 128          # tokens in a sample\n"
             : "    sequenceLength: 1024         # tokens in a sample, as GPT-2's\n",
        "    # Learning rate by the model's size, warm-up, cosine and clipping are defaults of gpt2 (docs/reference/job-reference.md). To "
        "choose:\n"
        "    # optimizer: {name: adamw, learningRate: 1.0e-3, weightDecay: 0.1}\n"
        "    # schedule: {name: cosine, warmupSteps: 50, minLearningRate: 1.0e-4}\n",
        tiny ? "    # precision: bf16            # fp32 where it is left out\n"
             : "    # precision: bf16            # fp32 where it is left out; half the bytes for values, and matrix units on GPUs\n",
        "    evaluation: {everySteps: 50, batches: 4}\n");
  }
  return absl::StrCat(
      "    steps: 200                   # there are no epochs: one is (images / globalBatchSize) steps\n"
      "    globalBatchSize: 64          # images in a step, over all devices\n"
      "    microBatchSize: 16           # images in one pass",
      options.family == Family::kResnet ? ", of which batch norm takes its statistics" : "",
      "\n"
      "    optimizer: {name: sgd, learningRate: 0.05, momentum: 0.9, weightDecay: 5.0e-4}\n"
      "    schedule: {name: cosine, warmupSteps: 10}\n"
      "    evaluation: {everySteps: 50, batches: 4}\n");
}

}  // namespace

bool Suits(Family family, DataKind data) { return (family == Family::kGpt2) == job::IsOfTokens(data); }

std::string JobTemplate(const TemplateOptions& options) {
  const std::string name =
      options.name.empty() ? absl::StrCat(job::ToString(options.family), "-", job::ToString(options.data)) : options.name;
  return absl::StrCat(
      "# Check it without training: fusionctl run FILE --dry-run. Then: fusionctl run FILE\n"
      "# What a field means, and which others there are: fusionctl explain spec.training, docs/reference/job-reference.md\n"
      "apiVersion: fusionllm.io/v1alpha1\n"
      "kind: FusionJob\n"
      "metadata: {name: ",
      job::YamlText(name), "}\nspec:\n  model:\n", Model(options), "  data:\n", Data(options), "  training:\n", Training(options),
      "  # strategy: {stages: 2}         # where the planner is not to decide\n"
      "  # compression: {policy: adatopk} # of what crosses slow links; omitted: none\n"
      "  checkpoint: {path: checkpoints/, everySteps: 50, keep: 3}   # below the run's folder; from there a run that is started again goes "
      "on\n");
}

}  // namespace fusionllm::cli
