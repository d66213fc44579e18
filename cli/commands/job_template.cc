#include "cli/commands/job_template.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/job/printer.h"

namespace fusionllm::cli {
namespace {

using job::DataKind;

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

}  // namespace

std::string JobTemplate(const TemplateOptions& options) {
  const models::JobTemplate of_family = options.family->Template(options.data, options.preset);
  const std::string name = options.name.empty() ? absl::StrCat(options.family->name(), "-", job::ToString(options.data)) : options.name;
  return absl::StrCat(
      "# Check it without training: fusionctl run FILE --dry-run. Then: fusionctl run FILE\n"
      "# What a field means, and which others there are: fusionctl explain spec.training, docs/reference/job-reference.md\n"
      "apiVersion: fusionllm.io/v1alpha1\n"
      "kind: FusionJob\n"
      "metadata: {name: ",
      job::YamlText(name), "}\nspec:\n  model:\n", of_family.model, "  data:\n", Data(options), "  training:\n", of_family.training,
      "  # strategy: {stages: 2}         # where the planner is not to decide\n"
      "  # compression: {policy: adatopk} # of what crosses slow links; omitted: none\n"
      "  checkpoint: {path: checkpoints/, everySteps: 50, keep: 3}   # below the run's folder; from there a run that is started again goes "
      "on\n");
}

}  // namespace fusionllm::cli
