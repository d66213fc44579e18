#include "lib/kernels/cuda/measure.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "lib/base/status_macros.h"

namespace fusionllm::kernels::cuda {
namespace {

// Several at a time, so that starting them costs little beside what they do; the best of several such rounds, because others may disturb
// one.
constexpr int kRounds = 3;
constexpr int kRunsInARound = 5;

absl::Status Wait(Device& device) { return ToStatus(cudaStreamSynchronize(device.stream()), "measuring on the device"); }

absl::StatusOr<int64_t> Measure(Device& device, size_t way, absl::FunctionRef<absl::Status(size_t)> run,
                                absl::FunctionRef<int64_t()> now_ns) {
  FUSIONLLM_RETURN_IF_ERROR(run(way));  // whatever the first run loads is not measured
  FUSIONLLM_RETURN_IF_ERROR(Wait(device));
  int64_t best_ns = std::numeric_limits<int64_t>::max();
  for (int round = 0; round < kRounds; ++round) {
    const int64_t begin_ns = now_ns();
    for (int i = 0; i < kRunsInARound; ++i) FUSIONLLM_RETURN_IF_ERROR(run(way));
    FUSIONLLM_RETURN_IF_ERROR(Wait(device));
    best_ns = std::min(best_ns, now_ns() - begin_ns);
  }
  return best_ns;
}

}  // namespace

int64_t SteadyNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

absl::StatusOr<tensor::MemoryBlock> AllocateZeroed(Device& device, size_t bytes) {
  FUSIONLLM_ASSIGN_OR_RETURN(tensor::MemoryBlock block, device.memory().Allocate(bytes));
  FUSIONLLM_RETURN_IF_ERROR(device.memory().Zero(block.data(), block.size()));
  return block;
}

absl::StatusOr<size_t> FastestOf(Device& device, size_t ways, absl::FunctionRef<absl::Status(size_t)> run,
                                 absl::FunctionRef<int64_t()> now_ns) {
  absl::StatusOr<size_t> fastest = absl::InvalidArgumentError("there is nothing to measure");
  int64_t min_ns = std::numeric_limits<int64_t>::max();
  for (size_t way = 0; way < ways; ++way) {
    const absl::StatusOr<int64_t> took_ns = Measure(device, way, run, now_ns);
    if (!took_ns.ok()) {
      if (!fastest.ok()) fastest = took_ns.status();
    } else if (*took_ns < min_ns) {
      min_ns = *took_ns;
      fastest = way;
    }
  }
  return fastest;
}

}  // namespace fusionllm::kernels::cuda
