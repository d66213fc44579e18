#include "lib/models/mlp/graph.h"

#include "absl/strings/str_cat.h"
#include "lib/opdag/graph_builder.h"

namespace fusionllm::models {

using opdag::Graph;
using opdag::GraphBuilder;
using opdag::kBatch;
using opdag::ValueId;

absl::StatusOr<Graph> BuildMlp(const MlpOptions& options) {
  constexpr size_t kMaxLayers = 10'000;
  constexpr int64_t kMaxWidth = 1 << 28;
  if (options.layers.size() < 2 || options.layers.size() > kMaxLayers) {
    return absl::InvalidArgumentError(
        absl::StrCat("mlp: layers lists ", options.layers.size(), " widths; 2 to ", kMaxLayers, " are possible"));
  }
  for (const int64_t width : options.layers) {
    if (width < 1 || width > kMaxWidth)
      return absl::InvalidArgumentError(absl::StrCat("mlp: a layer of width ", width, " is not possible"));
  }
  const std::string& activation = options.activation;
  if (activation != "relu" && activation != "gelu" && activation != "tanh" && activation != "sigmoid") {
    return absl::InvalidArgumentError(absl::StrCat("mlp: activation '", activation, "' is unknown; relu, gelu, tanh or sigmoid"));
  }

  GraphBuilder builder("mlp");
  ValueId x = builder.Placeholder("images", "images", "f32", {kBatch, options.layers[0]});
  const ValueId labels = builder.Placeholder("labels", "labels", "i32", {kBatch});
  for (size_t i = 1; i < options.layers.size() && builder.status().ok(); ++i) {
    const std::string name = absl::StrCat("layers.", i - 1);
    x = builder.Add(name, "linear", {x}, {{"out", options.layers[i]}, {"layout", std::string("oi")}, {"bias", true}});
    if (i + 1 < options.layers.size()) x = builder.Add(absl::StrCat(name, ".", activation), activation, {x});
  }
  return builder.Finish(builder.Add("loss", "cross_entropy", {x, labels}));
}

}  // namespace fusionllm::models
