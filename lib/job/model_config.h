// The model that a job means: preset and overrides resolved to concrete sizes.
//
// Pure functions, thread-safe. Sizes of gpt2 presets: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, table 2;
// tiny is ours. ResNet depths: He et al., arXiv 1512.03385, table 1.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/job/fusion_job.h"

namespace fusionllm::job {

struct GptConfig {
  int64_t n_layer = 0, n_head = 0, n_embd = 0;  // n_embd is a multiple of n_head
  int64_t vocab_size = 0;
  int64_t block_size = 0;  // positions
  bool tie_weights = true;
  bool operator==(const GptConfig&) const = default;
};

struct ResNetConfig {
  int64_t depth = 0;  // 18, 34, 50, 101 or 152
  Stem stem = Stem::kCifar;
  int64_t num_classes = 0;
  int64_t image_size = 0;  // pixels of a side
  bool operator==(const ResNetConfig&) const = default;
};

struct MlpConfig {
  std::vector<int64_t> layers;  // widths, input first; at least two
  Activation activation = Activation::kRelu;
  bool operator==(const MlpConfig&) const = default;
};

// A graph given as text: its source, still to be read.
using ResolvedModel = std::variant<GptConfig, ResNetConfig, MlpConfig, GraphSource>;

// Errors: InvalidArgument, one finding a line ("spec.model.config.nHead: ..."); never for a job that ParseFusionJob returned.
// Limit: 10^12 parameters.
absl::StatusOr<ResolvedModel> ResolveModel(const Spec& spec);

// The values of spec.model.preset; none for family mlp.
std::vector<std::string> PresetsOf(Family family);

}  // namespace fusionllm::job
