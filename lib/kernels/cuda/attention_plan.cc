#include "lib/kernels/cuda/attention_plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/log.h"
#include "lib/base/log_once.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/measure.h"
#include "lib/tensor/memory.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr int kHopper = 9;

// Whether the first is faster, on tensors of zeros.
absl::StatusOr<bool> IsFasterPlan(Device& device, const AttentionSpec& spec, const AttentionPlan& first, const AttentionPlan& second) {
  constexpr int64_t kBytesOfBf16 = 2;
  const auto take = [&](int64_t bytes) { return AllocateZeroed(device, static_cast<size_t>(bytes)); };
  const bool backward = spec.pass == AttentionPass::kBackward;
  const int64_t y_bytes = kBytesOfBf16 * spec.rows() * spec.size;
  FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock qkv, take(3 * y_bytes));
  FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock y, take(y_bytes));
  FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock lse, take(static_cast<int64_t>(sizeof(float)) * spec.rows()));
  FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock dy, take(backward ? y_bytes : 0));
  FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock dqkv, take(backward ? 3 * y_bytes : 0));
  FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock workspace,
                             take(static_cast<int64_t>(std::max(first.workspace_bytes(), second.workspace_bytes()))));
  const AttentionTensors tensors = {qkv.data(), y.data(), reinterpret_cast<float*>(lse.data()), dy.data(), dqkv.data()};
  // One that fails is left out below, and is to be reported.
  FUSIONLLM_RETURN_IF_ERROR(first.Run(tensors, workspace.data()));
  const std::array<const AttentionPlan*, 2> plans = {&first, &second};
  FUSIONLLM_ASSIGN_OR_RETURN(const size_t fastest,
                             FastestOf(device, plans.size(), [&](size_t i) { return plans[i]->Run(tensors, workspace.data()); }));
  return fastest == 0;
}

// Measured once in the process for a spec and a card: ops of one shape share the answer.
bool LibraryIsFaster(Device& device, const AttentionSpec& spec, const AttentionPlan& library, const AttentionPlan& own) {
  static base::Mutex mutex;
  static auto* const measured ABSL_PT_GUARDED_BY(mutex) = new std::map<std::pair<int, AttentionSpec>, bool>;
  const base::MutexLock lock(mutex);
  const std::pair key(device.info().index, spec);
  if (const auto found = measured->find(key); found != measured->end()) return found->second;
  const absl::StatusOr<bool> faster = IsFasterPlan(device, spec, library, own);
  if (!faster.ok()) {
    // For lack of memory, or because the library does not run what it has planned: no reason not to train.
    base::Log(base::LogLevel::kWarning,
              absl::StrCat("measuring ", spec.ToString(), " failed; taking the kernels of FusionLLM: ", faster.status().message()));
  }
  return measured->emplace(key, faster.ok() && *faster).first->second;
}

}  // namespace

std::string AttentionSpec::ToString() const {
  return absl::StrFormat("%s of [%d, %d] tokens with %d heads of %d",
                         pass == AttentionPass::kForward ? "attention" : "the gradient of attention", batch, length, heads, size);
}

bool AttentionFitsTensorCores(int64_t size) { return size % 16 == 0 && size <= 128; }

AttentionPlanOrError PrepareAttention(Device& device, const AttentionSpec& spec) {
  std::unique_ptr<AttentionPlan> own = PrepareTensorCoreAttention(device, spec);
  const bool measure = device.algorithm_choice() == AlgorithmChoice::kMeasured;
  if (!measure && (spec.pass == AttentionPass::kBackward || device.info().major < kHopper)) return own;
  AttentionPlanOrError library = PrepareCudnnAttention(device, spec);
  if (absl::IsFailedPrecondition(library.status())) {  // worth a line, and no warning
    base::LogOnce(base::LogLevel::kInfo, absl::StrCat("attention by kernels of FusionLLM: ", library.status().message()));
    return own;
  }
  if (absl::IsUnimplemented(library.status())) {
    base::LogOnce(base::LogLevel::kWarning,
                  absl::StrCat(spec.ToString(), " by kernels of FusionLLM: cuDNN has no way: ", library.status().message()));
    return own;
  }
  if (library.ok() && measure && !LibraryIsFaster(device, spec, **library, *own)) return own;
  return library;
}

}  // namespace fusionllm::kernels::cuda
