#include "lib/broker/min_model_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/scheduler/text_format.h"

namespace fusionllm::broker {
namespace {

constexpr size_t kMaxNamed = 8;

std::string Size(int64_t bytes) { return scheduler::SizeText(static_cast<double>(bytes)); }

std::string Limits(const std::vector<DeviceMemory>& devices) {
  std::string text;
  for (size_t i = 0; i < std::min(devices.size(), kMaxNamed); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", devices[i].name, " ", Size(devices[i].bytes));
  }
  return devices.size() <= kMaxNamed ? text : absl::StrCat(text, " and ", devices.size() - kMaxNamed, " more");
}

constexpr char kOrSmaller[] = ", or train a smaller model";

}  // namespace

std::string DescribeInsufficientMemory(const MinModelMemory& required, const std::vector<DeviceMemory>& devices) {
  int64_t largest = 0, all = 0;
  for (const DeviceMemory& device : devices) {
    if (device.bytes <= 0) return "";
    largest = std::max(largest, device.bytes);
    all += device.bytes;
  }
  if (devices.empty()) return "";
  if (required.largest_bytes > largest) {
    return absl::StrFormat(
        "the stage with %s needs %s at least, for parameters, gradients and the optimizer's state; the limit is %s (%s)%s",
        required.largest, Size(required.largest_bytes), Size(largest), Limits(devices), scheduler::MemoryRemedy(kOrSmaller));
  }
  if (required.all_bytes > all) {
    return absl::StrFormat(
        "the model needs %s at least, for parameters, gradients and the optimizer's state; the limits add up to %s (%s)%s",
        Size(required.all_bytes), Size(all), Limits(devices),
        scheduler::MemoryRemedy(absl::StrCat(", let more executors take part", kOrSmaller)));
  }
  return "";
}

}  // namespace fusionllm::broker
