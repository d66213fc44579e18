#include "lib/broker/membership.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::broker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Standing = Membership::Standing;

Member Executor(const std::string& name, uint64_t incarnation = 1, bool spare = false, int64_t memory_bytes = 100) {
  return {.name = name, .incarnation = incarnation, .site = name.substr(0, 1), .spare = spare, .memory_bytes = memory_bytes};
}

TEST(MembershipTest, JoinersArePresentUntilTheirOwnProcessLeaves) {
  Membership members({.expected = {"a0"}});
  EXPECT_EQ(members.StandingOf("a0"), Standing::kAbsent);
  EXPECT_THAT(members.Missing(), ElementsAre("a0"));
  EXPECT_TRUE(members.Admit(Executor("a0")));
  members.Join(Executor("a0"));
  EXPECT_EQ(members.StandingOf("a0"), Standing::kPresent);
  EXPECT_EQ(members.SiteOf("a0"), "a");
  EXPECT_FALSE(members.Leave("a0", 2)) << "news of another process";
  EXPECT_TRUE(members.IsSameProcess(Executor("a0")));
  EXPECT_FALSE(members.IsSameProcess(Executor("a0", 2)));
  EXPECT_TRUE(members.Leave("a0", 1));
  EXPECT_EQ(members.StandingOf("a0"), Standing::kAbsent);
  EXPECT_EQ(members.SiteOf("a0"), "");
  EXPECT_FALSE(members.Leave("a0", 1));
}

TEST(MembershipTest, GivenUpExecutorsAreNotMissingUntilAwaitedAgainOrBack) {
  Membership members({.expected = {"a0", "b0"}});
  members.GiveUpMissing();
  EXPECT_EQ(members.StandingOf("a0"), Standing::kGivenUp);
  EXPECT_THAT(members.Missing(), IsEmpty());
  members.Join(Executor("a0"));
  members.Leave("a0", 1);
  EXPECT_THAT(members.Missing(), ElementsAre("a0"));
  members.AwaitGivenUp();
  EXPECT_THAT(members.Missing(), ElementsAre("a0", "b0"));
}

TEST(MembershipTest, UnfitProcessStaysOutAndItsSuccessorMayJoin) {
  Membership members({.expected = {"a0"}});
  members.Join(Executor("a0"));
  members.MarkUnfit("a0");
  EXPECT_EQ(members.StandingOf("a0"), Standing::kPresent) << "until it leaves";
  members.Leave("a0", 1);
  EXPECT_EQ(members.StandingOf("a0"), Standing::kUnfit);
  EXPECT_THAT(members.Missing(), IsEmpty());
  members.AwaitGivenUp();
  EXPECT_FALSE(members.Admit(Executor("a0")));
  EXPECT_TRUE(members.Admit(Executor("a0", 2)));
  EXPECT_EQ(members.StandingOf("a0"), Standing::kAbsent);
}

TEST(MembershipTest, ExpectedExecutorIsIndispensableBeforeTheFirstPlan) {
  Membership members({.expected = {"a0", "b0"}});
  members.Join(Executor("a0"));
  members.Join(Executor("b0"));
  members.Join(Executor("c0"));
  EXPECT_FALSE(members.IsDispensable("a0", /*planned=*/false, /*gathers=*/false));
  EXPECT_TRUE(members.IsDispensable("c0", /*planned=*/false, /*gathers=*/false));
  EXPECT_TRUE(members.IsDispensable("a0", /*planned=*/true, /*gathers=*/false));
  members.Leave("b0", 1);
  members.Leave("c0", 1);
  EXPECT_FALSE(members.IsDispensable("a0", /*planned=*/true, /*gathers=*/false)) << "it is the last one";
}

TEST(MembershipTest, LastDeviceWithTheDataIsIndispensableBeforeTheFirstPlan) {
  Membership members({.min_executors = 1, .data_devices = {"a0", "b0"}});
  for (const char* name : {"a0", "b0"}) members.Join(Executor(name));
  EXPECT_TRUE(members.IsDispensable("a0", /*planned=*/false, /*gathers=*/true));
  members.MarkUnfit("b0");
  members.Leave("b0", 1);
  EXPECT_FALSE(members.IsDispensable("a0", /*planned=*/false, /*gathers=*/true));
}

TEST(MembershipTest, DataAreLackingWhileNoDeviceThatHasThemIsPresent) {
  Membership members({.data_devices = {"a0"}});
  EXPECT_TRUE(members.LacksData());
  members.Join(Executor("b0"));
  EXPECT_FALSE(members.data_was_here());
  members.Join(Executor("a0"));
  EXPECT_FALSE(members.LacksData());
  members.Leave("a0", 1);
  EXPECT_TRUE(members.LacksData());
  EXPECT_TRUE(members.data_was_here());
  EXPECT_FALSE(Membership(RunOptions()).LacksData()) << "all have them";
}

TEST(MembershipTest, OnlyMachinesOfAnOpenRunJoinByThemselves) {
  Membership open({.expected = {"a0"}, .min_executors = 2, .data_devices = {"b0"}});
  for (const char* name : {"a0", "b0", "c0"}) open.Join(Executor(name));
  EXPECT_FALSE(open.JoinedByItself("a0"));
  EXPECT_FALSE(open.JoinedByItself("b0"));
  EXPECT_TRUE(open.JoinedByItself("c0"));
  EXPECT_FALSE(open.JoinedByItself("d0")) << "it is not present";
}

TEST(MembershipTest, LateJoinersAreThoseThatThePlanDoesWithout) {
  RunOptions options{.expected = {"a0", "b0", "s0"}, .excluded = {"x0"}, .min_executor_memory_bytes = 50};
  Membership members(options);
  members.Join(Executor("a0"));
  members.Join(Executor("s0", 1, /*spare=*/true));
  RunPlan plan{.devices = {"a0"}, .executors = 1, .wanted = 2};
  EXPECT_EQ(members.Wanted(), 2) << "the spare is known to be one";
  EXPECT_TRUE(members.NeedsSpares(plan));
  EXPECT_THAT(members.LateJoiners(plan), ElementsAre("s0"));
  members.Join(Executor("b0"));
  members.Join(Executor("x0"));
  members.Join(Executor("c0", 1, false, /*memory_bytes=*/49));
  EXPECT_FALSE(members.NeedsSpares(plan));
  EXPECT_THAT(members.LateJoiners(plan), ElementsAre("b0"));
  members.MarkConsidered({"b0"});
  EXPECT_THAT(members.LateJoiners(plan), IsEmpty());
  members.Leave("b0", 1);
  members.Join(Executor("b0", 2));
  EXPECT_THAT(members.LateJoiners(plan), ElementsAre("b0")) << "another process of it was not considered";
  plan.executors = 2;
  EXPECT_THAT(members.LateJoiners(plan), IsEmpty());
}

TEST(MembershipTest, WantedExecutorsAreAsManyAsAPlanWasMadeOver) {
  Membership members({.min_executors = 1});
  EXPECT_EQ(members.Wanted(), 1);
  for (const char* name : {"a0", "b0", "c0"}) members.Join(Executor(name));
  members.RecordTrainers(members.Trainers());
  members.Leave("c0", 1);
  members.RecordTrainers(members.Trainers());
  EXPECT_EQ(members.Wanted(), 3);
}

}  // namespace
}  // namespace fusionllm::broker
