#include "services/executor/out_of_memory.h"

#include <string>

#include "absl/strings/str_format.h"
#include "lib/tensor/memory.h"

namespace fusionllm::services {
namespace {

std::string Gibibytes(int64_t bytes) { return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / (int64_t{1} << 30)); }

}  // namespace

absl::Status AnnotateOutOfMemory(const absl::Status& status, const plan::Stage& stage, int64_t device_bytes) {
  if (!tensor::IsOutOfMemory(status)) return status;
  std::string text(status.message());
  absl::StrAppendFormat(&text, "; the plan counts on %s for stage %d", Gibibytes(stage.memory_bytes), stage.index);
  if (device_bytes > 0) absl::StrAppendFormat(&text, " of a device with %s", Gibibytes(device_bytes));
  absl::StrAppend(&text,
                  stage.memory_bytes > device_bytes && device_bytes > 0 ? ": that is too much for it"
                                                                        : ": others may be using the device, or the plan counts too low",
                  "; a smaller spec.training.microBatchSize, spec.training.recompute: full or more stages need less");
  return tensor::OutOfMemoryError(text);
}

}  // namespace fusionllm::services
