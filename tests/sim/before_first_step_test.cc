// What befalls executors of a FusionJob before its first step: the operator and its rules, brokers and theirs, and a kubelet that is
// played. In each phase an executor is killed, evicted or cut off, by seed. FUSIONLLM_SEEDS=N plays N seeds instead of 20.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "operator/controller/testing/two_clusters_fixture.h"
#include "services/broker/final_report.h"
#include "tests/sim/simulated_run.h"

namespace fusionllm::sim {
namespace {

using broker::Phase;
using nlohmann::json;
using op::manifests::kPods;

constexpr Phase kPhases[] = {Phase::kGathering, Phase::kCalibrating, Phase::kProbing, Phase::kPlanning, Phase::kLoading};
enum class What { kKill, kEvict, kCut };
constexpr What kWhat[] = {What::kKill, What::kEvict, What::kCut};
const char* Name(What what) { return what == What::kKill ? "kill" : what == What::kEvict ? "evict" : "cut"; }

int SeedCount() {
  int seeds = 0;
  const char* const wanted = std::getenv("FUSIONLLM_SEEDS");
  return wanted != nullptr && absl::SimpleAtoi(wanted, &seeds) ? seeds : 20;
}

struct Fault {
  Phase phase = Phase::kGathering;
  What what = What::kKill;
  absl::Duration after;     // that the phase began
  absl::Duration away_for;  // until a process, a node with room or the network is there again
};

class BeforeFirstStepTest : public op::controller::testing::TwoClustersTest, public ::testing::WithParamInterface<int> {
 protected:
  // All phases and kinds come in the first 15 seeds; of later ones some keep one away for longer than a broker waits.
  BeforeFirstStepTest() : rng_(static_cast<uint64_t>(GetParam())) {
    const int seed = GetParam();
    faults_.push_back(Draw(kPhases[seed % 5], kWhat[seed / 5 % 3]));
    long_ = seed >= 15 && seed % 5 == 2;
    if (long_) faults_.back().away_for = rng_.Seconds(620, 700);
    for (int more = rng_.Below(3); more > 0 && !long_; --more) faults_.push_back(Draw(kPhases[rng_.Below(5)], kWhat[rng_.Below(3)]));
  }

  Fault Draw(Phase phase, What what) {
    // Orders take two seconds at least; of calibrations there are three.
    const int within = phase == Phase::kCalibrating ? 5 : 1;
    return {phase, what, rng_.Seconds(0, within), rng_.Seconds(5, 90)};
  }

  static json JobOfThree() {
    json job = op::controller::testing::JobObject();
    job["spec"]["network"] = {{"mode", "LoadBalancer"}};
    job["spec"]["executors"] = {{"replicas", 3}};
    job["spec"]["strategy"] = {{"stages", 3}};
    job["spec"]["training"]["steps"] = kSteps;
    job["spec"]["checkpoint"] = {{"path", "s3://models/run"}, {"everySteps", kCheckpointEvery}};
    return job;
  }

  // ---- what a kubelet and a network do ----
  struct Process {
    kube::ApiClient* client = nullptr;
    std::string uid, pod, device;
    absl::Time runs_from;      // it is started then
    uint64_t incarnation = 0;  // 0: it does not run
    bool cut = false;
    absl::Time cut_until;
  };

  void SetStatus(kube::ApiClient& client, const std::string& pod, const json& status) {
    ASSERT_TRUE(
        client.Patch(kPods, {"default", pod}, kube::PatchType::kMerge, json{{"status", status}}.dump(), {.subresource = "status"}).ok());
  }
  static json RunningStatus(bool ready) {
    return {{"phase", "Running"}, {"podIP", "10.0.0.1"}, {"conditions", {{{"type", "Ready"}, {"status", ready ? "True" : "False"}}}}};
  }

  void PlayPodsOf(kube::ApiClient& client, std::set<std::string>& there) {
    const json pods = json::parse(client.List(kPods, "default").value());
    for (const json& pod : pods["items"]) {
      const std::string uid = pod["metadata"]["uid"], name = pod["metadata"]["name"];
      if (pod["metadata"].contains("deletionTimestamp")) {
        (void)client.Delete(kPods, {"default", name}, {.grace_period_seconds = 0});
        continue;
      }
      if (pod.contains("status") && pod["status"].value("phase", "") == "Failed") continue;
      there.insert(uid);
      const bool is_broker = name.find("broker") != std::string::npos;
      if (is_broker) {
        PlayBroker(client, pod);
      } else if (!processes_.contains(uid)) {
        const json& labels = pod["metadata"]["labels"];
        const std::string cluster = labels[op::manifests::kClusterLabel], index = labels[op::manifests::kIndexLabel];
        const std::string device = absl::StrCat(cluster, "-", index);
        // A node with room may be long in coming for the one that takes the place of another.
        const absl::Time at = std::max(clock_.Now() + rng_.Seconds(1, 8), no_room_until_[device]);
        processes_[uid] = {.client = &client, .uid = uid, .pod = name, .device = device, .runs_from = at};
      }
    }
  }

  void PlayBroker(kube::ApiClient& client, const json& pod) {
    const std::string uid = pod["metadata"]["uid"], name = pod["metadata"]["name"];
    if (broker_uid_ != uid) {
      // As its program reads them.
      const std::vector<std::string> command = pod["spec"]["containers"][0]["command"];
      const auto value = [&](const std::string& flag) { return *(std::find(command.begin(), command.end(), flag) + 1); };
      double timeout_s = 0;
      ASSERT_TRUE(absl::SimpleAtod(value("--executor-timeout-seconds"), &timeout_s));
      broker_uid_ = uid;
      run_ended_ = false;
      run_ = std::make_unique<SimulatedRun>(absl::StrSplit(value("--expected-executors"), ','), timeout_s, rng_, durable_, clock_.Now());
      SetStatus(client, name, RunningStatus(true));
    }
    if (!run_->Ended() || run_ended_) return;
    run_ended_ = true;
    const broker::Finish end = run_->End();
    const services::RunOutcome outcome{.status = end.status, .interrupted = end.interrupted, .refusal_reason = end.refusal_reason};
    const int code = services::ExitCodeOf(outcome);
    if (code != 0) ends_.push_back(absl::StrCat(code, " ", end.status.message()));
    const std::string page = json{{"step", run_->last_step()}, {"steps", kSteps}}.dump();
    const json terminated = {
        {"exitCode", code}, {"reason", code == 0 ? "Completed" : "Error"}, {"message", services::FinalReport(page, code, outcome)}};
    SetStatus(client, name,
              {{"phase", code == 0 ? "Succeeded" : "Failed"},
               {"containerStatuses", {{{"name", "broker"}, {"state", {{"terminated", terminated}}}}}}});
  }

  void PlayProcesses(const std::set<std::string>& there) {
    for (auto at = processes_.begin(); at != processes_.end();) {
      Process& process = at->second;
      if (!there.contains(process.uid)) {
        Disconnect(process, "its Pod is gone");
        at = processes_.erase(at);
        continue;
      }
      if (process.incarnation == 0 && clock_.Now() >= process.runs_from) {
        process.incarnation = ++incarnations_;
        SetStatus(*process.client, process.pod, RunningStatus(true));
      }
      process.cut = process.cut && clock_.Now() < process.cut_until;
      // By its name it is of this attempt; the broker would turn others away.
      if (run_ != nullptr && !run_->Ended() && process.incarnation > 0 && !process.cut) run_->Connect(process.device, process.incarnation);
      ++at;
    }
  }
  void Disconnect(const Process& process, const std::string& why) {
    if (run_ != nullptr && process.incarnation > 0) run_->Disconnect(process.device, why);
  }

  // ---- what befalls them ----
  void StrikeWhenItIsTime() {
    if (faults_.empty() || run_ == nullptr || run_->Ended()) return;
    const Fault& fault = faults_.front();
    if (run_->phase() != fault.phase) {
      phase_since_.reset();
      return;
    }
    if (!phase_since_.has_value()) phase_since_ = clock_.Now();
    if (clock_.Now() < *phase_since_ + fault.after) return;
    std::vector<Process*> here;
    for (auto& [uid, process] : processes_) {
      if (process.incarnation > 0 && !process.cut && run_->IsHere(process.device)) here.push_back(&process);
    }
    if (here.empty()) return;
    // Not in the order of uids, which are drawn anew for each API server.
    std::sort(here.begin(), here.end(), [](const Process* a, const Process* b) { return a->device < b->device; });
    Strike(fault, *here[static_cast<size_t>(rng_.Below(static_cast<int>(here.size())))]);
    struck_.push_back(absl::StrCat(Name(fault.what), " in ", broker::Name(fault.phase), " for ", absl::FormatDuration(fault.away_for)));
    faults_.erase(faults_.begin());
    phase_since_.reset();
  }
  void Strike(const Fault& fault, Process& process) {
    Disconnect(process, Name(fault.what));
    if (fault.what == What::kCut) {
      process.cut = true;
      process.cut_until = clock_.Now() + fault.away_for;
    } else if (fault.what == What::kKill) {  // its kubelet starts the container again, in the same Pod
      process.incarnation = 0;
      process.runs_from = clock_.Now() + fault.away_for;
      SetStatus(*process.client, process.pod, RunningStatus(false));
    } else {
      no_room_until_[process.device] = clock_.Now() + fault.away_for;
      const json disrupted = {{"type", "DisruptionTarget"}, {"status", "True"}, {"reason", "EvictionByEvictionAPI"}};
      const json terminated = {{"exitCode", 143}, {"reason", "Error"}};
      SetStatus(*process.client, process.pod,
                {{"phase", "Failed"},
                 {"conditions", json::array({disrupted})},
                 {"containerStatuses", {{{"name", "executor"}, {"state", {{"terminated", terminated}}}}}}});
    }
  }

  void Second() {
    if (++seconds_ % 2 == 0) {
      (void)Reconcile();
      (void)ReconcileTokyo();
    }
    op::controller::testing::GiveLoadBalancers(*looking_, "203.0.113");
    op::controller::testing::GiveLoadBalancers(*tokyo_client_, "198.51.100");
    std::set<std::string> there;
    PlayPodsOf(*looking_, there);
    PlayPodsOf(*tokyo_client_, there);
    PlayProcesses(there);
    if (run_ != nullptr && !run_->Ended()) run_->Tick(clock_.Now());
    StrikeWhenItIsTime();
    if (run_ != nullptr) progress_.newest_ = op::lifecycle::Progress{.step = run_->last_step(), .steps = kSteps};
    clock_.Advance(absl::Seconds(1));
  }

  int seconds_ = 0;
  SeededRandom rng_;
  std::vector<Fault> faults_;  // one after the other
  bool long_ = false;
  std::vector<std::string> struck_, ends_;
  std::map<std::string, Process> processes_;  // by uid of the Pod
  std::map<std::string, absl::Time> no_room_until_;
  std::optional<absl::Time> phase_since_;
  uint64_t incarnations_ = 0;
  std::string broker_uid_;
  std::unique_ptr<SimulatedRun> run_;
  bool run_ended_ = false;  // and its Pod says so
  DurableState durable_;
};

INSTANTIATE_TEST_SUITE_P(Seeds, BeforeFirstStepTest, ::testing::Range(0, SeedCount()));

TEST_P(BeforeFirstStepTest, NoLossEndsTheJobForGoodAndItTrainsAsIfNothingHadBeen) {
  const std::string first = absl::StrCat(Name(faults_.front().what), " in ", broker::Name(faults_.front().phase));
  Submit(JobOfThree());
  const auto complete = [&] { return Condition("Complete") == "True Completed"; };
  for (int second = 0; second < 10; ++second) Second();
  while (seconds_ < 3600 && !complete() && Condition("Failed") == "none") Second();
  SCOPED_TRACE(
      absl::StrCat("seed ", GetParam(), ": ", ::testing::PrintToString(struck_), ", brokers ended: ", ::testing::PrintToString(ends_)));
  ASSERT_TRUE(complete()) << Job()["status"].dump(1) << ::testing::PrintToString(run_ == nullptr ? ends_ : run_->EventReasons());
  // Those after it come where their phases come again.
  ASSERT_THAT(struck_, ::testing::Not(::testing::IsEmpty()));
  EXPECT_THAT(struck_[0], ::testing::StartsWith(first));
  const json status = Job()["status"];
  EXPECT_EQ(status["restarts"], ends_.size()) << "each end of a broker is one, and nothing else is";
  EXPECT_EQ(status["restartsCountTowardsMax"], ends_.size());
  EXPECT_EQ(ends_.size(), long_ ? 1u : 0u) << "who is not away for long is waited for";
  // Those that were told twice, too.
  const std::map<int64_t, float> undisturbed = UndisturbedLosses(3);
  std::map<int64_t, float> losses;
  for (const auto& [step, loss] : durable_.losses) {
    losses[step] = loss;
    EXPECT_EQ(loss, undisturbed.at(step)) << "step " << step;
  }
  EXPECT_EQ(losses, undisturbed);
  EXPECT_EQ(durable_.checkpoints.at(durable_.newest).first, kSteps);
}

}  // namespace
}  // namespace fusionllm::sim
