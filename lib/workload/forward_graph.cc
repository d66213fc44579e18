#include "lib/workload/forward_graph.h"

#include <filesystem>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/job/model_config.h"
#include "lib/models/gpt2/graph.h"
#include "lib/models/mlp/graph.h"
#include "lib/models/resnet/graph.h"
#include "lib/opdag/op_position.h"
#include "lib/opdag/target_weights.h"
#include "lib/opdag/text.h"

namespace fusionllm::workload {
namespace {

constexpr int64_t kMaxGraphBytes = int64_t{16} << 20;

absl::StatusOr<std::string> ReadGraphFile(const std::string& base_directory, const std::string& file) {
  const std::filesystem::path path = std::filesystem::path(base_directory) / file;
  absl::StatusOr<std::string> text = base::ReadSmallFile(path.string(), kMaxGraphBytes);
  if (!text.ok()) return absl::Status(text.status().code(), absl::StrCat("spec.model.graph.file: ", text.status().message()));
  return text;
}

// "model.dag:4:3: "; empty where the position is.
std::string Placed(absl::string_view name, absl::string_view position) {
  return position.empty() ? "" : absl::StrCat(name, ":", position, ": ");
}

absl::StatusOr<opdag::Graph> BuildFamily(const job::Spec& spec, const job::ResolvedModel& model) {
  if (const auto* gpt = std::get_if<job::GptConfig>(&model)) {
    return models::BuildGpt2({.layers = gpt->n_layer,
                             .heads = gpt->n_head,
                             .embd = gpt->n_embd,
                             .vocab = gpt->vocab_size,
                             .positions = gpt->block_size,
                             .sequence = spec.training.sequence_length,
                             .tied = gpt->tie_weights});
  }
  if (const auto* resnet = std::get_if<job::ResNetConfig>(&model)) {
    return models::BuildResNet({.depth = static_cast<int>(resnet->depth),
                               .stem = resnet->stem == job::Stem::kCifar ? "cifar" : "imagenet",
                               .num_classes = resnet->num_classes,
                               .image_size = resnet->image_size});
  }
  const auto& mlp = std::get<job::MlpConfig>(model);
  return models::BuildMlp({.layers = mlp.layers, .activation = job::ToString(mlp.activation)});
}

}  // namespace

absl::StatusOr<opdag::Graph> BuildForwardGraph(const job::FusionJob& job, const std::string& base_directory) {
  FUSIONLLM_ASSIGN_OR_RETURN(const job::ResolvedModel model, job::ResolveModel(job.spec));
  const auto* source = std::get_if<job::GraphSource>(&model);
  if (source == nullptr) return BuildFamily(job.spec, model);
  std::string name = "spec.model.graph.inline", text = source->inline_text.value_or("");
  if (!source->inline_text.has_value()) {
    name = *source->file;
    FUSIONLLM_ASSIGN_OR_RETURN(text, ReadGraphFile(base_directory, name));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const opdag::Graph graph, opdag::ParseGraph(text, name));
  absl::StatusOr<opdag::Graph> weighed = opdag::WeighTargets(graph);
  if (weighed.ok()) return weighed;
  const absl::string_view finding = weighed.status().message();
  return absl::Status(weighed.status().code(), absl::StrCat(Placed(name, opdag::PositionOfOp(text, NamedOp(finding))), finding));
}

std::string NamedOp(absl::string_view finding) {
  if (!absl::ConsumePrefix(&finding, "op '")) return "";
  return std::string(finding.substr(0, finding.find('\'')));
}

std::string PlaceOfOp(const job::FusionJob& job, const std::string& base_directory, absl::string_view op) {
  const std::optional<job::GraphSource>& source = job.spec.model.graph;
  if (!source.has_value()) return "";
  std::string name = "spec.model.graph.inline", text;
  if (source->inline_text.has_value()) {
    text = *source->inline_text;
  } else {
    name = source->file.value_or("");
    text = ReadGraphFile(base_directory, name).value_or("");
  }
  return Placed(name, opdag::PositionOfOp(text, op));
}

}  // namespace fusionllm::workload
