// Memory of the emulated card: out of the host's reach but while an OpenDevice lives.
#pragma once

#include <mutex>

#include "lib/base/mutex.h"

namespace fusionllm::kernels::cuda::emulated {

// One at a time in a process; the second waits. Not for one thread to nest. For what looks at streams alone: opening the memory
// changes the protection of every page of it.
class DeviceLock {
 public:
  DeviceLock();

 private:
  std::unique_lock<base::Mutex> lock_;
};

// A DeviceLock that opens the memory.
class OpenDevice {
 public:
  OpenDevice();
  ~OpenDevice();

 private:
  DeviceLock lock_;
};

// All that streams were asked for, done: before memory goes.
void FinishAllStreams();

}  // namespace fusionllm::kernels::cuda::emulated
