// Quantities as nodes and Pods of a cluster that is not ours state them.
#include "lib/base/testing/fuzz.h"
#include "lib/kube/api/quantity.h"

namespace fusionllm::kube {
namespace {

std::vector<std::string> Seeds() { return {"500m", "2Gi", "1e3", "-1.5k", "9223372036854775807", "0.000000001E"}; }

std::vector<std::string> Words() { return {"Ki", "Ei", "E", "e", "n", "u", "m", ".", "-", "+", "e-30", "e30", "000000"}; }

bool Accepts(absl::string_view input) {
  const absl::StatusOr<int64_t> whole = ParseQuantity(input);
  const absl::StatusOr<int64_t> milli = ParseQuantity(input, 1000);
  FUZZ_CHECK(whole.ok() || !whole.status().message().empty());
  // A finer unit may not fit where a coarser does; where both do, they agree.
  if (whole.ok() && milli.ok()) {
    const int64_t rounded = *milli / 1000 + (*milli % 1000 > 0) - (*milli % 1000 < 0);
    FUZZ_CHECK(rounded == *whole);
  }
  FUZZ_CHECK(whole.ok() || !milli.ok());
  return whole.ok();
}

}  // namespace
}  // namespace fusionllm::kube

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {kube::Seeds, kube::Words, kube::Accepts}; }
