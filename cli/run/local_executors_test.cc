#include "cli/run/local_executors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/cpu_usage.h"

namespace fusionllm::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

job::Topology TopologyOf(const std::vector<job::Device>& devices) {
  job::Topology topology;
  topology.metadata.name = "lab";
  topology.spec.sites.push_back({.name = "here", .devices = devices});
  return topology;
}

TEST(ParseDeviceListTest, ReadsItsEntriesAndNamesThoseThatAreNone) {
  EXPECT_THAT(*ParseDeviceList("cpu"), ElementsAre("cpu"));
  EXPECT_THAT(*ParseDeviceList("cuda:0,cpu,auto"), ElementsAre("cuda:0", "cpu", "auto"));
  struct Case {
    const char *list, *words;
  };
  for (const Case& bad : {Case{"cpu,,cpu", "entry 2 of 'cpu,,cpu' is empty"}, Case{"cpu,", "entry 2 of 'cpu,' is empty"},
                          Case{",cpu", "entry 1 of ',cpu' is empty"}, Case{"", "entry 1 of '' is empty"},
                          Case{"cpu,gpu", "'gpu' is no device"}, Case{"cpu, cpu", "' cpu' is no device"}}) {
    const absl::Status status = ParseDeviceList(bad.list).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.list;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.words));
  }
}

TEST(ParseDeviceListTest, StopsAtAsManyAsOneMachineCouldEverStart) {
  const std::vector<std::string> most(kMaxLocalDevices, "cpu");
  EXPECT_THAT(*ParseDeviceList(absl::StrJoin(most, ",")), SizeIs(kMaxLocalDevices));
  const absl::Status status = ParseDeviceList(absl::StrCat(absl::StrJoin(most, ","), ",cpu")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a list of 257 devices"));
}

TEST(LocalExecutorsTest, AreThoseOfTheTopologyElseOfTheListElseOne) {
  const auto of_topology = LocalExecutorsOf(TopologyOf({{.name = "a"}, {.name = "s", .role = job::Role::kSpare}}), {});
  ASSERT_EQ(of_topology.size(), 2u);
  EXPECT_EQ(of_topology[1].name, "s");
  EXPECT_TRUE(of_topology[1].spare);
  const auto of_list = LocalExecutorsOf(std::nullopt, {"cpu", "cuda:0"});
  ASSERT_EQ(of_list.size(), 2u);
  EXPECT_EQ(of_list[1].name, "local-1");
  EXPECT_EQ(of_list[1].device, "cuda:0");
  EXPECT_EQ(of_list[1].site, of_list[0].site) << "one site: links between them are fast";
  ASSERT_EQ(LocalExecutorsOf(std::nullopt, {}).size(), 1u);
}

TEST(ShareCoresTest, ExecutorsOnCpusHaveEqualPartsUnlessTheJobSaysOtherwise) {
  const auto threads = [](const std::vector<std::string>& devices, int64_t cores, int64_t wanted = 0) {
    job::Executors executors{.threads = wanted};
    ShareCores(devices, cores, executors);
    return executors.threads;
  };
  EXPECT_EQ(threads({"cpu"}, 8), 0) << "all there are";
  EXPECT_EQ(threads({"cpu", "cpu"}, 8), 4);
  EXPECT_EQ(threads({"cpu", "cpu", "cpu"}, 2), 1);
  EXPECT_EQ(threads({"cpu", "cpu"}, 8, 3), 3);
}

TEST(WantedCoresTest, EmulatedDevicesNeedTheirShareAndOthersTheirThreads) {
  const double allowed = base::AllowedCores();
  job::Topology topology;
  topology.spec.sites.resize(1);
  topology.spec.sites[0].devices = {{.name = "a", .compute_scale = 0.25}, {.name = "b", .compute_scale = 0.125, .threads = 2}};
  EXPECT_DOUBLE_EQ(WantedCores(topology, 0), std::min(0.5, allowed));
  topology.spec.sites[0].devices[1].role = job::Role::kSpare;
  EXPECT_DOUBLE_EQ(WantedCores(topology, 0), std::min(0.25, allowed));
  EXPECT_DOUBLE_EQ(WantedCores(std::nullopt, 0, {"cpu"}), allowed) << "a thread on each";
  EXPECT_DOUBLE_EQ(WantedCores(std::nullopt, 1, std::vector<std::string>(1000, "cpu")), allowed);
  EXPECT_DOUBLE_EQ(WantedCores(std::nullopt, 1, {"cpu"}), std::min(1.0, allowed));
}

TEST(WantedCoresTest, ExecutorsOnGpusNeedOneEachWhateverTheJobsThreads) {
  const double allowed = base::AllowedCores();
  EXPECT_DOUBLE_EQ(WantedCores(std::nullopt, 0, {"cuda:0"}), std::min(1.0, allowed));
  EXPECT_DOUBLE_EQ(WantedCores(std::nullopt, 8, {"cuda:0"}), std::min(1.0, allowed));
}

TEST(ShareCoresTest, OnlyMoreThreadsThanCoresAreReported) {
  const auto warning = [](const std::vector<std::string>& devices, int64_t cores, int64_t threads) {
    return OversubscriptionWarning(devices, cores, {.threads = threads});
  };
  EXPECT_THAT(warning({"cpu", "cpu", "cpu"}, 2, 1),
              HasSubstr("--device: 3 executors compute on the CPU with a thread each, and this machine has 2 cores: they share them"));
  EXPECT_THAT(warning({"cpu", "cpu"}, 2, 2), HasSubstr("with 2 threads each"));
  EXPECT_THAT(warning({"cpu", "cpu"}, 1, 1), HasSubstr("has 1 core: "));
  EXPECT_EQ(warning({"cpu", "cpu"}, 2, 1), "");
  EXPECT_EQ(warning({"cpu"}, 2, 4), "") << "one shares with nobody";
  EXPECT_EQ(warning({"cuda:0", "cuda:1", "cuda:2"}, 2, 1), "");
  EXPECT_EQ(warning({}, 2, 0), "");
}

TEST(AdviceTest, SaysHowToHaveEnoughExecutorsAndHowToNeedFewer) {
  job::Spec spec;
  spec.strategy.replicas = 2;
  EXPECT_EQ(AdviseOnTooFewExecutors(spec, std::nullopt, {}),
            "start them on this machine by --device cpu,cpu, or by --topology FILE with 2 or more (emulated devices); or ask for less by "
            "--set spec.strategy.replicas=1");
  spec.strategy.stages = 3;
  EXPECT_THAT(AdviseOnTooFewExecutors(spec, std::nullopt, {}), HasSubstr("--device with 6 entries"));
  EXPECT_THAT(AdviseOnTooFewExecutors(spec, std::nullopt, {}), HasSubstr("by --set spec.strategy.replicas=1 --set spec.strategy.stages=0"));
  const std::vector<std::string> three = {"cpu", "cpu", "cpu"};
  EXPECT_THAT(AdviseOnTooFewExecutors(spec, std::nullopt, three), Not(HasSubstr("stages=0"))) << "three are enough for three stages";
  spec.strategy.replicas = 1;
  spec.executors.min = 4;
  EXPECT_THAT(AdviseOnTooFewExecutors(spec, std::nullopt, three), HasSubstr("with 4 entries"));
  EXPECT_THAT(AdviseOnTooFewExecutors(spec, std::nullopt, three), HasSubstr("by --set spec.executors.min=3"));
}

TEST(AdviceTest, ACommandThatStartsNothingIsSentToATopology) {
  job::Spec spec;
  spec.strategy.stages = 2;
  EXPECT_EQ(AdviseOnTooFewExecutors(spec, std::nullopt, {}, /*starts_executors=*/false),
            "describe them by --topology FILE with 2 or more; or ask for less by --set spec.strategy.stages=0 (the planner then chooses)");
}

TEST(AdviceTest, OnlyTooFewExecutorsAreAdvisedOn) {
  job::Spec spec;
  spec.strategy.stages = 2;
  EXPECT_THAT(AdviceSuffix("TooFewExecutors", spec, std::nullopt, {}), HasSubstr(". To have enough executors, start them"));
  EXPECT_EQ(AdviceSuffix("NoOps", spec, std::nullopt, {}), "");
}

TEST(AdviceTest, OfARunThatMachinesJoinIsToJoinSoonerOrToWaitLonger) {
  job::Spec spec;
  spec.executors.min = 3;
  EXPECT_EQ(
      JoinAdvice("TooFewExecutors", spec, 3),
      ". To have enough executors, start `fusionctl join` on more machines, sooner, or wait for them longer than by --join-timeout-seconds "
      "3; or ask for less by a smaller spec.executors.min");
  spec.strategy.stages = 2;
  EXPECT_EQ(JoinAdvice("TooFewExecutors", spec, std::nullopt),
            ". To have enough executors, start `fusionctl join` on more machines; or ask for less by --set spec.strategy.stages=0 (the "
            "planner then chooses) and a smaller spec.executors.min");
  spec.executors.max = 1;
  EXPECT_THAT(JoinAdvice("TooFewExecutors", spec, std::nullopt), HasSubstr("let the job use so many by --set spec.executors.max=3"));
  EXPECT_EQ(JoinAdvice("NoOps", spec, 3), "");
}

TEST(AdviceTest, CountsDevicesOfATopologyThatMayTrain) {
  job::Spec spec;
  spec.strategy.replicas = 2;
  spec.strategy.exclude = {"b"};
  const job::Topology topology = TopologyOf({{.name = "a"}, {.name = "b"}, {.name = "s", .role = job::Role::kSpare}});
  EXPECT_THAT(AdviseOnTooFewExecutors(spec, topology, {}), HasSubstr("give topology lab 2 devices that may train, it has 1; or"));
  spec.strategy.exclude.clear();
  EXPECT_EQ(AdviseOnTooFewExecutors(spec, topology, {}), "") << "there are two: a limit of the job refuses them";
}

// One who does as it says is not refused again: what the job's limits leave of the executors is counted as the planner counts it.
TEST(AdviceTest, CountsWhatTheJobHoldsBackAndMayUse) {
  job::Spec spec;
  spec.strategy.replicas = 2;
  const std::vector<std::string> two = {"cpu", "cpu"};
  spec.executors.spares = 1;
  EXPECT_EQ(
      AdviseOnTooFewExecutors(spec, std::nullopt, {}),
      "start them on this machine by --device cpu,cpu,cpu, or by --topology FILE with 3 or more (emulated devices), 1 of them to be held "
      "back as a spare; or ask for less by --set spec.strategy.replicas=1");
  EXPECT_EQ(
      AdviseOnTooFewExecutors(spec, std::nullopt, two),
      "start them on this machine by --device with 3 entries, or by --topology FILE with 3 or more (emulated devices), 1 of them to be "
      "held back as a spare; or hold fewer back by --set spec.executors.spares=0; or ask for less by --set spec.strategy.replicas=1");
  const std::vector<std::string> three = {"cpu", "cpu", "cpu"};
  EXPECT_EQ(AdviseOnTooFewExecutors(spec, std::nullopt, three), "");
  const job::Topology marked = TopologyOf({{.name = "a"}, {.name = "s", .role = job::Role::kSpare}});
  EXPECT_THAT(AdviseOnTooFewExecutors(spec, marked, {}), HasSubstr("give topology lab 2 devices that may train, it has 1; or"))
      << "the spare is there already";
  spec.executors.min = 2;
  EXPECT_EQ(AdviseOnTooFewExecutors(spec, std::nullopt, two), "") << "none is held back of those that must train";

  spec.executors = {.max = 1};
  EXPECT_EQ(AdviseOnTooFewExecutors(spec, std::nullopt, two),
            "let the job use so many by --set spec.executors.max=2; or ask for less by --set spec.strategy.replicas=1");
  EXPECT_THAT(AdviseOnTooFewExecutors(spec, std::nullopt, {}),
              HasSubstr("--device cpu,cpu, or by --topology FILE with 2 or more (emulated devices), and let the job use so many by --set "
                        "spec.executors.max=2; or"));
  spec.executors = {.replicas = 1, .max = 2, .spares = 1};
  EXPECT_THAT(AdviseOnTooFewExecutors(spec, std::nullopt, two),
              HasSubstr("--device with 3 entries, or by --topology FILE with 3 or more (emulated devices), 1 of them to be held back as a "
                        "spare, and let the job use so many by --set spec.executors.replicas=2; or"));
  spec.strategy.stages = 2;
  EXPECT_THAT(AdviseOnTooFewExecutors(spec, std::nullopt, two), HasSubstr("--set spec.strategy.replicas=1 --set spec.strategy.stages=0"))
      << "one executor is what the job may use";
}

}  // namespace
}  // namespace fusionllm::cli
