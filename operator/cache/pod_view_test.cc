#include "operator/cache/pod_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fusionllm::op::cache {
namespace {

using nlohmann::json;

json RunPod(const char* role, const json& status) {
  return {{"metadata",
           {{"name", "train-paris-1-r2"},
            {"uid", "u"},
            {"creationTimestamp", "2026-03-01T12:00:00Z"},
            {"resourceVersion", "1"},
            {"labels",
             {{manifests::kJobUidLabel, "j"},
              {manifests::kRoleLabel, role},
              {manifests::kAttemptLabel, "2"},
              {manifests::kIndexLabel, "1"},
              {manifests::kClusterLabel, "elsewhere"}}}}},
          {"status", status}};
}

lifecycle::PodView PodViewOf(const json& pod) {
  const auto view = ReadPod(pod.dump(), "paris");
  EXPECT_TRUE(view.ok()) << view.status();
  return view.value_or(lifecycle::PodView{});
}

TEST(PodViewTest, ReadsWhoItIs) {
  const json pod =
      RunPod("executor", {{"phase", "Running"}, {"podIP", "10.1.2.3"}, {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}});
  const lifecycle::PodView view = PodViewOf(pod);
  EXPECT_EQ(view.cluster, "paris") << "where it was read, not what it says of itself";
  EXPECT_EQ(view.created_at, absl::FromCivil(absl::CivilSecond(2026, 3, 1, 12), absl::UTCTimeZone()));
  EXPECT_EQ(view.attempt, 2);
  EXPECT_EQ(view.index, 1);
  EXPECT_EQ(view.phase, lifecycle::PodPhase::kRunning);
  EXPECT_TRUE(view.ready);
  EXPECT_EQ(view.address, "10.1.2.3");
}

TEST(PodViewTest, ReadsHowTheMainContainerEnded) {
  const json sidecar = {{"name", "scheduler"}, {"state", {{"terminated", {{"exitCode", 143}, {"reason", "Error"}}}}}};
  const json broker = {{"name", "broker"}, {"state", {{"terminated", {{"exitCode", 3}, {"reason", "Error"}, {"message", "needs 8 GiB"}}}}}};
  const lifecycle::PodView view = PodViewOf(RunPod("broker", {{"phase", "Failed"}, {"containerStatuses", {sidecar, broker}}}));
  EXPECT_EQ(view.exit_code, 3);
  EXPECT_EQ(view.message, "needs 8 GiB");
}

TEST(PodViewTest, TakesUpWhatTheBrokerLeftBehind) {
  const json broker = {
      {"name", "broker"},
      {"state", {{"terminated", {{"exitCode", 3}, {"message", R"({"step":7,"reason":"InsufficientMemory","error":"needs 8 GiB"})"}}}}}};
  const lifecycle::PodView view = PodViewOf(RunPod("broker", {{"phase", "Failed"}, {"containerStatuses", {broker}}}));
  ASSERT_TRUE(view.report.has_value());
  EXPECT_EQ(view.report->step, 7);
  EXPECT_EQ(view.message, "InsufficientMemory: needs 8 GiB");
}

TEST(PodViewTest, TheTailOfALogIsNoMessage) {
  const json killed = {
      {"exitCode", 137}, {"reason", "OOMKilled"}, {"message", "2026-11-27T15:51:56.665Z info fusion-executor: computing on the CPU\n"}};
  const json main = {{"name", "executor"}, {"state", {{"terminated", killed}}}};
  const lifecycle::PodView view = PodViewOf(RunPod("executor", {{"phase", "Failed"}, {"containerStatuses", {main}}}));
  EXPECT_EQ(view.reason, "OOMKilled");
  EXPECT_EQ(view.message, "");
  EXPECT_EQ(view.exit_code, 137);
}

TEST(PodViewTest, AnExecutorThatGaveUpWaitingForItsBrokerHasFailedThoughItEndedInOrder) {
  const auto ended = [](const char* role, const char* message) {
    return PodViewOf(RunPod(
        role, {{"phase", "Succeeded"},
               {"containerStatuses",
                {{{"name", role}, {"state", {{"terminated", {{"exitCode", 0}, {"reason", "Completed"}, {"message", message}}}}}}}}}));
  };
  const lifecycle::PodView gave_up = ended("executor", "BrokerLost: no contact for 3600 s");
  EXPECT_EQ(gave_up.phase, lifecycle::PodPhase::kFailed);
  EXPECT_EQ(gave_up.reason, "BrokerLost");
  EXPECT_EQ(gave_up.message, "no contact for 3600 s");
  EXPECT_EQ(ended("executor", "").phase, lifecycle::PodPhase::kSucceeded) << "its work is done";
  EXPECT_EQ(ended("broker", "BrokerLost: no contact for 3600 s").phase, lifecycle::PodPhase::kSucceeded);
}

TEST(PodViewTest, SaysWhyItWaits) {
  const json unschedulable = {{"type", "PodScheduled"}, {"status", "False"}, {"reason", "Unschedulable"}, {"message", "0/1 nodes"}};
  EXPECT_EQ(PodViewOf(RunPod("executor", {{"phase", "Pending"}, {"conditions", {unschedulable}}})).reason, "Unschedulable");
  const auto waiting = [](const char* reason) {
    return json{{"phase", "Pending"}, {"containerStatuses", {{{"name", "executor"}, {"state", {{"waiting", {{"reason", reason}}}}}}}}};
  };
  EXPECT_EQ(PodViewOf(RunPod("executor", waiting("ImagePullBackOff"))).reason, "ImagePullBackOff");
  EXPECT_EQ(PodViewOf(RunPod("executor", waiting("ContainerCreating"))).reason, "") << "nothing is wrong";
}

TEST(PodViewTest, ACrashLoopTellsWhatItCrashesOf) {
  const json container = {{"name", "executor"},
                          {"restartCount", 4},
                          {"state", {{"waiting", {{"reason", "CrashLoopBackOff"}, {"message", "back-off 40s"}}}}},
                          {"lastState", {{"terminated", {{"exitCode", 2}, {"reason", "Error"}, {"message", "no such file"}}}}}};
  const lifecycle::PodView view = PodViewOf(RunPod("executor", {{"phase", "Running"}, {"containerStatuses", {container}}}));
  EXPECT_EQ(view.reason, "CrashLoopBackOff");
  EXPECT_EQ(view.message, "exit code 2, Error: no such file");
  EXPECT_EQ(view.container_restarts, 4);
  EXPECT_FALSE(view.exit_code.has_value()) << "it has not ended for good";
}

// As a kubelet has it between two lives, and when the next one has begun.
TEST(PodViewTest, ContainerInACrashLoopOfMemorySaysOutOfMemory) {
  const auto executor = [](const json& state, const char* ready) {
    const json container = {
        {"name", "executor"},
        {"restartCount", 3},
        {"state", state},
        {"lastState", {{"terminated", {{"exitCode", 137}, {"reason", "OOMKilled"}, {"message", "a line of a log\n"}}}}}};
    const json conditions = {{{"type", "Ready"}, {"status", ready}}};
    return PodViewOf(RunPod("executor", {{"phase", "Running"}, {"conditions", conditions}, {"containerStatuses", {container}}}));
  };
  const lifecycle::PodView waits = executor({{"waiting", {{"reason", "CrashLoopBackOff"}, {"message", "back-off 40s"}}}}, "False");
  EXPECT_EQ(waits.reason, "OOMKilled");
  EXPECT_EQ(waits.message, "") << "the tail of a log is no message";
  EXPECT_FALSE(waits.exit_code.has_value()) << "it has not ended for good";
  EXPECT_TRUE(waits.killed_for_memory);
  const lifecycle::PodView runs = executor({{"running", json::object()}}, "True");
  EXPECT_EQ(runs.reason, "");
  EXPECT_TRUE(runs.killed_for_memory);
}

// Until they are through, the main container waits and gives no reason.
TEST(PodViewTest, AnInitContainerThatCannotStartOrFailsIsNamed) {
  const auto with = [](const json& init) {
    const json main = {{"name", "executor"}, {"state", {{"waiting", {{"reason", "PodInitializing"}}}}}};
    const json done = {{"name", "done"}, {"state", {{"terminated", {{"exitCode", 0}, {"reason", "Completed"}}}}}};
    return PodViewOf(RunPod("executor", {{"phase", "Pending"}, {"initContainerStatuses", {done, init}}, {"containerStatuses", {main}}}));
  };
  lifecycle::PodView view =
      with({{"name", "fetch"}, {"state", {{"waiting", {{"reason", "ImagePullBackOff"}, {"message", "no such image"}}}}}});
  EXPECT_EQ(view.reason, "ImagePullBackOff");
  EXPECT_EQ(view.message, "container fetch: no such image");
  view = with({{"name", "fetch"}, {"state", {{"terminated", {{"exitCode", 7}, {"reason", "Error"}, {"message", "no route"}}}}}});
  EXPECT_EQ(view.reason, "Error");
  EXPECT_EQ(view.message, "container fetch: exit code 7, Error: no route");
  EXPECT_FALSE(view.exit_code.has_value()) << "that is of the main container";
  view = with({{"name", "fetch"},
               {"state", {{"waiting", {{"reason", "CrashLoopBackOff"}, {"message", "back-off 40s"}}}}},
               {"lastState", {{"terminated", {{"exitCode", 2}, {"reason", "Error"}}}}}});
  EXPECT_EQ(view.reason, "CrashLoopBackOff");
  EXPECT_EQ(view.message, "container fetch: exit code 2, Error");
  for (const json& state : {json{{"running", json::object()}}, json{{"waiting", {{"reason", "PodInitializing"}}}},
                            json{{"waiting", json::object()}}, json{{"terminated", {{"exitCode", 0}, {"reason", "Completed"}}}}}) {
    EXPECT_EQ(with({{"name", "fetch"}, {"state", state}}).reason, "") << state << ": nothing is wrong";
  }
}

TEST(PodViewTest, ASidecarThatCrashesIsNamedUnlessTheMainContainerHasAReasonOfItsOwn) {
  const json crashing = {{"name", "scheduler"},
                         {"state", {{"waiting", {{"reason", "CrashLoopBackOff"}}}}},
                         {"lastState", {{"terminated", {{"exitCode", 1}, {"reason", "Error"}, {"message", "port taken"}}}}}};
  const auto with = [&](const json& state, const char* ready) {
    const json conditions = {{{"type", "Ready"}, {"status", ready}}};
    return PodViewOf(RunPod("broker", {{"phase", "Running"},
                                       {"conditions", conditions},
                                       {"initContainerStatuses", {crashing}},
                                       {"containerStatuses", {{{"name", "broker"}, {"state", state}}}}}));
  };
  const json running = {{"running", json::object()}};
  EXPECT_EQ(with(running, "False").reason, "CrashLoopBackOff");
  EXPECT_EQ(with(running, "False").message, "container scheduler: exit code 1, Error: port taken");
  EXPECT_EQ(with(running, "True").reason, "") << "it is back";
  EXPECT_EQ(with({{"waiting", {{"reason", "ErrImagePull"}}}}, "False").reason, "ErrImagePull");
  const lifecycle::PodView ended = with({{"terminated", {{"exitCode", 3}, {"reason", "Error"}, {"message", "needs 8 GiB"}}}}, "False");
  EXPECT_EQ(ended.message, "needs 8 GiB");
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_EQ(with({{"terminated", {{"exitCode", 0}}}}, "False").reason, "") << "it ended well, and its sidecar with it";
}

TEST(PodViewTest, EvictionIsOfThePod) {
  EXPECT_EQ(PodViewOf(RunPod("executor", {{"phase", "Failed"}, {"reason", "Evicted"}, {"message", "low on memory"}})).reason, "Evicted");
}

TEST(PodViewTest, ReportsDisruptionBesideExit) {
  const auto ends = [](const char* status) {
    const json condition = {{"type", "DisruptionTarget"}, {"status", status}, {"reason", "PreemptionByScheduler"}};
    return PodViewOf(RunPod("executor", {{"phase", "Failed"}, {"reason", "Evicted"}, {"conditions", {condition}}}));
  };
  EXPECT_EQ(ends("True").disruption, "PreemptionByScheduler");
  EXPECT_EQ(ends("True").reason, "Evicted");
  EXPECT_EQ(ends("False").disruption, "");
}

TEST(PodViewTest, TerminatingSinceWhen) {
  json pod = RunPod("executor", {{"phase", "Running"}});
  pod["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z";
  EXPECT_EQ(PodViewOf(pod).deleted_at, absl::FromCivil(absl::CivilSecond(2026, 11, 21, 10, 0, 0), absl::UTCTimeZone()));
}

TEST(PodViewTest, StrangePodsAreRefused) {
  EXPECT_FALSE(ReadPod("{}", "paris").ok());
  EXPECT_FALSE(ReadPod("[]", "paris").ok());
  EXPECT_FALSE(ReadPod(RunPod("impostor", json::object()).dump(), "paris").ok());
  EXPECT_FALSE(ReadPod(RunPod("executor", json("nonsense")).dump(), "paris").ok());
  EXPECT_TRUE(ReadPod(RunPod("executor", json::object()).dump(), "paris").ok()) << "nothing is said of it yet";
}

TEST(PodViewTest, AnEndWithoutAnExitCodeIsNoGoodEnd) {
  const auto ended = [](const json& terminated) {
    return PodViewOf(RunPod(
        "executor", {{"phase", "Failed"}, {"containerStatuses", {{{"name", "executor"}, {"state", {{"terminated", terminated}}}}}}}));
  };
  EXPECT_EQ(ended({{"exitCode", 0}}).exit_code, 0);
  EXPECT_FALSE(ended({{"reason", "Error"}}).exit_code.has_value());
  EXPECT_EQ(ended({{"exitCode", int64_t{1} << 32}}).exit_code, -1) << "not 0, which is what an int would make of it";
}

}  // namespace
}  // namespace fusionllm::op::cache
