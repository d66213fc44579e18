#include "lib/tensor/dtype.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fusionllm::tensor {
namespace {

struct Entry {
  absl::string_view name;
  size_t size;
  bool floating;
};

// Indexed by the enum's values.
constexpr std::array<Entry, 6> kEntries = {
    {{"f32", 4, true}, {"f16", 2, true}, {"bf16", 2, true}, {"i32", 4, false}, {"i64", 8, false}, {"u8", 1, false}}};

}  // namespace

size_t SizeOf(DType dtype) { return kEntries[static_cast<size_t>(dtype)].size; }
absl::string_view Name(DType dtype) { return kEntries[static_cast<size_t>(dtype)].name; }
bool IsFloating(DType dtype) { return kEntries[static_cast<size_t>(dtype)].floating; }

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  for (size_t i = 0; i < kEntries.size(); ++i) {
    if (kEntries[i].name == name) return static_cast<DType>(i);
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown dtype '", name, "'; known: f32 f16 bf16 i32 i64 u8"));
}

}  // namespace fusionllm::tensor
