// What happens to the job of a crash run, and the sweep over all places in them at which an operator can die.
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/json_text.h"
#include "operator/manifests/resources.h"
#include "tests/load/crash_run.h"
#include "tests/load/scenarios.h"

namespace fusionllm::load {
namespace {

using nlohmann::json;

// A job that loses nothing by starting again. Its brokers say that they have made all their steps, and nothing of checkpoints: whether one
// is missed is not for the moment to decide in which somebody looks.
json WithCheckpoint() {
  return {{"checkpoint", {{"path", "ckpt"}, {"everySteps", 100}, {"volume", {{"emptyDir", json::object()}}}}},
          {"executors", {{"replicas", 4}, {"stabilizationSeconds", 0}}}};
}

void Restart(CrashRun& life) {
  life.Begin();
  life.Submit(4, json::object());
  life.ReachRunning(0, 4);
  life.EndBroker(0, /*well=*/false);
  life.ReachRunning(1, 4);
  life.EndBroker(1, /*well=*/true);
  life.ReachComplete();
}

void Executor(CrashRun& life) {
  life.Submit(4, json::object());
  life.ReachRunning(0, 4);
  life.Begin();
  life.ReplaceExecutor(0);
  life.ReachRunning(0, 4);
  life.EndBroker(0, /*well=*/true);
  life.ReachComplete();
}

void Suspend(CrashRun& life) {
  life.Submit(4, json::object());
  life.ReachRunning(0, 4);
  life.Begin();
  life.fleet().PatchJob(kCrashJob, {{"suspend", true}});
  life.Reach("it is suspended", [&] { return life.fleet().Job(kCrashJob).state == "Suspended" && life.fleet().RunningPods() == 0; });
  life.ReachQuiet();
  life.fleet().PatchJob(kCrashJob, {{"suspend", false}});
  life.ReachRunning(1, 4);
  life.EndBroker(1, /*well=*/true);
  life.ReachComplete();
}

void Scale(CrashRun& life) {
  life.Submit(4, WithCheckpoint());
  life.ReachRunning(0, 4);
  life.Begin();
  life.Scale(6);
  life.ReachRunning(1, 6);
  life.Scale(3);
  life.ReachRunning(2, 3);
  life.EndBroker(2, /*well=*/true);
  life.ReachComplete();
}

// The other member takes all executors; what the lost one has is removed when it is back.
void Lost(CrashRun& life) {
  json spec = WithCheckpoint();
  spec["failurePolicy"]["rules"] = {{{"name", "elsewhere"}, {"action", "RestartJob"}, {"onReasons", {"ClusterLost"}}}};
  life.Submit(4, spec);
  life.ReachRunning(0, 4);
  life.Begin();
  life.member(1).SetAway(true);
  life.ReachRunning(1, 4 + 2);  // with the two that are out of reach and may be at work
  life.member(1).SetAway(false);
  life.ReachRunning(1, 4);
  life.EndBroker(1, /*well=*/true);
  life.ReachComplete();
}

// Deleted while a member is away, which is back before anybody gives it up.
void Away(CrashRun& life) {
  life.Submit(4, json::object());
  life.ReachRunning(0, 4);
  life.Begin();
  life.member(1).SetAway(true);
  life.fleet().DeleteJob(kCrashJob);
  const auto gone = [&](const SimCluster& cluster) { return cluster.RunningPods() == 0; };
  life.Reach("what can be reached is gone", [&] { return gone(life.fleet().hub()) && gone(life.member(0)); });
  life.ReachQuiet();
  life.member(1).SetAway(false);
  life.ReachNothing();
}

// As that, but it is given up: the job goes, and what is left is owed until the member is back.
void Tombstone(CrashRun& life) {
  life.Submit(4, {{"forceDeleteAfterSeconds", 1}});
  life.ReachRunning(0, 4);
  life.Begin();
  life.member(1).SetAway(true);
  life.fleet().DeleteJob(kCrashJob);
  life.Reach("the job is let go", [&] { return life.fleet().Jobs() == 0; });
  life.ReachQuiet();
  life.member(1).SetAway(false);
  life.ReachNothing();
  life.Reach("nothing is owed any more", [&] {
    const auto answer = life.fleet().hub().admin().List(op::manifests::kConfigMaps, "default", {});
    return answer.ok() && base::ParseJson(*answer)["items"].empty();
  });
}

// Executors of other clusters dial each other at Services, one of them is a spare, and the job deletes itself when it has been over for a
// second.
void Services(CrashRun& life) {
  life.Begin();
  life.Submit(4, {{"network", {{"mode", "NodePort"}}}, {"executors", {{"replicas", 3}, {"spares", 1}}}, {"ttlSecondsAfterFinished", 1}});
  life.ReachRunning(0, 4);
  life.EndBroker(0, /*well=*/true);
  life.ReachNothing();
}

// From the place that comes first in each `stride`; the last places of all are those of its deletion.
int SweepScenario(const CrashScenario& scenario, const SweepOptions& options) {
  std::vector<std::string> end;
  {
    CrashRun whole(scenario, 0);
    end = whole.Run({});
    std::printf("%s: %s\na life of %d writes; %s\nits end:\n  %s\n", scenario.name, scenario.what, whole.writes(), whole.Writes().c_str(),
                absl::StrJoin(end, "\n  ").c_str());
    std::fflush(stdout);
  }
  int places = 0;
  for (int after = options.first; options.most == 0 || places < options.most; after += options.stride) {
    CrashRun life(scenario, after);
    (void)life.Run(end);
    if (!life.killed()) break;  // a life has fewer writes than that
    ++places;
    if (places % 10 == 0) std::printf("%s: killed after write %d: the same\n", scenario.name, after);
    std::fflush(stdout);
  }
  return places;
}

}  // namespace

const std::vector<CrashScenario>& CrashScenarios() {
  static const std::vector<CrashScenario> all_scenarios = {
      {"restart", "it is made, its broker fails, it starts again, comes to its end and is deleted", Restart},
      {"executor", "one of its executors fails and is replaced, it comes to its end and is deleted", Executor},
      {"suspend", "it is suspended and resumed", Suspend},
      {"scale", "from four executors to six to three", Scale},
      {"away", "it is deleted while a member is away, which comes back", Away},
      {"lost", "a member is lost, its executors are replaced elsewhere, and it comes back", Lost, {.worker_lost_timeout_s = 1}},
      {"services", "its executors have Services, one is a spare, and it deletes itself when it is over", Services},
      {"tombstone", "it is deleted and let go while a member is away, which comes back", Tombstone},
  };
  return all_scenarios;
}

void Sweep(const SweepOptions& options) {
  for (const CrashScenario& scenario : CrashScenarios()) {
    if (!options.life.empty() && options.life != scenario.name) continue;
    const int places = SweepScenario(scenario, options);
    if (places == 0) {
      std::printf("%s: nothing was killed\n", scenario.name);
      std::exit(1);
    }
    std::printf(
        "%s: killed before the answer to one of its writes, at %d places: the same end every time, nothing left after its deletion, never "
        "two Pods for one thing\n",
        scenario.name, places);
    std::fflush(stdout);
  }
}

}  // namespace fusionllm::load
