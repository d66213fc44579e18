// Memory of the emulated card: out of the host's reach but while an OpenDevice lives.
#pragma once

#include <mutex>

namespace fusionllm::kernels::cuda::emulated {

// One at a time in a process; whoever comes second waits. Not for one thread to nest.
class OpenDevice {
 public:
  OpenDevice();
  ~OpenDevice();

 private:
  std::unique_lock<std::mutex> lock_;
};

// All that streams were asked for, done: before memory goes.
void FinishAllStreams();

}  // namespace fusionllm::kernels::cuda::emulated
