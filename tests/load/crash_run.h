// One job from its creation to its deletion, on a hub and two members, under an operator that is killed with SIGKILL when a write of its is
// done that is not answered yet, in any of the clusters; another one is started at once.
//
// A scenario says what happens to the job. No one may tell by its end whether the operator died: a life ends the program, saying what there
// is, where something does not come, the end is another one, something is left, or two Pods could have been at work for one thing at once
// (Federation::DuplicatePods).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "tests/load/federation.h"
#include "tests/load/operator_process.h"

namespace fusionllm::load {

inline constexpr char kCrashJob[] = "train";

class CrashRun;

struct CrashScenario {
  const char* name;
  const char* what;
  // Up to the end of the job; its deletion comes after that, unless the scenario has seen to it.
  void (*run)(CrashRun& run);
  MemberOptions members = {};
};

// All there are.
const std::vector<CrashScenario>& CrashScenarios();

class CrashRun {
 public:
  // `after`: so many writes since Begin(); 0: never. `scenario` must outlive it.
  CrashRun(const CrashScenario& scenario, int after);

  // How it ended, before its deletion. `expected`: how it must end; empty: as it does.
  std::vector<std::string> Run(const std::vector<std::string>& expected);
  bool killed() const { return after_ > 0 && writes_ >= after_; }
  int writes() const { return writes_; }
  std::string Writes();

  // ---- for scenarios ----
  Federation& fleet() { return fleet_; }
  SimCluster& member(size_t index) { return *fleet_.members()[index]; }
  // Writes count from now on. Before, the scenario is that of another one.
  void Begin();
  void Submit(int executors, const nlohmann::json& more);
  // It wants so many from now on.
  void Scale(int executors);
  // Waits until it holds, and starts another operator meanwhile if this one was killed.
  void Await(const char* what, const std::function<bool()>& holds);
  // All of this attempt's Pods run: its broker and so many executors.
  void AwaitRunning(int attempt, int executors);
  void EndBroker(int attempt, bool well);
  // The first executor of a member fails in the first attempt, and another one of its name is made, once; all others stay.
  void ReplaceExecutor(size_t member);
  void AwaitComplete();
  // The job is gone, and all that was its own in all clusters.
  void AwaitDeleted();
  // Until the operator has written nothing for a while.
  void AwaitQuiet();

 private:
  std::unique_ptr<OperatorProcess> Start() { return std::make_unique<OperatorProcess>(fleet_.Arguments(false), fleet_.log()); }
  // What a life leads to: the objects that are there, and what the job's status says but its times.
  std::vector<std::string> End();
  std::optional<std::string> FindDuplicate() const;
  [[noreturn]] void Fail(const std::string& why);

  const CrashScenario& scenario_;
  const int after_;
  int max_executors_ = 0;  // executors that any of its attempts may have
  bool again_ = false;     // another operator was started since
  std::atomic<bool> counting_ = false;
  std::atomic<int> writes_ = 0;
  std::atomic<pid_t> pid_ = -1;
  base::Mutex mutex_;
  std::string last_ ABSL_GUARDED_BY(mutex_);  // write
  Federation fleet_;
  std::unique_ptr<OperatorProcess> op_;
};

}  // namespace fusionllm::load
