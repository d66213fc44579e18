// A program of the system as a child of a test, for runs that `fusionctl` would not start.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/run/child_process.h"

namespace fusionllm::integration {

// Its stdout is read line by line, its stderr appended to a file. All waiting is for a condition, two minutes at most. The destructor
// kills and reaps. Not thread-safe.
class Program {
 public:
  // Starts FUSIONLLM_BIN_DIR/NAME in `folder`, or where the test is. A failure to start ends the test process.
  Program(const std::string& name, std::vector<std::string> arguments, const std::string& log, const std::string& folder = "");

  // The first line, after those passed by before, that is wanted; empty: it ended, or time ran out.
  std::string WaitFor(const std::function<bool(const std::string&)>& wanted);
  // Likewise of lines that are JSON objects; null: there was none.
  nlohmann::json WaitForJson(const std::function<bool(const nlohmann::json&)>& wanted);
  std::string Address();  // where it says that it listens
  // Reads its lines until then; false: it has closed its stdout before.
  bool ReadUntil(absl::Time deadline);
  // Reads to the end and reaps: exit code; -1 where a signal ended it, or nothing did in time.
  int Wait();
  void Signal(int signal) { child_->Signal(signal); }

  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::optional<cli::ChildProcess> child_;
  cli::LineReader reader_;
  bool open_ = true;
  std::vector<std::string> lines_;
  size_t next_ = 0;
};

}  // namespace fusionllm::integration
