// A program of the system as a child of a test: found in the PATH, ended with SIGKILL when the test lets it go or dies.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "lib/base/mutex.h"

namespace fusionllm::monitoring {

// Path of a program: what the environment variable says, else what the PATH has; empty: there is none.
std::string FindProgram(const char* variable, const std::string& name);

class Child {
 public:
  Child(const std::string& program, std::vector<std::string> arguments);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // The first line on stdout or stderr that satisfies; empty: there was none until it ended or `timeout` was over.
  std::string WaitForLine(const std::function<bool(const std::string& line)>& wanted, absl::Duration timeout);
  // Until it ends by itself: its exit code, or 128 and the signal.
  int Wait();
  // All it has written so far.
  std::string Output();

 private:
  void Read();

  pid_t pid_ = -1;
  int out_ = -1;
  base::Mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread reader_;
};

}  // namespace fusionllm::monitoring
