// Times in objects that others have written.
#include "lib/base/testing/fuzz.h"
#include "lib/kube/api/time.h"

namespace fusionllm::kube {
namespace {

std::vector<std::string> Seeds() { return {"2024-05-06T07:08:09Z", "2024-05-06T07:08:09.000001Z", "1970-01-01T00:00:00+23:59"}; }

std::vector<std::string> Words() { return {"infinite-future", "Z", "T", "+01:00", "-", ".", " ", "9999999999"}; }

bool Accepts(absl::string_view input) {
  const absl::StatusOr<absl::Time> time = TimeFromText(input);
  if (!time.ok()) {
    FUZZ_CHECK(!time.status().message().empty());
    return false;
  }
  FUZZ_CHECK(*time != absl::InfiniteFuture() && *time != absl::InfinitePast());
  // To the microsecond, what is written reads back, as long as the year has four digits.
  const absl::Time cut = absl::FromUnixMicros(absl::ToUnixMicros(*time));
  const std::string text = MicroTimeText(cut);
  if (text.size() == 27) {
    const absl::StatusOr<absl::Time> again = TimeFromText(text);
    FUZZ_CHECK(again.ok() && *again == cut);
  }
  return true;
}

}  // namespace
}  // namespace fusionllm::kube

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {kube::Seeds, kube::Words, kube::Accepts}; }
