#include "lib/workload/forward_graph.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/job/model_config.h"
#include "lib/models/family.h"
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

}  // namespace

absl::StatusOr<opdag::Graph> BuildForwardGraph(const job::FusionJob& job, const std::string& base_directory) {
  FUSIONLLM_ASSIGN_OR_RETURN(const job::ResolvedModel model, job::ResolveModel(job.spec));
  if (model.family != nullptr) return model.family->Build(model.sizes, job.spec.training.sequence_length);
  const std::optional<job::GraphSource>& source = job.spec.model.graph;
  std::string name = "spec.model.graph.inline", text = source->inline_text.value_or("");
  if (!source->inline_text.has_value()) {
    name = *source->file;
    FUSIONLLM_ASSIGN_OR_RETURN(text, ReadGraphFile(base_directory, name));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const opdag::Graph graph, opdag::ParseGraph(text, name));
  absl::StatusOr<opdag::Graph> weighed = opdag::AddTargetWeights(graph);
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
