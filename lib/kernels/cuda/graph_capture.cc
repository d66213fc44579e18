#include "lib/kernels/cuda/graph_capture.h"

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace fusionllm::kernels::cuda {
namespace {

class StreamTimingEvent final : public TimingEvent {
 public:
  ~StreamTimingEvent() override {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  absl::Status Set(cudaStream_t stream) {
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaEventCreateWithFlags(&event_, cudaEventBlockingSync), "making an event"));
    return ToStatus(cudaEventRecord(event_, stream), "recording an event");
  }
  absl::StatusOr<double> SecondsSince(const TimingEvent& earlier) const override {
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(event_), "waiting for the device"));
    float milliseconds = 0;
    FUSIONLLM_RETURN_IF_ERROR(
        ToStatus(cudaEventElapsedTime(&milliseconds, static_cast<const StreamTimingEvent&>(earlier).event_, event_), "timing the device"));
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaGraph final : public CapturedGraph {
 public:
  CudaGraph(Device& device, cudaGraphExec_t graph) : device_(device), graph_(graph) {}
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  absl::Status Replay() override { return ToStatus(cudaGraphLaunch(graph_, device_.stream()), "starting recorded kernels"); }

 private:
  Device& device_;
  const cudaGraphExec_t graph_;
};

absl::Status NotRecorded(cudaError_t why) {
  cudaGetLastError();  // so that no later call takes it for its own
  return absl::UnimplementedError(absl::StrCat("kernels that cannot be recorded: ", cudaGetErrorString(why)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TimingEvent>> RecordTimingEvent(Device& device) {
  auto mark = std::make_unique<StreamTimingEvent>();
  FUSIONLLM_RETURN_IF_ERROR(mark->Set(device.stream()));
  return mark;
}

absl::StatusOr<std::unique_ptr<CapturedGraph>> CaptureStream(Device& device, absl::FunctionRef<absl::Status()> run) {
  // Other threads may go on with other streams, and with memory.
  if (const cudaError_t begun = cudaStreamBeginCapture(device.stream(), cudaStreamCaptureModeThreadLocal); begun != cudaSuccess) {
    return NotRecorded(begun);
  }
  // Whatever fails here may do so because it is recorded. Who then runs it as it is gets its own errors.
  const absl::Status asked = run();
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(device.stream(), &graph);
  if (!asked.ok()) {
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();  // so that no later call takes it for its own
    return absl::UnimplementedError(absl::StrCat("kernels that cannot be recorded: ", asked.message()));
  }
  if (ended != cudaSuccess || graph == nullptr) return NotRecorded(ended);
  cudaGraphExec_t exec = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  if (made != cudaSuccess) return NotRecorded(made);
  return std::make_unique<CudaGraph>(device, exec);
}

}  // namespace fusionllm::kernels::cuda
