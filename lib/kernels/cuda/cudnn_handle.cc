#include "lib/kernels/cuda/cudnn_handle.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"

namespace fusionllm::kernels::cuda {
namespace {

// Handles that no Device has now, each of the card that was current when it was made. They are never closed: plans that are kept for the
// process were made with them.
class FreeHandles {
 public:
  absl::StatusOr<cudnnHandle_t> Take(const CudnnLibrary& library, int card) {
    {
      const base::MutexLock lock(mutex_);
      std::vector<cudnnHandle_t>& handles = handles_[card];
      if (!handles.empty()) {
        const cudnnHandle_t handle = handles.back();
        handles.pop_back();
        return handle;
      }
    }
    cudnnHandle_t handle = nullptr;
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(library, library.create(&handle), "opening cuDNN"));
    return handle;
  }
  void Give(cudnnHandle_t handle, int card) {
    const base::MutexLock lock(mutex_);
    handles_[card].push_back(handle);
  }

 private:
  base::Mutex mutex_;
  std::map<int, std::vector<cudnnHandle_t>> handles_ ABSL_GUARDED_BY(mutex_);  // by card
};

}  // namespace

absl::StatusOr<const CudnnHandle*> CudnnOf(Device& device) {
  static auto* const free = new FreeHandles;
  std::shared_ptr<void>& kept = device.LibraryState("cudnn");
  if (kept == nullptr) {
    if (!LoadedCudnn().ok()) return LoadedCudnn().status();
    const CudnnLibrary& library = *LoadedCudnn();
    FUSIONLLM_ASSIGN_OR_RETURN(const cudnnHandle_t handle, free->Take(library, device.info().index));
    std::shared_ptr<CudnnHandle> cudnn(new CudnnHandle{library, handle}, [card = device.info().index](CudnnHandle* gone) {
      free->Give(gone->handle, card);
      delete gone;
    });
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(library, library.set_stream(handle, device.stream()), "giving cuDNN a stream"));
    kept = std::move(cudnn);
  }
  return static_cast<const CudnnHandle*>(kept.get());
}

}  // namespace fusionllm::kernels::cuda
