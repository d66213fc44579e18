#include "lib/data/config.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace fusionllm::data {
namespace {

// Indexed by the enum's values.
constexpr std::array<absl::string_view, 5> kNames = {"text", "tokens", "cifar10", "idx", "shapes"};

}  // namespace

absl::string_view Name(DatasetKind kind) { return kNames[static_cast<size_t>(kind)]; }

absl::StatusOr<DatasetKind> ParseDatasetKind(absl::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<DatasetKind>(i);
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown data kind '", name, "'; known: text tokens cifar10 idx shapes"));
}

}  // namespace fusionllm::data
