// fusionctl as a child of a test, read line by line. All waiting is for a condition, with a limit; nothing sleeps.
//
// The test process becomes the reaper of orphans (PR_SET_CHILD_SUBREAPER), so that "no process is left" is exact: when waitpid knows no
// child any more, none of the run's processes lives. Not thread-safe; one child at a time.
#pragma once

#include <sys/types.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace fusionllm::integration {

class FusionctlChild {
 public:
  using Wanted = std::function<bool(const nlohmann::json&)>;

  // Starts FUSIONLLM_BIN_DIR/fusionctl in `folder`; its stderr goes to folder/stderr.txt. A failure to start ends the test process.
  FusionctlChild(const std::vector<std::string>& arguments, const std::string& folder);
  // Kills and reaps whatever is left.
  ~FusionctlChild();
  FusionctlChild(const FusionctlChild&) = delete;
  FusionctlChild& operator=(const FusionctlChild&) = delete;

  // The next line, after those that earlier calls returned or passed by, that is wanted. Nothing when the output ends or the limit is met.
  std::optional<nlohmann::json> WaitFor(const Wanted& wanted, double limit_s);
  std::optional<nlohmann::json> WaitForEvent(const std::string& reason, double limit_s);
  std::optional<nlohmann::json> WaitForStep(int64_t step, double limit_s);

  // Reads to the end of the output and reaps: exit code, or 128 + signal; -1 when the limit was met.
  int Wait(double limit_s);
  void Signal(int signal);

  // Children of fusionctl with this program name, in no order.
  std::vector<pid_t> Running(const std::string& program) const;
  // True as soon as this process has no child left; false when the limit is met first. Call after Wait().
  bool AllProcessesExited(double limit_s);

  const std::vector<nlohmann::json>& lines() const { return lines_; }
  std::string Stderr() const;

 private:
  bool ReadMore(double limit_s);  // false: nothing came, or the end

  const std::string folder_;
  pid_t pid_ = -1;
  int out_ = -1;
  bool at_end_ = false;
  std::string pending_;
  std::vector<nlohmann::json> lines_;
  size_t next_ = 0;
  std::optional<int> code_;
};

// SIGKILL by number; does nothing for a number that is no process's.
void KillProcess(pid_t pid);

}  // namespace fusionllm::integration
