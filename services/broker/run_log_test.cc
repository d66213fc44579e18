#include "services/broker/run_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/base/source_file.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/broker/testing/run_plans.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {
namespace {

using nlohmann::json;

constexpr char kTwoStagePlan[] = R"({"predicted_step_seconds": 0.5, "stages": [{"devices": ["a"]}, {"devices": ["b"]}], "links": []})";

class RunLogTest : public ::testing::Test {
 protected:
  ~RunLogTest() override { std::fclose(out_); }

  static broker::RunPlan Plan() {
    broker::RunPlan plan = broker::testing::PlanOn({"a", "b"}, {}, /*memory_bytes=*/1);
    plan.document = kTwoStagePlan;
    return plan;
  }

  // A stage's report of a step in which, as in each before, it was busy for 0.1 s and sent `bytes` to its peer.
  static v1::StageTimes Times(uint32_t epoch, int64_t step, const std::string& peer, int64_t bytes) {
    v1::StageTimes times;
    times.set_epoch(epoch);
    times.set_step(step);
    times.set_busy_seconds(0.1);
    times.set_epoch_steps(step);
    times.set_epoch_busy_seconds(0.1 * static_cast<double>(step));
    v1::LinkBytes& link = *times.add_links();
    link.set_peer(peer);
    link.set_wire_bytes_sent(bytes * step);
    return times;
  }

  json LastLine() {
    std::fflush(out_);
    const std::string text = *base::ReadSmallFile(path_, 1 << 20);
    const std::string lines = text.substr(0, text.size() - 1);
    json line = json::parse(lines.substr(lines.rfind('\n') + 1));
    EXPECT_EQ(line.erase("time"), 1u);
    return line;
  }

  static int64_t BytesFrom(const json& summary, const std::string& src) {
    int64_t bytes = 0;
    for (const json& link : summary["links"]) bytes += link["src"] == src ? link["bytes"].get<int64_t>() : 0;
    return bytes;
  }

  base::TempFolder folder_;
  const std::string path_ = folder_ / "out";
  std::FILE* out_ = std::fopen(path_.c_str(), "w");
};

TEST_F(RunLogTest, ABrokerThatTookARunOverSumsUpWhatTheOneBeforeHadSeen) {
  const std::string journal_path = folder_ / "journal";
  {
    JournalState nothing;
    Journal journal = *Journal::Open(journal_path, &nothing);
    RunLog log(out_, 1, 1);
    ASSERT_TRUE(journal.RecordEpoch(1, Plan(), {}, {}, "", log.SentBytes()).ok());
    log.Plan(Plan(), 1);
    log.StageTimes("a", Times(1, 10, "b", 100));
    ASSERT_TRUE(journal.RecordEpoch(2, Plan(), {}, {}, "int8", log.SentBytes()).ok());
    log.Plan(Plan(), 2);
    for (int64_t step = 1; step <= 4; ++step) {
      const broker::StepRecord record{.step = step, .loss = 1, .step_seconds = 0.2};
      log.Step(2, record);
      ASSERT_TRUE(journal.RecordStep(2, record).ok());
    }
    ASSERT_TRUE(journal.RecordTraffic(2, "a", {{"b", 400}}).ok());
    ASSERT_TRUE(journal.RecordTraffic(2, "b", {{"a", 40}}).ok());
    ASSERT_TRUE(journal.RecordTraffic(1, "b", {{"a", 9999}}).ok()) << "of an epoch that is over";
  }
  JournalState past;
  ASSERT_TRUE(Journal::Open(journal_path, &past).ok());
  EXPECT_EQ(past.codec_limit, "int8");
  RunLog log(out_, 1, 1);
  log.RestoreFrom(past);
  log.StageTimes("a", Times(2, 6, "b", 100));  // b is silent, as if the epoch were lost with the broker
  log.Step(2, {.step = 5, .loss = 1, .step_seconds = 0.2});
  log.Step(2, {.step = 6, .loss = 1, .step_seconds = 0.2});
  log.Summary({{"a", "b"}});
  const json summary = LastLine();
  EXPECT_EQ(BytesFrom(summary, "a"), 1000 + 600) << summary.dump();
  EXPECT_EQ(BytesFrom(summary, "b"), 40) << summary.dump();
  EXPECT_EQ(summary["wire_bytes"], 1640);
  EXPECT_NEAR(summary["stages"][0]["busy_ratio"].get<double>(), 0.5, 1e-9) << "of all six steps";
}

TEST_F(RunLogTest, AnEventCarriesItsFiguresOnlyWhereItHasSome) {
  RunLog log(out_, 1, 1);
  log.Event({.reason = "LinkDegraded", .step = 3, .message = "m", .device = "a", .peer = "b", .measured = 1.5, .planned = 3.0});
  EXPECT_EQ(LastLine(), json::parse(R"({"type": "event", "reason": "LinkDegraded", "step": 3, "message": "m", "device": "a", "peer": "b",
                                       "measured": 1.5, "planned": 3.0})"));
  log.Event({.reason = "Restored", .step = 3, .message = "m"});
  EXPECT_EQ(LastLine(), json::parse(R"({"type": "event", "reason": "Restored", "step": 3, "message": "m"})"));
}

TEST_F(RunLogTest, AStepTellsTheTargetsThatCountAndTheIgnoredOnes) {
  RunLog log(out_, 64, 4);
  log.Step(1, {.step = 1, .loss = 2, .counted = 0.25, .step_seconds = 0.5});
  const json step = LastLine();
  EXPECT_EQ(step["targets"], 16);
  EXPECT_EQ(step["ignored_targets"], 48);
  EXPECT_EQ(step["tokens_per_second"], 32);
  EXPECT_EQ(step["samples_per_second"], 8);
}

TEST_F(RunLogTest, AnAccuracyThatWasNotCountedIsNull) {
  RunLog log(out_, 1, 1);
  v1::EvaluationReport report;
  report.set_step(2);
  report.set_loss(0.5);
  log.Evaluation(report);
  EXPECT_EQ(LastLine(), json::parse(R"({"type": "eval", "step": 2, "loss": 0.5, "accuracy": null})"));
  report.set_accuracy(0);
  log.Evaluation(report);
  EXPECT_EQ(LastLine(), json::parse(R"({"type": "eval", "step": 2, "loss": 0.5, "accuracy": 0.0})"));
}

TEST_F(RunLogTest, LinksHaveTheDevicesOfNowAndKeepTheCodecsOfEarlierPlans) {
  RunLog log(out_, 1, 1);
  broker::RunPlan plan = Plan();
  plan.document = R"({"stages": [{"devices": ["a"]}, {"devices": ["b"]}],
                      "links": [{"src": "a", "dst": "b", "src_stage": 0, "dst_stage": 1, "codec": "int8", "ratio": 3.9}]})";
  log.Plan(plan, 1);
  log.StageTimes("a", Times(1, 1, "b", 100));
  plan.devices = {"a", "spare"};  // has taken the stage over, and nothing said what to expect of it
  log.Plan(plan, 2);
  EXPECT_EQ(LastLine()["links"][0]["dst"], "spare");
  log.StageTimes("a", Times(2, 1, "spare", 100));
  log.Summary({});
  const json links = LastLine()["links"];
  EXPECT_EQ(links.size(), 2u);
  for (const json& link : links) {
    EXPECT_EQ(link["codec"], "int8") << link.dump();
    EXPECT_EQ(link["ratio"], 3.9) << link.dump();
  }
}

TEST_F(RunLogTest, ReplicasAreNamedByStageAndReplica) {
  RunLog log(out_, 1, 1);
  broker::RunPlan plan = broker::testing::PlanOn({"a", "b", "c", "d"}, {}, /*memory_bytes=*/0, /*replicas=*/2);
  plan.document = R"({"replicas": 2, "stages": [{"devices": ["a", "c"]}, {"devices": ["b", "d"]}],
                      "links": [{"src": "c", "dst": "d", "src_stage": 0, "dst_stage": 1, "codec": "int8", "ratio": 3.9}]})";
  for (int rank = 0; rank < 4; ++rank) plan.plan.stages[rank % 2].by_replica[rank / 2].memory_bytes = rank + 1;
  plan.devices[3] = "spare";  // has taken the rank from d
  log.Plan(plan, 1);
  EXPECT_EQ(LastLine()["stages"][0]["devices"], json({"a", "c"}));
  EXPECT_EQ(LastLine()["stages"][1]["devices"], json({"b", "spare"}));
  EXPECT_EQ(LastLine()["links"][0]["dst"], "spare");
  log.Event({.reason = "ExecutorLost", .device = "d", .stage = 1, .replica = 1});
  EXPECT_EQ(LastLine()["replica"], 1);
  log.Summary({});
  const json stages = LastLine()["stages"];
  ASSERT_EQ(stages.size(), 4u);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(stages[rank]["index"], rank % 2);
    EXPECT_EQ(stages[rank]["replica"], rank / 2);
    EXPECT_EQ(stages[rank]["device"], plan.devices[static_cast<size_t>(rank)]);
    EXPECT_EQ(stages[rank]["predicted_memory_bytes"], rank + 1);
  }
  log.Plan(Plan(), 2);
  log.Summary({});
  EXPECT_FALSE(LastLine()["stages"][0].contains("replica")) << "there is one";
}

TEST_F(RunLogTest, OfTwoCountsOfTheSameBytesTheLargerHoldsWhateverComesFirst) {
  RunLog log(out_, 1, 1);
  log.Plan(Plan(), 1);
  v1::StageTimes times = Times(1, 1, "b", 100);
  times.mutable_links(0)->add_wire_bytes_sent_by_class(30);
  times.mutable_links(0)->add_wire_bytes_sent_by_class(70);
  v1::LinkBytes as_received;
  as_received.set_peer("b");
  as_received.add_wire_bytes_sent_by_class(20);  // an acknowledgement is on its way
  as_received.add_wire_bytes_sent_by_class(570);
  as_received.set_wire_bytes_sent(590);
  log.RecordSent("a", as_received);
  log.StageTimes("a", times);
  log.Summary({});
  EXPECT_EQ(LastLine()["wire_bytes"], 600);
  EXPECT_EQ(BytesFrom(LastLine(), "a"), 600);
  log.StageTimes("a", times);
  log.RecordSent("a", as_received);
  log.Summary({});
  EXPECT_EQ(LastLine()["wire_bytes"], 600);
}

TEST_F(RunLogTest, BytesOfEvaluationsAreWrittenBesideAllBytesOverAllPlans) {
  RunLog log(out_, 1, 1);
  log.Plan(Plan(), 1);
  v1::StageTimes times = Times(1, 1, "b", 100);
  times.mutable_links(0)->set_evaluation_bytes_sent(30);
  log.StageTimes("a", times);
  log.Plan(Plan(), 2);
  times = Times(2, 1, "b", 200);
  times.mutable_links(0)->set_evaluation_bytes_sent(50);
  log.StageTimes("a", times);
  v1::LinkBytes last;  // of what came behind the last step
  last.set_peer("b");
  last.set_wire_bytes_sent(260);
  last.set_evaluation_bytes_sent(110);
  log.RecordSent("a", last);
  log.StageTimes("a", times);
  log.Summary({});
  EXPECT_EQ(LastLine()["links"][0]["bytes"], 360);
  EXPECT_EQ(LastLine()["links"][0]["evaluation_bytes"], 140);
}

TEST_F(RunLogTest, ABrokerThatTookARunOverDoesNotClaimToKnowTheBytesOfEvaluations) {
  RunLog log(out_, 1, 1);
  log.RestoreFrom(JournalState{.plan = Plan()});
  log.StageTimes("a", Times(0, 1, "b", 100));
  log.Summary({});
  EXPECT_FALSE(LastLine()["links"][0].contains("evaluation_bytes")) << LastLine().dump();
}

TEST_F(RunLogTest, ARateThatIsNotTheWiresIsNoBandwidth) {
  RunLog log(out_, 1, 1);
  log.Plan(Plan(), 1);
  v1::StageTimes times = Times(1, 1, "b", 100);
  times.mutable_links(0)->set_bandwidth_bytes_per_second(5e4);
  log.StageTimes("a", times);
  log.Summary({{"a", "b"}});
  EXPECT_EQ(LastLine()["links"][0]["bandwidth_bytes_per_second"], 5e4);
  log.Summary({{"b", "a"}});
  EXPECT_EQ(LastLine()["links"][0]["bandwidth_bytes_per_second"], 0);
}

TEST_F(RunLogTest, TheSummaryTellsWhatCompressionDoesWhereItWasCompared) {
  RunLog log(out_, 1, 1);
  log.Plan(Plan(), 1);
  v1::StageTimes times = Times(1, 1, "b", 100);
  times.mutable_links(0)->set_ratio(3.9);
  log.StageTimes("a", times);
  log.Summary({{"a", "b"}});
  EXPECT_EQ(LastLine()["links"][0]["measured_ratio"], 3.9);
  EXPECT_FALSE(LastLine()["links"][0].contains("relative_error"));
  times.mutable_links(0)->set_compared_messages(2);
  times.mutable_links(0)->set_relative_error(0.01);
  times.mutable_links(0)->set_cosine(0.999);
  times.mutable_links(0)->set_residual_norm(5);
  log.StageTimes("a", times);
  log.Summary({{"a", "b"}});
  const json link = LastLine()["links"][0];
  EXPECT_EQ(link["compared_messages"], 2);
  EXPECT_EQ(link["relative_error"], 0.01);
  EXPECT_EQ(link["cosine"], 0.999);
  EXPECT_EQ(link["residual_norm"], 5);
}

TEST_F(RunLogTest, ABackoffCarriesItsFigures) {
  RunLog log(out_, 1, 1);
  log.Event({.reason = "CompressionBackoff",
             .step = 1,
             .message = "m",
             .device = "a",
             .peer = "b",
             .backoff = broker::CodecBackoff{.peer = "b",
                                             .value = "lm_head",
                                             .kind = "loss_input",
                                             .from = "topk@30:int8",
                                             .to = "fp16",
                                             .relative_error = 0.5,
                                             .cosine = 0.87,
                                             .limit = 0.002,
                                             .remaining_error = 0.0002},
             .expected_loss_increase = 0.14,
             .reduces_compression = true});
  const json line = LastLine();
  EXPECT_EQ(line["value"], "lm_head");
  EXPECT_EQ(line["gradient"], false);
  EXPECT_EQ(line["kind"], "loss_input");
  EXPECT_EQ(line["codec"], "topk@30:int8");
  EXPECT_EQ(line["codec_after"], "fp16");
  EXPECT_EQ(line["relative_error"], 0.5);
  EXPECT_EQ(line["cosine"], 0.87);
  EXPECT_EQ(line["relative_error_limit"], 0.002);
  EXPECT_EQ(line["relative_error_after"], 0.0002);
  EXPECT_EQ(line["expected_loss_increase"], 0.14);
}

TEST_F(RunLogTest, TheSummaryComparesWhatCompressionWasExpectedToDoWithWhatItDid) {
  broker::RunPlan plan = Plan();
  RunLog log(out_, 1, 1);
  log.Plan(plan, 1);
  log.Summary({});
  EXPECT_FALSE(LastLine().contains("compression")) << "nothing is compressed with loss";

  json document = json::parse(kTwoStagePlan);
  document["links"] = {{{"src", "a"}, {"dst", "b"}, {"codec", "topk@30:int8"}, {"ratio", 36}, {"loss_cost", 0.14}},
                       {{"src", "b"}, {"dst", "a"}, {"codec", "topk@30:int8"}, {"ratio", 115}, {"loss_cost", 0.0}}};
  plan.document = document.dump();
  log.Plan(plan, 2);
  const auto report = [&](int64_t step, double error, double cosine) {
    v1::StageTimes times = Times(2, step, "b", 100);
    times.mutable_links(0)->set_compared_messages(step);
    times.mutable_links(0)->set_relative_error(error);
    times.mutable_links(0)->set_cosine(cosine);
    log.StageTimes("a", times);
  };
  report(1, 0.4, 0.92);
  report(2, 0.1, 0.995);
  log.Event({.reason = "CompressionBackoff", .step = 1, .message = "told", .reduces_compression = true});
  log.Event({.reason = "CompressionBackoff", .step = 1, .message = "only a warning"});
  log.Summary({});
  const json compression = LastLine()["compression"];
  EXPECT_NEAR(compression["expected_loss_increase"].get<double>(), 0.14, 1e-12);
  EXPECT_EQ(compression["max_relative_error"], 0.4) << "of all that arrived, not of the last";
  EXPECT_EQ(compression["min_cosine"], 0.92);
  EXPECT_EQ(compression["backoffs"], 1);
}

TEST_F(RunLogTest, WhereNoTargetCountsThereIsNoLossAndTheFirstSuchStepIsKnown) {
  RunLog log(out_, /*tokens_per_step=*/100, /*samples_per_step=*/10);
  log.Plan(Plan(), 1);
  EXPECT_FALSE(log.Step(1, {.step = 1, .loss = 2, .counted = 0.25, .step_seconds = 0.5}));
  EXPECT_TRUE(log.Step(1, {.step = 2, .loss = 0, .counted = 0, .step_seconds = 0.5}));
  EXPECT_TRUE(LastLine()["loss"].is_null());
  EXPECT_FALSE(log.Step(1, {.step = 3, .loss = 0, .counted = 0, .step_seconds = 0.5})) << "it is told once";
  log.Summary({});
  EXPECT_TRUE(LastLine()["final_loss"].is_null());
  v1::EvaluationReport none;
  none.set_loss(std::nan(""));
  log.Evaluation(none);
  EXPECT_TRUE(LastLine()["loss"].is_null());
}

}  // namespace
}  // namespace fusionllm::services
