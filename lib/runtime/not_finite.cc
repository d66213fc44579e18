#include "lib/runtime/not_finite.h"

#include "absl/strings/cord.h"

namespace fusionllm::runtime {
namespace {

constexpr char kMark[] = "fusionllm/not_finite";

}  // namespace

absl::Status NotFiniteError(const std::string& message) {
  absl::Status status = absl::DataLossError(message);
  status.SetPayload(kMark, absl::Cord("1"));
  return status;
}

bool IsNotFinite(const absl::Status& status) { return status.GetPayload(kMark).has_value(); }

}  // namespace fusionllm::runtime
