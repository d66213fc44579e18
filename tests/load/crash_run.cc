#include "tests/load/crash_run.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/json_text.h"
#include "operator/manifests/identity.h"
#include "operator/manifests/resources.h"
#include "tests/load/operator_process.h"

namespace fusionllm::load {
namespace {

using nlohmann::json;

constexpr absl::Duration kQuiet = absl::Milliseconds(300), kTimeout = absl::Minutes(4);

}  // namespace

CrashRun::CrashRun(const CrashScenario& scenario, int after)
    : scenario_(scenario), after_(after), fleet_(2, scenario.members), op_(Start()) {
  op_->WaitReady();
  Federation::Await("all members are connected", [&] { return fleet_.Connected() == 2; });
  fleet_.AwaitQuiet(absl::Milliseconds(50));
  fleet_.ForgetRequests();
  pid_ = op_->pid();
  fleet_.OnWrite([this](const kube::testing::RecordedRequest& request) {
    if (!counting_ || ++writes_ != after_) return;
    kill(pid_, SIGKILL);
    const base::MutexLock lock(mutex_);
    last_ = absl::StrCat(request.verb, " ", request.target.substr(0, request.target.find('?')));
  });
}

std::vector<std::string> CrashRun::Run(const std::vector<std::string>& expected) {
  scenario_.run(*this);
  // Pods that are being deleted run no more, and are gone a moment later.
  AwaitQuiet();
  if (!expected.empty()) Await("it ends as without a death", [&] { return End() == expected; });
  std::vector<std::string> end = End();
  if (fleet_.Jobs() > 0) fleet_.DeleteJob(kCrashJob);
  AwaitDeleted();
  return end;
}

void CrashRun::Begin() { counting_ = true; }

void CrashRun::Submit(int executors, const json& more) {
  max_executors_ = executors;
  fleet_.SubmitWith(kCrashJob, executors, more);
}

void CrashRun::Scale(int executors) {
  max_executors_ = std::max(max_executors_, executors);
  fleet_.PatchJob(kCrashJob, {{"executors", {{"replicas", executors}}}});
}

void CrashRun::AwaitRunning(int attempt, int executors) {
  const std::string broker = absl::StrCat(kCrashJob, "-broker-r", attempt);
  Await("the attempt runs", [&] {
    return fleet_.Job(kCrashJob).state == "Running" && fleet_.RunningPods() == 1 + executors &&
           absl::StrContains(absl::StrJoin(fleet_.Leftovers(), " "), broker);
  });
}

void CrashRun::EndBroker(int attempt, bool well) {
  const std::string pod = absl::StrCat(kCrashJob, "-broker-r", attempt);
  const char* const report = well ? R"({"step":100,"steps":100,"loss":2.5,"exit_code":0})" : R"({"error":"killed"})";
  if (const absl::Status status = fleet_.hub().EndPod(pod, "broker", well ? 0 : 1, report); !status.ok()) {
    Fail(absl::StrCat(pod, ": ", std::string(status.message())));
  }
}

void CrashRun::ReplaceExecutor(size_t index) {
  const auto starts = [&] {
    std::vector<int> all = {fleet_.hub().Starts()};
    for (const auto& each : fleet_.members()) all.push_back(each->Starts());
    return all;
  };
  const int running = fleet_.RunningPods();
  std::vector<int> replaced = starts();
  ++replaced[1 + index];
  const std::string pod = absl::StrCat(kCrashJob, "-", member(index).name(), "-0-r0");
  if (const absl::Status status = member(index).EndPod(pod, op::manifests::kExecutorRole, 1, "killed"); !status.ok()) {
    Fail(absl::StrCat(pod, ": ", std::string(status.message())));
  }
  Await("the executor is replaced", [&] { return member(index).Starts() >= replaced[1 + index] && fleet_.RunningPods() == running; });
  AwaitQuiet();
  if (starts() != replaced)
    Fail(absl::StrCat("Pods were started: ", absl::StrJoin(starts(), ", "), ", not ", absl::StrJoin(replaced, ", ")));
}

void CrashRun::AwaitComplete() {
  Await("it is complete", [&] { return fleet_.Job(kCrashJob).state == "Complete" && fleet_.RunningPods() == 0; });
}

void CrashRun::AwaitDeleted() {
  Await("it is deleted, and nothing is left", [&] { return fleet_.Jobs() == 0 && fleet_.Leftovers().empty(); });
}

void CrashRun::AwaitQuiet() {
  for (int writes = -1; writes != writes_;) {
    writes = writes_;
    Await("nothing more comes", [&, until = Now() + kQuiet] { return Now() > until; });
  }
}

std::string CrashRun::Writes() {
  return absl::StrCat("hub: ", fleet_.TrafficOf(fleet_.hub()).Text(), "; members: ", fleet_.TrafficOfMembers().Text());
}

void CrashRun::Await(const char* what, const std::function<bool()>& holds) {
  const bool reached = Federation::WaitUntil(
      [&] {
        if (!again_ && killed()) {
          again_ = true;
          op_->Wait();
          op_ = Start();
        }
        return FindDuplicate().has_value() || holds();
      },
      kTimeout);
  if (const auto twice = FindDuplicate(); twice.has_value()) Fail(absl::StrCat("two at once: ", *twice));
  if (!reached) Fail(absl::StrCat("not within ", absl::FormatDuration(kTimeout), ": ", what));
}

void CrashRun::Fail(const std::string& why) {
  const base::MutexLock lock(mutex_);
  std::printf("%s, killed after write %d (%s): %s. There is:\n  %s\n", scenario_.name, after_, last_.c_str(), why.c_str(),
              absl::StrJoin(End(), "\n  ").c_str());
  std::exit(1);
}

std::vector<std::string> CrashRun::End() {
  std::vector<std::string> end = fleet_.Leftovers();
  const auto answer = fleet_.hub().admin().Get(op::manifests::kFusionJobs, {kNamespace, kCrashJob});
  if (!answer.ok()) return end;  // it is gone
  const json job = base::ParseJson(*answer);
  const json status = job.value("status", json::object());
  end.push_back(absl::StrCat("state ", status.value("state", "")));
  end.push_back(absl::StrCat("restarts ", status.value("restarts", 0)));
  for (const json& condition : status.value("conditions", json::array())) {
    end.push_back(
        absl::StrCat("condition ", condition.value("type", ""), " ", condition.value("status", ""), " ", condition.value("reason", "")));
  }
  return end;
}

std::optional<std::string> CrashRun::FindDuplicate() const {
  const std::vector<std::string> doubles = fleet_.DuplicatePods(max_executors_);
  return doubles.empty() ? std::nullopt : std::optional(absl::StrJoin(doubles, ", "));
}

}  // namespace fusionllm::load
