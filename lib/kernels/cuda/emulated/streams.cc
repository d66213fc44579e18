// Streams, events and graphs: queues of work that is done when somebody waits for it.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/kernels/cuda/emulated/cuda_runtime.h"
#include "lib/kernels/cuda/emulated/device_memory.h"

namespace base = fusionllm::base;
namespace e = fusionllm::kernels::cuda::emulated;
using Work = std::function<void()>;

struct CUgraph_st {
  std::vector<Work> nodes;
};
struct CUgraphExec_st {
  std::vector<Work> nodes;
};

struct CUstream_st {
  std::deque<Work> queue;
  uint64_t asked = 0, done = 0;  // pieces of work
  CUgraph_st* capturing = nullptr;
  bool broken = false;  // somebody waited for it while it was captured
};

struct CUevent_st {
  CUstream_st* stream = nullptr;  // none: never recorded
  uint64_t position = 0;
  std::shared_ptr<std::chrono::steady_clock::time_point> passed;
};

namespace {

base::Mutex streams_mutex;  // of `streams` alone; taken before the device's where both are
std::set<CUstream_st*> streams ABSL_GUARDED_BY(streams_mutex);

// Until `position` pieces of the stream's work are done; where it waits for another stream, so far as that must be. With the device open.
void Advance(CUstream_st& stream, uint64_t position) {
  while (stream.done < position) {
    const Work work = std::move(stream.queue.front());
    stream.queue.pop_front();
    work();
    ++stream.done;
  }
}

cudaError_t Wait(CUstream_st& stream, uint64_t position) {
  const e::OpenDevice open;
  if (stream.capturing != nullptr) {
    stream.broken = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  Advance(stream, position);
  return cudaSuccess;
}

// With the device's lock.
void Ask(CUstream_st& stream, Work work) {
  if (stream.capturing != nullptr) {
    stream.capturing->nodes.push_back(std::move(work));
    return;
  }
  stream.queue.push_back(std::move(work));
  ++stream.asked;
}

}  // namespace

namespace fusionllm::kernels::cuda::emulated {

cudaError_t RunOnDevice(cudaStream_t stream, std::function<void()> work) {
  if (stream == nullptr) {
    const OpenDevice open;
    work();
  } else {
    const DeviceLock lock;
    Ask(*stream, std::move(work));
  }
  return cudaSuccess;
}

void FinishAllStreams() {
  const base::MutexLock lock(streams_mutex);
  {
    const DeviceLock device;
    if (std::ranges::all_of(streams, [](const CUstream_st* stream) { return stream->queue.empty(); })) return;
  }
  const OpenDevice open;
  for (CUstream_st* stream : streams) Advance(*stream, stream->asked);
}

}  // namespace fusionllm::kernels::cuda::emulated

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return e::RunOnDevice(stream, [=] {
    if (bytes > 0) std::memcpy(to, from, bytes);
  });
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind,
                              cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
  return e::RunOnDevice(stream, [=] {
    for (size_t row = 0; row < height; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * to_pitch, static_cast<const std::byte*>(from) + row * from_pitch, width);
    }
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return e::RunOnDevice(stream, [=] {
    if (bytes > 0) std::memset(to, value, bytes);
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  const base::MutexLock lock(streams_mutex);
  streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  e::FinishAllStreams();  // who waits for one of its events may wait
  {
    const base::MutexLock lock(streams_mutex);
    streams.erase(stream);
  }
  delete stream;
  return cudaSuccess;
}
// Who asks again and again waits as well.
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return stream == nullptr ? cudaSuccess : Wait(*stream, stream->asked); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const e::DeviceLock lock;
  if (stream != nullptr && stream->capturing != nullptr) return cudaErrorStreamCaptureUnsupported;  // it is on a card; not needed here
  auto passed = std::make_shared<std::chrono::steady_clock::time_point>();
  if (stream != nullptr) Ask(*stream, [passed] { *passed = std::chrono::steady_clock::now(); });
  *event = {.stream = stream, .position = stream == nullptr ? 0 : stream->asked, .passed = std::move(passed)};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return event->stream == nullptr ? cudaSuccess : Wait(*event->stream, event->position);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const e::DeviceLock lock;
  *milliseconds = std::chrono::duration<float, std::milli>(*to->passed - *from->passed).count();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const e::DeviceLock lock;
  if (event->stream == nullptr || event->stream == stream) return cudaSuccess;
  if (stream->capturing != nullptr) return cudaErrorStreamCaptureUnsupported;
  Ask(*stream, [awaited = *event] { Advance(*awaited.stream, awaited.position); });
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const e::DeviceLock lock;
  if (stream == nullptr || stream->capturing != nullptr) return cudaErrorStreamCaptureUnsupported;
  stream->capturing = new CUgraph_st;
  stream->broken = false;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const e::DeviceLock lock;
  if (stream->capturing == nullptr) return cudaErrorInvalidValue;
  *graph = std::exchange(stream->capturing, nullptr);
  if (!stream->broken) return cudaSuccess;
  delete std::exchange(*graph, nullptr);
  return cudaErrorStreamCaptureInvalidated;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const e::DeviceLock lock;
  if (stream == nullptr || stream->capturing != nullptr) return cudaErrorStreamCaptureUnsupported;
  for (const Work& node : exec->nodes) Ask(*stream, node);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
