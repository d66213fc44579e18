// Device profiles as an executor may have sent them or a user saved them.
#include <set>

#include "lib/base/testing/fuzz.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::wire {
namespace {

std::vector<std::string> Seeds() {
  const DeviceProfile a{
      .name = "a-0",
      .site = "a",
      .backend = "cpu",
      .threads = 2,
      .memory_bytes = int64_t{2} << 30,
      .compute_scale = 0.3,
      .ops = {{"linear{out=3}(f32[2, 4])", {.seconds = 1.0 / 3, .workspace_bytes = 64, .op_class = "matmul", .flops = 48}}},
      .update_seconds_per_element = 1e-9,
      .codecs = {{"int8", {.encode_seconds = 2e-10, .decode_seconds = 1e-10}}}};
  DeviceProfile b = a;
  b.name = "b-0";
  b.spare = true;
  return {PrintProfiles({.devices = {a, b}, .links = {{"a-0", "b-0", 0.08, 2.5e6}, {"b-0", "a-0", 0.08, 1.25e6}}})};
}

std::vector<std::string> Words() { return {"\"ops\":{}", "\"codecs\":{}", "\"links\":[]", "\"a-0\"", "1e-7", "1e16", "4097"}; }

bool Accepts(absl::string_view input) {
  const absl::StatusOr<ProfilesDocument> profiles = ParseProfiles(input);
  if (!profiles.ok()) {
    FUZZ_CHECK(!profiles.status().message().empty());
    return false;
  }
  std::set<std::string> names;
  for (const DeviceProfile& device : profiles->devices) FUZZ_CHECK(names.insert(device.name).second);
  for (const MeasuredLink& link : profiles->links) FUZZ_CHECK(names.contains(link.src) && names.contains(link.dst));
  const absl::StatusOr<ProfilesDocument> again = ParseProfiles(PrintProfiles(*profiles));
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(*again == *profiles);
  return true;
}

}  // namespace
}  // namespace fusionllm::wire

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {wire::Seeds, wire::Words, wire::Accepts}; }
