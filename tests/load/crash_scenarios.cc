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

void Restart(CrashRun& run) {
  run.Begin();
  run.Submit(4, json::object());
  run.AwaitRunning(0, 4);
  run.EndBroker(0, /*well=*/false);
  run.AwaitRunning(1, 4);
  run.EndBroker(1, /*well=*/true);
  run.AwaitComplete();
}

void Executor(CrashRun& run) {
  run.Submit(4, json::object());
  run.AwaitRunning(0, 4);
  run.Begin();
  run.ReplaceExecutor(0);
  run.AwaitRunning(0, 4);
  run.EndBroker(0, /*well=*/true);
  run.AwaitComplete();
}

void Suspend(CrashRun& run) {
  run.Submit(4, json::object());
  run.AwaitRunning(0, 4);
  run.Begin();
  run.fleet().PatchJob(kCrashJob, {{"suspend", true}});
  run.Await("it is suspended", [&] { return run.fleet().Job(kCrashJob).state == "Suspended" && run.fleet().RunningPods() == 0; });
  run.AwaitQuiet();
  run.fleet().PatchJob(kCrashJob, {{"suspend", false}});
  run.AwaitRunning(1, 4);
  run.EndBroker(1, /*well=*/true);
  run.AwaitComplete();
}

void Scale(CrashRun& run) {
  run.Submit(4, WithCheckpoint());
  run.AwaitRunning(0, 4);
  run.Begin();
  run.Scale(6);
  run.AwaitRunning(1, 6);
  run.Scale(3);
  run.AwaitRunning(2, 3);
  run.EndBroker(2, /*well=*/true);
  run.AwaitComplete();
}

// The other member takes all executors; what the lost one has is removed when it is back.
void Lost(CrashRun& run) {
  json spec = WithCheckpoint();
  spec["failurePolicy"]["rules"] = {{{"name", "elsewhere"}, {"action", "RestartJob"}, {"onReasons", {"ClusterLost"}}}};
  run.Submit(4, spec);
  run.AwaitRunning(0, 4);
  run.Begin();
  run.member(1).SetAway(true);
  run.AwaitRunning(1, 4 + 2);  // with the two that are out of reach and may be at work
  run.member(1).SetAway(false);
  run.AwaitRunning(1, 4);
  run.EndBroker(1, /*well=*/true);
  run.AwaitComplete();
}

// Deleted while a member is away, which is back before anybody gives it up.
void Away(CrashRun& run) {
  run.Submit(4, json::object());
  run.AwaitRunning(0, 4);
  run.Begin();
  run.member(1).SetAway(true);
  run.fleet().DeleteJob(kCrashJob);
  const auto gone = [&](const SimCluster& cluster) { return cluster.RunningPods() == 0; };
  run.Await("what can be reached is gone", [&] { return gone(run.fleet().hub()) && gone(run.member(0)); });
  run.AwaitQuiet();
  run.member(1).SetAway(false);
  run.AwaitDeleted();
}

// As that, but it is given up: the job goes, and what is left is owed until the member is back.
void Tombstone(CrashRun& run) {
  run.Submit(4, {{"forceDeleteAfterSeconds", 1}});
  run.AwaitRunning(0, 4);
  run.Begin();
  run.member(1).SetAway(true);
  run.fleet().DeleteJob(kCrashJob);
  run.Await("the job is let go", [&] { return run.fleet().Jobs() == 0; });
  run.AwaitQuiet();
  run.member(1).SetAway(false);
  run.AwaitDeleted();
  run.Await("nothing is owed any more", [&] {
    const auto answer = run.fleet().hub().admin().List(op::manifests::kConfigMaps, "default", {});
    return answer.ok() && base::ParseJson(*answer)["items"].empty();
  });
}

// Executors of other clusters dial each other at Services, one of them is a spare, and the job deletes itself when it has been over for a
// second.
void Services(CrashRun& run) {
  run.Begin();
  run.Submit(4, {{"network", {{"mode", "NodePort"}}}, {"executors", {{"replicas", 3}, {"spares", 1}}}, {"ttlSecondsAfterFinished", 1}});
  run.AwaitRunning(0, 4);
  run.EndBroker(0, /*well=*/true);
  run.AwaitDeleted();
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
  for (int after = options.first; options.max_writes == 0 || places < options.max_writes; after += options.stride) {
    CrashRun run(scenario, after);
    (void)run.Run(end);
    if (!run.killed()) break;  // a life has fewer writes than that
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
    if (!options.scenario.empty() && options.scenario != scenario.name) continue;
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
