#include "lib/broker/executor_set.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::broker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using State = ExecutorSet::State;

Executor ExecutorNamed(const std::string& name, uint64_t incarnation = 1, bool spare = false, int64_t memory_bytes = 100) {
  return {.name = name, .incarnation = incarnation, .site = name.substr(0, 1), .spare = spare, .memory_bytes = memory_bytes};
}

TEST(ExecutorSetTest, JoinersArePresentUntilTheirOwnProcessLeaves) {
  ExecutorSet executors({.expected = {"a0"}});
  EXPECT_EQ(executors.StateOf("a0"), State::kAbsent);
  EXPECT_THAT(executors.Missing(), ElementsAre("a0"));
  EXPECT_TRUE(executors.Admit(ExecutorNamed("a0")));
  executors.Join(ExecutorNamed("a0"));
  EXPECT_EQ(executors.StateOf("a0"), State::kPresent);
  EXPECT_EQ(executors.SiteOf("a0"), "a");
  EXPECT_FALSE(executors.Leave("a0", 2)) << "news of another process";
  EXPECT_TRUE(executors.IsSameProcess(ExecutorNamed("a0")));
  EXPECT_FALSE(executors.IsSameProcess(ExecutorNamed("a0", 2)));
  EXPECT_TRUE(executors.Leave("a0", 1));
  EXPECT_EQ(executors.StateOf("a0"), State::kAbsent);
  EXPECT_EQ(executors.SiteOf("a0"), "");
  EXPECT_FALSE(executors.Leave("a0", 1));
}

TEST(ExecutorSetTest, GivenUpExecutorsAreNotMissingUntilAwaitedAgainOrBack) {
  ExecutorSet executors({.expected = {"a0", "b0"}});
  executors.GiveUpMissing();
  EXPECT_EQ(executors.StateOf("a0"), State::kGivenUp);
  EXPECT_THAT(executors.Missing(), IsEmpty());
  executors.Join(ExecutorNamed("a0"));
  executors.Leave("a0", 1);
  EXPECT_THAT(executors.Missing(), ElementsAre("a0"));
  executors.AwaitGivenUp();
  EXPECT_THAT(executors.Missing(), ElementsAre("a0", "b0"));
}

TEST(ExecutorSetTest, UnfitProcessStaysOutAndItsSuccessorMayJoin) {
  ExecutorSet executors({.expected = {"a0"}});
  executors.Join(ExecutorNamed("a0"));
  executors.MarkUnfit("a0");
  EXPECT_EQ(executors.StateOf("a0"), State::kPresent) << "until it leaves";
  executors.Leave("a0", 1);
  EXPECT_EQ(executors.StateOf("a0"), State::kUnfit);
  EXPECT_THAT(executors.Missing(), IsEmpty());
  executors.AwaitGivenUp();
  EXPECT_FALSE(executors.Admit(ExecutorNamed("a0")));
  EXPECT_TRUE(executors.Admit(ExecutorNamed("a0", 2)));
  EXPECT_EQ(executors.StateOf("a0"), State::kAbsent);
}

TEST(ExecutorSetTest, ExpectedExecutorIsIndispensableBeforeTheFirstPlan) {
  ExecutorSet executors({.expected = {"a0", "b0"}});
  executors.Join(ExecutorNamed("a0"));
  executors.Join(ExecutorNamed("b0"));
  executors.Join(ExecutorNamed("c0"));
  EXPECT_FALSE(executors.IsDispensable("a0", /*planned=*/false, /*gathers=*/false));
  EXPECT_TRUE(executors.IsDispensable("c0", /*planned=*/false, /*gathers=*/false));
  EXPECT_TRUE(executors.IsDispensable("a0", /*planned=*/true, /*gathers=*/false));
  executors.Leave("b0", 1);
  executors.Leave("c0", 1);
  EXPECT_FALSE(executors.IsDispensable("a0", /*planned=*/true, /*gathers=*/false)) << "it is the last one";
}

TEST(ExecutorSetTest, LastDeviceWithTheDataIsIndispensableBeforeTheFirstPlan) {
  ExecutorSet executors({.min_executors = 1, .data_devices = {"a0", "b0"}});
  for (const char* name : {"a0", "b0"}) executors.Join(ExecutorNamed(name));
  EXPECT_TRUE(executors.IsDispensable("a0", /*planned=*/false, /*gathers=*/true));
  executors.MarkUnfit("b0");
  executors.Leave("b0", 1);
  EXPECT_FALSE(executors.IsDispensable("a0", /*planned=*/false, /*gathers=*/true));
}

TEST(ExecutorSetTest, DataAreLackingWhileNoDeviceThatHasThemIsPresent) {
  ExecutorSet executors({.data_devices = {"a0"}});
  EXPECT_TRUE(executors.LacksData());
  executors.Join(ExecutorNamed("b0"));
  EXPECT_FALSE(executors.had_data());
  executors.Join(ExecutorNamed("a0"));
  EXPECT_FALSE(executors.LacksData());
  executors.Leave("a0", 1);
  EXPECT_TRUE(executors.LacksData());
  EXPECT_TRUE(executors.had_data());
  EXPECT_FALSE(ExecutorSet(RunOptions()).LacksData()) << "all have them";
}

TEST(ExecutorSetTest, OnlyMachinesOfAnOpenRunJoinByThemselves) {
  ExecutorSet open({.expected = {"a0"}, .min_executors = 2, .data_devices = {"b0"}});
  for (const char* name : {"a0", "b0", "c0"}) open.Join(ExecutorNamed(name));
  EXPECT_FALSE(open.JoinedByItself("a0"));
  EXPECT_FALSE(open.JoinedByItself("b0"));
  EXPECT_TRUE(open.JoinedByItself("c0"));
  EXPECT_FALSE(open.JoinedByItself("d0")) << "it is not present";
}

TEST(ExecutorSetTest, LateJoinersAreThoseThatThePlanDoesWithout) {
  RunOptions options{.expected = {"a0", "b0", "s0"}, .excluded = {"x0"}, .min_executor_memory_bytes = 50};
  ExecutorSet executors(options);
  executors.Join(ExecutorNamed("a0"));
  executors.Join(ExecutorNamed("s0", 1, /*spare=*/true));
  RunPlan plan{.devices = {"a0"}, .executors = 1, .desired_executors = 2};
  EXPECT_EQ(executors.DesiredExecutors(), 2) << "the spare is known to be one";
  EXPECT_TRUE(executors.NeedsSpares(plan));
  EXPECT_THAT(executors.LateJoiners(plan), ElementsAre("s0"));
  executors.Join(ExecutorNamed("b0"));
  executors.Join(ExecutorNamed("x0"));
  executors.Join(ExecutorNamed("c0", 1, false, /*memory_bytes=*/49));
  EXPECT_FALSE(executors.NeedsSpares(plan));
  EXPECT_THAT(executors.LateJoiners(plan), ElementsAre("b0"));
  executors.MarkConsidered({"b0"});
  EXPECT_THAT(executors.LateJoiners(plan), IsEmpty());
  executors.Leave("b0", 1);
  executors.Join(ExecutorNamed("b0", 2));
  EXPECT_THAT(executors.LateJoiners(plan), ElementsAre("b0")) << "another process of it was not considered";
  plan.executors = 2;
  EXPECT_THAT(executors.LateJoiners(plan), IsEmpty());
}

TEST(ExecutorSetTest, WantedExecutorsAreAsManyAsAPlanWasMadeOver) {
  ExecutorSet executors({.min_executors = 1});
  EXPECT_EQ(executors.DesiredExecutors(), 1);
  for (const char* name : {"a0", "b0", "c0"}) executors.Join(ExecutorNamed(name));
  executors.RecordTrainers(executors.Trainers());
  executors.Leave("c0", 1);
  executors.RecordTrainers(executors.Trainers());
  EXPECT_EQ(executors.DesiredExecutors(), 3);
}

}  // namespace
}  // namespace fusionllm::broker
