#include "lib/kernels/backend.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/kernels/cpu/cpu.h"
#ifdef FUSIONLLM_CUDA
#include "lib/kernels/cuda/cuda.h"
#endif
#include "lib/kernels/devices.h"
#include "lib/kernels/ref/reference.h"

namespace fusionllm::kernels {

namespace {

absl::StatusOr<std::unique_ptr<Backend>> CreateOnCard(int index, const BackendOptions& options) {
#ifdef FUSIONLLM_CUDA
  return cuda::CreateCudaBackend(index, options.deterministic ? cuda::AlgorithmChoice::kHeuristic : cuda::AlgorithmChoice::kMeasured);
#else
  return ChooseDevice(absl::StrCat("cuda:", index)).status();  // which says why not
#endif
}

}  // namespace

std::vector<absl::string_view> BackendNames() { return {"ref", "cpu"}; }

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(absl::string_view name, const BackendOptions& options) {
  constexpr int kMaxThreads = 1024;
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(absl::StrCat("a back end runs on 1 to ", kMaxThreads, " threads, not ", options.threads));
  }
  if (name == "cpu") return cpu::CreateCpuBackend(options);
  if (name == "ref") return ref::CreateReferenceBackend();
  if (const int card = CudaIndex(name); card >= 0) return CreateOnCard(card, options);
  return absl::NotFoundError(absl::StrCat("no back end '", name, "'; there are: ", absl::StrJoin(BackendNames(), ", ")));
}

}  // namespace fusionllm::kernels
