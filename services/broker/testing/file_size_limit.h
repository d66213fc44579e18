// A disk that is full, for tests: of the whole process, so for one test at a time.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

namespace fusionllm::services {

// No file of this process may grow beyond `bytes` while it lives: writes then end half-way, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : former_handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &former_);
    const rlimit limit = {bytes, former_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &former_);
    signal(SIGXFSZ, former_handler_);
  }

 private:
  rlimit former_ = {};
  void (*former_handler_)(int);
};

}  // namespace fusionllm::services
