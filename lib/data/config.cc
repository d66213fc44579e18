#include "lib/data/config.h"

#include <array>

namespace fusionllm::data {
namespace {

// Indexed by the enum's values.
constexpr std::array<absl::string_view, 5> kNames = {"text", "tokens", "cifar10", "idx", "shapes"};

}  // namespace

absl::string_view Name(DatasetKind kind) { return kNames[static_cast<size_t>(kind)]; }

}  // namespace fusionllm::data
