// Only one process of a run measures at a time: an exclusive lock on a file in the run's folder. Without a path, or where
// it cannot be opened, there is no lock. Blocks in the constructor.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <string>

namespace fusionllm::services {

class MachineLock {
 public:
  explicit MachineLock(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    while (fd_ >= 0 && flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~MachineLock() {
    if (fd_ >= 0) close(fd_);
  }
  MachineLock(const MachineLock&) = delete;
  MachineLock& operator=(const MachineLock&) = delete;

 private:
  const int fd_;
};

}  // namespace fusionllm::services
