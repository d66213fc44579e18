#include "services/broker/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/broker/testing/run_plans.h"
#include "lib/wire/plan_json.h"
#include "services/broker/testing/file_size_limit.h"

namespace fusionllm::services {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Journal, AnEntryThatDidNotFitLeavesNoHalfALine) {
  const base::TempFolder folder;
  const std::string path = folder / "broker.journal";
  JournalState state;
  {
    absl::StatusOr<Journal> journal = Journal::Open(path, &state);
    ASSERT_TRUE(journal.ok()) << journal.status();
    ASSERT_TRUE(journal->RecordStep(1, {.step = 1, .loss = 5}).ok());
    {
      const FileSizeLimit limit(std::filesystem::file_size(path) + 10);
      EXPECT_EQ(journal->RecordStep(1, {.step = 2, .loss = 4}).code(), absl::StatusCode::kResourceExhausted);
    }
    ASSERT_TRUE(journal->RecordStep(1, {.step = 3, .loss = 3}).ok());
  }
  JournalState again;
  const absl::StatusOr<Journal> reopened = Journal::Open(path, &again);
  ASSERT_TRUE(reopened.ok()) << reopened.status();
  ASSERT_EQ(again.steps.size(), 2);
  EXPECT_EQ(again.steps[0].second.step, 1);
  EXPECT_EQ(again.steps[1].second.step, 3);
}

TEST(Journal, WhatSendersFoundOfTheirCodecsIsKeptOverPlans) {
  const base::TempFolder folder;
  const std::string path = folder / "broker.journal";
  const broker::CodecLimits limits = {{{"lm_head", false}, "fp16"}, {{"lm_head", true}, "int8"}};
  {
    JournalState state;
    absl::StatusOr<Journal> journal = Journal::Open(path, &state);
    ASSERT_TRUE(journal.ok()) << journal.status();
    ASSERT_TRUE(journal->RecordCodecLimits("", {{{"lm_head", false}, "int8"}}).ok());
    ASSERT_TRUE(journal->RecordCodecLimits("int8", limits).ok());
    ASSERT_TRUE(journal->RecordEpoch(2, {.document = "{}", .devices = {"a"}}, {}, {}, "int8", {}).ok());
  }
  JournalState state;
  ASSERT_TRUE(Journal::Open(path, &state).ok());
  EXPECT_EQ(state.codec_limit, "int8");
  EXPECT_EQ(state.codec_limits, limits);
  EXPECT_EQ(state.backoffs, 2);
}

TEST(Journal, ALineTornByTheDeathOfItsWriterIsDropped) {
  const base::TempFolder folder;
  const std::string path = folder / "broker.journal";
  JournalState state;
  ASSERT_TRUE(Journal::Open(path, &state)->RecordStep(1, {.step = 1, .loss = 5}).ok());
  const std::string whole = base::ReadWholeFile(path);
  folder.Write("broker.journal", whole + whole.substr(0, whole.size() / 2));
  JournalState again;
  absl::StatusOr<Journal> reopened = Journal::Open(path, &again);
  ASSERT_TRUE(reopened.ok()) << reopened.status();
  EXPECT_EQ(again.steps.size(), 1);
  ASSERT_TRUE(reopened->RecordStep(1, {.step = 2, .loss = 4}).ok());
  JournalState third;
  ASSERT_TRUE(Journal::Open(path, &third).ok());
  EXPECT_EQ(third.steps.size(), 2);
  // Damage before the last line is no torn line.
  folder.Write("broker.journal", whole.substr(0, whole.size() / 2) + "\n" + whole);
  EXPECT_EQ(Journal::Open(path, &third).status().code(), absl::StatusCode::kDataLoss);
}

TEST(Journal, AShortPlanStaysOneInTheNextLifeOfTheBroker) {
  const base::TempFolder folder;
  const std::string path = folder / "broker.journal";
  JournalState state;
  const broker::RunPlan plan{.document = R"({"stages": [{"devices": ["a"]}]})", .devices = {"a"}, .executors = 1, .desired_executors = 2};
  ASSERT_TRUE(Journal::Open(path, &state)->RecordEpoch(1, plan, {}, {}, "", {}).ok());
  JournalState again;
  ASSERT_TRUE(Journal::Open(path, &again).ok());
  EXPECT_EQ(again.plan.executors, 1);
  EXPECT_EQ(again.plan.desired_executors, 2);
}

// Two replicas of two stages, a > b and c > d.
plan::Plan TwoReplicas() {
  return {.micro_batches = 8,
          .replicas = 2,
          .micro_batches_by_replica = {5, 3},
          .stages = {{.index = 0,
                      .devices = {"a", "c"},
                      .ops = {"wte"},
                      .by_replica = {{.compute_seconds = 0.5, .memory_bytes = 1}, {.compute_seconds = 0.3, .memory_bytes = 3}},
                      .chain = {0, 1},
                      .chunk_bytes = 1},
                     {.index = 1,
                      .devices = {"b", "d"},
                      .ops = {"loss"},
                      .by_replica = {{.compute_seconds = 0.4, .memory_bytes = 2}, {.compute_seconds = 0.2, .memory_bytes = 4}},
                      .chain = {0, 1},
                      .chunk_bytes = 1}},
          .links = {{.src = "c", .dst = "d", .src_stage = 0, .dst_stage = 1, .bytes = 70, .codec = "int8"}}};
}

// s has taken d's rank.
broker::RunPlan Replicas(const std::string& document = wire::PrintPlan(TwoReplicas())) {
  return {.document = document, .devices = {"a", "b", "c", "s"}, .plan = TwoReplicas()};
}

TEST(Journal, AfterACrashEveryRankIsTheSameExecutors) {
  const base::TempFolder folder;
  const std::string path = folder / "broker.journal";
  {
    JournalState state;
    absl::StatusOr<Journal> journal = Journal::Open(path, &state);
    ASSERT_TRUE(journal.ok()) << journal.status();
    ASSERT_TRUE(journal->RecordEpoch(3, Replicas(), {{"s", "profile"}}, {}, "int8", {{"d", {{"c", 900}}}}).ok());
    ASSERT_TRUE(journal->RecordStep(3, {.step = 7, .loss = 5, .step_seconds = 0.5}).ok());
    ASSERT_TRUE(journal->RecordTraffic(3, "s", {{"b", 50}, {"c", 60}}).ok());
    ASSERT_TRUE(journal->RecordShard({.epoch = 3, .step = 10, .stage = 1, .files = {{.name = "x", .bytes = 8}}}).ok());
    ASSERT_TRUE(journal->RecordStageEnd({.epoch = 3, .name = "s", .last_step = 7}).ok());
  }
  JournalState again;
  ASSERT_TRUE(Journal::Open(path, &again).ok());
  const broker::RunPlan& plan = again.plan;
  EXPECT_EQ(again.epoch, 3u);
  EXPECT_EQ(plan.plan.replicas, 2);
  EXPECT_EQ(plan.stages(), 2);
  EXPECT_THAT(plan.devices, ElementsAre("a", "b", "c", "s"));
  EXPECT_EQ(plan.Describe(3), "stage 1 of replica 1");
  EXPECT_THAT(plan.plan.micro_batches_by_replica, ElementsAre(5, 3));
  EXPECT_THAT(plan.MemoryBytes(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(broker::testing::BusySeconds(plan), ElementsAre(0.5, 0.4, 0.3, 0)) << "of s in d's rank nothing is expected";
  ASSERT_EQ(plan.plan.links.size(), 1u);
  EXPECT_EQ(plan.RanksOf(plan.plan.links[0]), std::pair(2, 3));
  EXPECT_EQ(again.last_step, 7);
  EXPECT_EQ(again.codec_limit, "int8");
  EXPECT_EQ(again.earlier_bytes["d"]["c"], 900);
  EXPECT_EQ(again.epoch_bytes["s"]["c"], 60);
  EXPECT_EQ(again.ended_at["s"], 7);
  ASSERT_EQ(again.shards.size(), 1u);

  // What the broker does with it: the run stands where it stood.
  broker::RunState run({.expected = {"a", "b", "c", "s"}, .total_steps = 20});
  run.Adopt(again.epoch, again.plan, again.profiles, again.links, again.last_step, again.shards, again.ended_at, again.codec_limit);
  EXPECT_EQ(run.epoch(), 3u);
  EXPECT_EQ(run.plan().Describe(2), "stage 0 of replica 1");
  const auto believes = [&](const char* name, int stage) {
    return run.IsCurrent(broker::ShardWritten{.epoch = 3, .name = name, .step = 20, .stage = stage});
  };
  EXPECT_TRUE(believes("b", 1));
  EXPECT_FALSE(believes("b", 0)) << "a's stage";
  EXPECT_FALSE(believes("s", 1)) << "of replica 1, which writes none";
}

TEST(Journal, CountsRanksWhenThePlanIsUnreadable) {
  const base::TempFolder folder;
  const auto reread = [&](const broker::RunPlan& plan) {
    const std::string path = folder / "broker.journal";
    EXPECT_TRUE(Journal::Discard(path).ok());
    JournalState state, again;
    EXPECT_TRUE(Journal::Open(path, &state)->RecordEpoch(1, plan, {}, {}, "", {}).ok());
    EXPECT_TRUE(Journal::Open(path, &again).ok());
    return again.plan;
  };
  const broker::RunPlan newer = reread(Replicas("of a newer build"));
  EXPECT_EQ(newer.stages(), 2);
  EXPECT_THAT(newer.MemoryBytes(), ElementsAre(1, 2, 3, 4));
  broker::RunPlan odd = Replicas("of a newer build");
  odd.devices.pop_back();
  EXPECT_EQ(reread(odd).plan.replicas, 1) << "three devices are no two pipelines";
  odd.devices.clear();
  EXPECT_EQ(reread(odd).plan.replicas, 1) << "no device is no pipeline";
}

TEST(Journal, WhereAShardStaysIsKept) {
  const base::TempFolder folder;
  const std::string path = folder / "broker.journal";
  JournalState state;
  absl::StatusOr<Journal> journal = Journal::Open(path, &state);
  ASSERT_TRUE(journal.ok()) << journal.status();
  broker::ShardWritten shard{.epoch = 0, .step = 10, .stage = 1, .files = {{.name = "here", .bytes = 8}, {.name = "there", .bytes = 9}}};
  shard.files[1].site = "paris";
  shard.files[1].site_folder = "0123456789abcdef/b/step-000010.0000000000000001";
  shard.files[1].tensor_bytes = 4;
  ASSERT_TRUE(journal->RecordShard(shard).ok());
  JournalState again;
  ASSERT_TRUE(Journal::Open(path, &again).ok());
  ASSERT_EQ(again.shards.size(), 1);
  EXPECT_EQ(again.shards[0].files[0].site, "");
  EXPECT_EQ(again.shards[0].files[1].site, "paris");
  EXPECT_EQ(again.shards[0].files[1].site_folder, shard.files[1].site_folder);
  EXPECT_EQ(again.shards[0].files[1].tensor_bytes, 4);
}

// A broker that took a checkpoint up from the folder may have died before it noted so.
TEST(Journal, ACheckpointLeavesNoShardsOfItsStepOrOfEarlierOnes) {
  const base::TempFolder folder;
  const std::string path = folder / "broker.journal";
  JournalState state;
  absl::StatusOr<Journal> journal = Journal::Open(path, &state);
  ASSERT_TRUE(journal.ok()) << journal.status();
  const auto record = [&](int64_t step) { return journal->RecordShard({.epoch = 0, .step = step, .stage = 0}).ok(); };
  ASSERT_TRUE(record(0) && record(50) && record(60) && record(70));
  const auto steps_left = [&] {
    JournalState again;
    EXPECT_TRUE(Journal::Open(path, &again).ok());
    std::vector<int64_t> steps;
    for (const broker::ShardWritten& shard : again.shards) steps.push_back(shard.step);
    return steps;
  };
  EXPECT_THAT(steps_left(), ElementsAre(0, 50, 60, 70)) << "there is no checkpoint yet, not even of step 0";
  ASSERT_TRUE(journal->RecordCheckpoint(60, "step-000060").ok());
  EXPECT_THAT(steps_left(), ElementsAre(70));
  ASSERT_TRUE(record(50) && record(60)) << "told again by executors that came back";
  EXPECT_THAT(steps_left(), ElementsAre(70));
  ASSERT_TRUE(journal->RecordCheckpoint(40, "step-000040").ok());  // in the place of one that could not be restored
  ASSERT_TRUE(record(50)) << "which is made again";
  EXPECT_THAT(steps_left(), ElementsAre(70, 50));
}

TEST(Journal, WhatCannotBeReadIsNotCutOff) {
  const base::TempFolder folder;
  JournalState state;
  // A folder opens like a file and fails when it is read, by any user; a link to itself does not even open.
  std::filesystem::create_directory(folder / "unreadable");
  std::filesystem::create_symlink("unopened", folder / "unopened");
  for (const char* name : {"unreadable", "unopened"}) {
    const absl::Status status = Journal::Open(folder / name, &state).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << name << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("cannot read journal ", folder / name)));
  }
}

TEST(Journal, AJournalThatCannotBeRemovedIsAnError) {
  const base::TempFolder folder;
  EXPECT_TRUE(Journal::Discard(folder / "none").ok()) << "there is nothing to remove";
  folder.Write("in-its-place/file", "");
  const absl::Status status = Journal::Discard(folder / "in-its-place");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder / "in-its-place"));
  folder.Write("old", "entries");
  EXPECT_TRUE(Journal::Discard(folder / "old").ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "old"));
}

}  // namespace
}  // namespace fusionllm::services
