#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cli/run/progress.h"
#include "cli/run/run_recorder.h"
#include "cli/run/summary_text.h"
#include "cli/run/text_table.h"
#include "lib/report/plan_sentences.h"

namespace fusionllm::cli {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

report::Run RunOf(const std::vector<std::string>& lines) {
  report::Run run;
  RunRecorder recorder(&run);
  for (const std::string& line : lines) EXPECT_TRUE(recorder.Add(line).ok()) << line;
  return run;
}

constexpr char kPlan[] =
    R"({"type":"plan","strategy":"op-fence","predicted_step_seconds":1.85,"micro_batches":8,"in_flight":[4,2],)"
    R"("stages":[{"index":0,"devices":["paris-0"],"ops":["a","b"],"compute_seconds":0.5,"memory_bytes":1048576},)"
    R"({"index":1,"devices":["tokyo-0"],"ops":["c"]}],"links":[{"src":"paris-0","dst":"tokyo-0","bytes":1000,"codec":"int8","ratio":4}]})";

TEST(StepLineTest, TheLineHasThePlanAndTheTimeLeft) {
  const report::Run run = RunOf({kPlan, R"({"type":"step","step":120,"loss":3.412,"grad_norm":1.1,"learning_rate":3e-4,)"
                                        R"("step_seconds":1.92,"tokens_per_second":5210})"});
  EXPECT_EQ(StepLine(run, 5000), "step 120/5000 (2.4%) loss 3.412 gnorm 1.1 lr 3.0e-4 tok/s 5,210 step 1.92s (plan 1.85s) ETA 2h36m");
  EXPECT_THAT(StepLine(run, 120), Not(HasSubstr("ETA")));
}

TEST(StepLineTest, LargeGradientsAreWholeNumbers) {
  for (const auto& [norm, printed] : {std::pair<const char*, const char*>{"0.0123", "gnorm 0.012 "},
                                      {"99.4", "gnorm 99 "},
                                      {"200.2", "gnorm 200 "},
                                      {"31415.9", "gnorm 31416 "},
                                      {"2.5e7", "gnorm 2.5e+07 "}}) {
    EXPECT_THAT(StepLine(RunOf({absl::StrCat(R"({"type":"step","step":1,"loss":2,"step_seconds":1,"grad_norm":)", norm, "}")}), 2),
                HasSubstr(printed));
  }
}

TEST(StepLineTest, ImagesAreCountedAsImages) {
  report::Run run = RunOf({R"({"type":"step","step":1,"loss":2,"step_seconds":0.5,"tokens_per_second":64,"samples_per_second":64})"});
  run.unit = "images";
  EXPECT_THAT(StepLine(run, 9), AllOf(HasSubstr(" images/s 64.0 "), Not(HasSubstr("tok"))));
  run.summary.emplace().steps = 1;
  EXPECT_THAT(SummaryText(run), AllOf(HasSubstr("images/s"), Not(HasSubstr("tokens"))));
  EXPECT_THAT(ComparisonText(Compare({run})), AllOf(HasSubstr("images/s"), Not(HasSubstr("tokens"))));
  EXPECT_THAT(ComparisonJson(Compare({run}), "r.html"), HasSubstr(R"("samples_per_second":64.0)"));
}

TEST(ComparisonTest, BytesAStepAreThoseOfTheStepsThatTheRunItselfMade) {
  report::Run run =
      RunOf({R"({"type":"step","step":1,"loss":3})", R"({"type":"step","step":2,"loss":2})", R"({"type":"step","step":3,"loss":2})",
             R"({"type":"summary","steps":3,"links":[{"src":"a","dst":"b","bytes":4000}]})"});
  run.site_of = {{"a", "paris"}, {"b", "tokyo"}};
  run.earlier_steps = 1;  // of the start that this one resumed
  run.steps_made = 2;
  EXPECT_EQ(Compare({run}).rows.at(0).slow_link_step_bytes, 2000);
}

TEST(PlanLineTest, NamesDevicesInOrder) {
  EXPECT_EQ(PlanLine(*RunOf({kPlan}).plan),
            "plan: op-fence, 2 stages (paris-0 > tokyo-0), 8 micro-batches, 4 in flight, predicted step 1.85s");
}

TEST(PlanLineTest, WhatThePlanMeansFollowsALineEach) {
  const report::Run run =
      RunOf({R"({"type":"plan","strategy":"op-fence","predicted_step_seconds":2,"micro_batches":8,"unit":"images",)"
             R"("tokens_per_second":32,"steps":60,"site_bytes":2000,"bottleneck":"The step is limited by x.",)"
             R"("loss_cost":0.05,"loss_cost_source":"a probe","stages":[)"
             R"({"index":0,"devices":["a","c"],"memory_bytes":1048576,"device_memory_bytes":2097152}],)"
             R"("links":[{"src":"a","dst":"b","codec":"int4"}],"warnings":[{"reason":"DeviceNearlyIdle","message":"a is"}]})"});
  EXPECT_THAT(PlanLines(*run.plan),
              ::testing::ElementsAre("plan: speed: 32.0 images/s, 60 steps take 2m00s without evaluations and checkpoints",
                                     "plan: between sites: 2.00 kB a step, 120 kB in all", "plan: limit: x.",
                                     "plan: compression: expected to raise the loss by 0.05 nats (a probe)",
                                     "plan: memory: a,c 1.00 MiB of 2.00 MiB"));
  EXPECT_THAT(report::PlanWarnings(*run.plan), ::testing::ElementsAre("warning: DeviceNearlyIdle: a is"));
  EXPECT_THAT(PlanLines(*RunOf({kPlan}).plan), ::testing::ElementsAre(HasSubstr("memory: "))) << "what another build's plan says";
}

constexpr char kReplicas[] =
    R"({"type":"plan","strategy":"op-fence","predicted_step_seconds":0.4,"micro_batches":8,"in_flight":3,"replicas":2,)"
    R"("micro_batches_by_replica":[5,3],"sync_seconds":0.05,"sync_bytes":4000,"stages":[)"
    R"({"index":0,"devices":["a","c"],"ops":["x"],"compute_seconds":0.3,"memory_bytes":20,"sync_bytes":1500,"chain":[1,0],)"
    R"("by_replica":[{"compute_seconds":0.3,"memory_bytes":10},{"compute_seconds":0.2,"memory_bytes":20}]},)"
    R"({"index":1,"devices":["b","d"],"ops":["y"],"compute_seconds":0.1,"sync_bytes":500,"chain":[0,1],)"
    R"("by_replica":[{"compute_seconds":0.1},{"compute_seconds":0.1}]}],"links":[]})";
constexpr char kReplicasSummary[] =
    R"({"type":"summary","steps":2,"final_loss":5,"wire_bytes":20000,"links":[{"src":"a","dst":"c","bytes":3000,"codec":"fp32"},)"
    R"({"src":"c","dst":"a","bytes":3000,"codec":"fp32"},{"src":"b","dst":"d","bytes":2000,"codec":"fp32"},)"
    R"({"src":"a","dst":"b","bytes":12000,"codec":"int8"}],"stages":[)"
    R"({"index":0,"replica":0,"device":"a","busy_ratio":0.5},{"index":1,"replica":0,"device":"b","busy_ratio":0.25},)"
    R"({"index":0,"replica":1,"device":"c","busy_ratio":0.75},{"index":1,"replica":1,"device":"d","busy_ratio":0.125}]})";

TEST(PlanLineTest, ReplicasAreNamedPipelineByPipelineWithTheirShares) {
  EXPECT_EQ(PlanLine(*RunOf({kReplicas}).plan),
            "plan: op-fence, 2 replicas of 2 stages (a > b; c > d), 8 micro-batches (5 + 3), 3 in flight, predicted step 0.40s");
}

TEST(SummaryTextTest, ReplicasHaveRowsOfTheirOwnAndWhatTheirSumsCost) {
  const std::string step1 = R"({"type":"step","step":1,"loss":5})", step2 = R"({"type":"step","step":2,"loss":5})";
  const std::string text = SummaryText(RunOf({kReplicas, step1, step2, kReplicasSummary}));
  EXPECT_THAT(text, HasSubstr("replicas           2, each of 2 stages: 5 + 3 of 8 micro-batches\n"));
  EXPECT_THAT(text, HasSubstr("sums of gradients  50ms and 4.00 kB of a step predicted, 4.00 kB measured\n")) << "a > b is no sum";
  EXPECT_THAT(text, HasSubstr("  replica  stage  device  micro-batches   busy"));
  EXPECT_THAT(text, HasSubstr("        0      0  a              5 of 8  50.0%"));
  EXPECT_THAT(text, HasSubstr("        1      0  c              3 of 8  75.0%"));
  EXPECT_THAT(text, HasSubstr("        1      1  d              3 of 8  12.5%"));
  const std::string replanned = SummaryText(RunOf({kReplicas, step1, kReplicas, step2, kReplicasSummary}));
  EXPECT_THAT(replanned, HasSubstr("4.00 kB of a step predicted\n")) << "the bytes are of both plans";
}

TEST(SummaryTextTest, OnePipelineHasNoWordOfReplicas) {
  const std::string text = SummaryText(
      RunOf({kPlan, R"({"type":"step","step":1,"loss":5})", R"({"type":"summary","steps":1,"stages":[{"index":0,"device":"paris-0"}]})"}));
  EXPECT_THAT(text, AllOf(HasSubstr("  stage  device   busy"), Not(HasSubstr("replica")), Not(HasSubstr("micro-batches"))));
}

TEST(RunRecorderTest, AnAbsurdNumberOfReplicasTakesNoMemory) {
  const report::Run run = RunOf({R"({"type":"plan","replicas":2000000000,"stages":[{"devices":["a"],"chain":[-7,1e300,3]}]})"});
  EXPECT_LE(run.plan->replicas, 10'000);
  EXPECT_EQ(report::MicroBatchesOf(*run.plan, 3), 0);
  EXPECT_EQ(report::DeviceOf(run.plan->stages[0], 3), "");
  EXPECT_LE(report::ChainBytes(*run.plan).size(), 3u);
}

TEST(RunRecorderTest, ALossThatJsonCannotWriteIsNaN) {
  const report::Run run = RunOf({R"({"type":"step","step":1,"loss":null})"});
  EXPECT_TRUE(std::isnan(run.steps[0].loss));
  EXPECT_EQ(run.steps[0].gradient_norm, 0);
}

TEST(RunRecorderTest, RepeatedStepsReplaceThoseAfterTheRestore) {
  const report::Run run = RunOf({R"({"type":"step","step":1,"loss":3})", R"({"type":"step","step":2,"loss":2})",
                                 R"({"type":"step","step":3,"loss":1})", R"({"type":"step","step":2,"loss":2.5})"});
  ASSERT_EQ(run.steps.size(), 2u);
  EXPECT_EQ(run.steps[1].loss, 2.5);
}

TEST(RunRecorderTest, WhatIsNoObjectIsAnErrorAndWrongTypesAreNot) {
  report::Run run;
  RunRecorder recorder(&run);
  EXPECT_EQ(recorder.Add("[1").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(recorder.Add("").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(recorder.Add("[]").status().code(), absl::StatusCode::kInvalidArgument);
  for (const char* line : {R"({"type":7})", R"({"type":"plan","stages":3,"links":[1,"x",null]})", R"({"type":"step","step":"x","loss":[]})",
                           R"({"type":"summary","stages":{"a":1},"links":null})",
                           R"({"type":"trace","spans":[[1],[9,0,0,0],["a","b","c","d"],7]})", R"({"type":"step","step":1e300})"}) {
    EXPECT_TRUE(recorder.Add(line).ok()) << line;
  }
  EXPECT_EQ(*recorder.Add(R"({"type":"later"})"), LineType::kOther);
}

TEST(RunRecorderTest, TracedStepsOfTheNewestPlanAreKept) {
  const std::vector<std::string> traces = {kPlan, R"({"type":"trace","device":"a","step":3,"spans":[[0,0,10,20],[1,0,20,40]]})",
                                           R"({"type":"trace","device":"b","step":3,"spans":[[0,0,20,30]]})",
                                           R"({"type":"trace","device":"a","step":9,"spans":[[3,1,50,60]]})"};
  report::Run run = RunOf(traces);
  ASSERT_EQ(run.spans.size(), 4u);
  EXPECT_EQ(run.spans[2].device, "b");
  EXPECT_EQ(run.spans[3].step, 9);
  EXPECT_EQ(run.spans[3].kind, report::Span::Kind::kWait);
  RunRecorder recorder(&run);
  ASSERT_TRUE(recorder.Add(R"({"type":"trace","device":"a","step":3,"spans":[[0,0,90,95]]})").ok());
  ASSERT_EQ(run.spans.size(), 3u) << "made again after a restore";
  ASSERT_TRUE(recorder.Add(kPlan).ok());
  EXPECT_EQ(run.spans.size(), 3u) << "as long as the new plan has none";
  ASSERT_TRUE(recorder.Add(R"({"type":"trace","device":"c","step":5,"spans":[[0,0,1,2]]})").ok());
  ASSERT_EQ(run.spans.size(), 1u);
  EXPECT_EQ(run.spans[0].device, "c");
}

TEST(RunRecorderTest, OfTooManySpansTheNewestStepsAreKept) {
  std::string spans = "[0,0,1,2]";
  while (spans.size() < 600'000) spans += "," + spans;
  report::Run run;
  RunRecorder recorder(&run);
  for (int step = 1; step <= 6; ++step) {
    ASSERT_TRUE(recorder.Add(absl::StrCat(R"({"type":"trace","device":"a","step":)", step, R"(,"spans":[)", spans, "]}")).ok());
  }
  EXPECT_LE(run.spans.size(), 200'000u);
  EXPECT_EQ(run.spans.back().step, 6);
  EXPECT_GT(run.spans.front().step, 1);
}

TEST(RunRecorderTest, CheckpointsBehindARestoreAreGivenUp) {
  const auto saved = [](int step, const std::string& path) {
    return absl::StrCat(R"({"type":"event","reason":"CheckpointSaved","step":)", step, R"(,"message":")", path, "\"}");
  };
  const report::Run run = RunOf({saved(10, "a"), saved(20, "b"), saved(30, "c"), saved(20, "d")});
  ASSERT_EQ(run.checkpoints.size(), 2u);
  EXPECT_EQ(run.checkpoints[1].path, "d");
}

TEST(RunRecorderTest, WhatCameOfCompressionIsReadWhereTheSummaryHasIt) {
  EXPECT_FALSE(RunOf({R"({"type":"summary","compression":7})"}).summary->compression.has_value());
  const report::Run run = RunOf({R"({"type":"summary","compression":{"max_relative_error":0.4,"min_cosine":0.9,"backoffs":3}})"});
  ASSERT_TRUE(run.summary->compression.has_value());
  EXPECT_EQ(run.summary->compression->max_relative_error, 0.4);
  EXPECT_EQ(run.summary->compression->min_cosine, 0.9);
  EXPECT_EQ(run.summary->compression->backoffs, 3);
  EXPECT_FALSE(RunOf({R"({"type":"summary","compression":{"max_relative_error":null}})"}).summary->compression->compared);
}

TEST(RunRecorderTest, FilesOfTheDataAreRead) {
  const report::Run run = RunOf({R"({"type":"event","reason":"DataOpened","files":[{"path":"a","bytes":3},7],"validation_files":"x"})"});
  ASSERT_EQ(run.files.size(), 2u);
  EXPECT_EQ(run.files[0].path, "a");
  EXPECT_EQ(run.files[0].bytes, 3);
  EXPECT_TRUE(run.validation_files.empty());
}

TEST(RunRecorderTest, DirectionAndTiedBytesOfPlannedLinksAreRead) {
  const report::Run run = RunOf({R"({"type":"plan","links":[{"src":"a","dst":"b","direction":"forward"},)"
                                 R"({"src":"b","dst":"a","direction":"backward","tied_bytes":12},{"src":"b","dst":"c"}]})"});
  ASSERT_EQ(run.plan->links.size(), 3u);
  EXPECT_FALSE(run.plan->links[0].backward);
  EXPECT_TRUE(run.plan->links[1].backward);
  EXPECT_EQ(run.plan->links[1].tied_bytes, 12);
  EXPECT_FALSE(run.plan->links[2].backward) << "of a plan that does not say it";
}

TEST(RunRecorderTest, WhatThePlanSaysOfLimitAndCostIsRead) {
  const report::Run plain = RunOf({R"({"type":"plan","links":[{"src":"a","dst":"b","loss_cost":0.14}]})"});
  EXPECT_EQ(plain.plan->links[0].loss_cost, 0.14);
  EXPECT_EQ(plain.plan->loss_cost, 0.14) << "all that is known";
  const report::Run run = RunOf({R"({"type":"plan","bottleneck":"The step is limited by x.","loss_cost":0.2,"loss_cost_source":"y"})"});
  EXPECT_EQ(run.plan->bottleneck, "The step is limited by x.");
  EXPECT_EQ(run.plan->loss_cost, 0.2);
  EXPECT_EQ(run.plan->loss_cost_source, "y");
}

TEST(WithFieldTest, AddsTheReportToTheSummary) {
  EXPECT_EQ(WithField(R"({"type":"summary","steps":2})", "report", "/r.html"), R"({"report":"/r.html","steps":2,"type":"summary"})");
}

TEST(TextTableTest, ColumnsAreAligned) {
  TextTable table({"name", ">bytes"});
  table.Row({"paris", "1"});
  table.Row({"é", "1,000"});
  EXPECT_EQ(table.ToString(),
            "  name   bytes\n"
            "  paris      1\n"
            "  é      1,000\n");
}

TEST(SummaryTextTest, HasFiguresLinksAndStages) {
  report::Run run =
      RunOf({kPlan, R"({"type":"step","step":1,"loss":5,"tokens_per_second":70})",
             R"({"type":"summary","steps":1,"final_loss":5,"median_step_seconds":2,"predicted_step_seconds":1.6,)"
             R"("wire_bytes":3000,"links":[{"src":"paris-0","dst":"tokyo-0","bytes":3000,"codec":"topk","ratio":100,"measured_ratio":87,)"
             R"("bandwidth_bytes_per_second":1250000}],"stages":[{"index":0,"device":"paris-0","busy_ratio":0.5,)"
             R"("peak_memory_bytes":1048576,"predicted_memory_bytes":2097152}]})"});
  run.site_of = {{"paris-0", "paris"}, {"tokyo-0", "tokyo"}};
  const std::string text = SummaryText(run);
  EXPECT_THAT(text, HasSubstr("2.00s measured, 1.60s predicted (median; measured is +25.0%)"));
  EXPECT_THAT(text, HasSubstr("paris-0 > tokyo-0  3.00 kB  topk   100.0x  1.25 MB/s\n"));
  EXPECT_THAT(text, HasSubstr("between sites"));
  EXPECT_THAT(text, HasSubstr("50.0%          2.00 MiB  1.00 MiB"));
}

TEST(SummaryTextTest, WhereMessagesWereComparedLinksHaveTheirError) {
  const std::string text = SummaryText(
      RunOf({R"({"type":"step","step":1,"loss":5})",
             R"({"type":"summary","steps":1,"links":[{"src":"a","dst":"b","bytes":3000,"codec":"topk","ratio":100,"compared_messages":2,)"
             R"("relative_error":0.496,"cosine":0.87},{"src":"b","dst":"a","bytes":3000,"codec":"fp32"}]})"}));
  EXPECT_THAT(text, AllOf(HasSubstr("error  cosine\n"), HasSubstr("49.6%    0.87\n"), HasSubstr("-       -\n")));
  EXPECT_THAT(text, HasSubstr("messages arrive with 50% error (cosine 0.87)"));
}

TEST(SummaryTextTest, WhereCodecsWereReplacedTheTableSaysThatItHasThePlanned) {
  const auto text = [](int backoffs) {
    return SummaryText(RunOf({R"({"type":"step","step":1,"loss":5})",
                              absl::StrFormat(R"({"type":"summary","steps":1,"links":[{"src":"a","dst":"b","bytes":3000,"codec":"topk",)"
                                              R"("ratio":9}],"compression":{"backoffs":%d}})",
                                              backoffs)}));
  };
  EXPECT_THAT(text(1), ContainsRegex("link +bytes +planned codec +planned ratio +bandwidth\n"));
  EXPECT_THAT(text(0), ContainsRegex("link +bytes +codec +ratio +bandwidth\n"));
}

TEST(SummaryTextTest, LeavesOutWhatTooFewStepsCannotTell) {
  report::Run run =
      RunOf({R"({"type":"step","step":1,"loss":5,"tokens_per_second":70})", R"({"type":"step","step":2,"loss":5,"tokens_per_second":70})"});
  run.earlier_steps = 2;
  RunRecorder recorder(&run);
  constexpr char kSummary[] = R"({"type":"summary","steps":2,"median_step_seconds":null,"predicted_step_seconds":0.19})";
  ASSERT_TRUE(recorder.Add(kSummary).ok());
  EXPECT_THAT(SummaryText(run), AllOf(HasSubstr("0.19s predicted\n"), Not(HasSubstr("s measured")), Not(HasSubstr("nan"))));
  EXPECT_THAT(SummaryText(run), Not(HasSubstr("tokens/s"))) << "those are of an earlier start";
  EXPECT_THAT(ComparisonJson(Compare({run}), "r.html"),
              AllOf(HasSubstr(R"("median_step_seconds":null)"), HasSubstr(R"("tokens_per_second":null)")));
  ASSERT_TRUE(recorder.Add(R"({"type":"step","step":2,"loss":5,"tokens_per_second":90})").ok());
  EXPECT_EQ(run.earlier_steps, 1u) << "the second is made again";
  EXPECT_EQ(report::MedianTokensPerSecond(run), 90);
}

TEST(ComparisonTest, LossesAreComparedAfterTheStepsThatAllMade) {
  report::Run slow = RunOf(
      {R"({"type":"step","step":1,"loss":5})", R"({"type":"step","step":2,"loss":4})", R"({"type":"summary","median_step_seconds":2})"});
  report::Run fast = RunOf({R"({"type":"step","step":1,"loss":5})", R"({"type":"step","step":2,"loss":4.5})",
                            R"({"type":"step","step":3,"loss":3})", R"({"type":"summary","median_step_seconds":0.5})"});
  slow.title = "naive";
  fast.title = "op-fence";
  const Comparison comparison = Compare({slow, fast});
  EXPECT_EQ(comparison.steps, 2);
  EXPECT_EQ(comparison.rows[1].loss, 4.5);
  EXPECT_EQ(comparison.rows[1].speed_up, 4);
  EXPECT_EQ(comparison.rows[0].speed_up, 1);
  EXPECT_THAT(ComparisonText(comparison), HasSubstr("loss after 2"));
  EXPECT_THAT(ComparisonText(comparison), HasSubstr("4.00x"));
  EXPECT_THAT(ComparisonJson(comparison, "r.html"), HasSubstr(R"("speed_up":4.0)"));
}

TEST(ComparisonTest, ARowThatLostADeviceIsMarkedAndSaysHowItWentOn) {
  report::Run whole = RunOf({R"({"type":"step","step":1,"loss":5})", R"({"type":"event","reason":"ExecutorJoined","device":"a"})"});
  report::Run lost =
      RunOf({R"({"type":"step","step":1,"loss":5})",
             R"({"type":"event","reason":"ExecutorLost","step":12,"device":"tokyo-1","message":"tokyo-1 (stage 4) was lost"})",
             R"({"type":"event","reason":"Restored","step":0,"message":"no checkpoint yet"})",
             R"({"type":"event","reason":"Replanned","step":0,"message":"5 stages on a, b, c, d, e"})"});
  whole.title = "naive";
  lost.title = "op-fence";
  const Comparison comparison = Compare({whole, lost});
  const std::string text = ComparisonText(comparison);
  EXPECT_THAT(text, HasSubstr("op-fence *"));
  EXPECT_THAT(text, Not(HasSubstr("naive *")));
  EXPECT_THAT(text, HasSubstr("* op-fence: tokyo-1 was lost after step 12; Replanned: 5 stages on a, b, c, d, e"));
  EXPECT_THAT(ComparisonJson(comparison, "r.html"), HasSubstr(R"("lost_devices":["tokyo-1 was lost after step 12;)"));
  EXPECT_THAT(ComparisonJson(comparison, "r.html"), HasSubstr(R"("lost_devices":[])"));
}

TEST(ComparisonTest, NoRunsAndRunsWithoutStepsAreNoTrouble) {
  EXPECT_EQ(Compare({}).steps, 0);
  EXPECT_THAT(ComparisonText(Compare({report::Run{}})), HasSubstr("loss after 0"));
}

std::string Drawn(ProgressStyle style, StepLines lines = {}) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const file = open_memstream(&text, &size);
  {
    Progress progress(file, style, 10, "", std::move(lines));
    report::Run run;
    RunRecorder recorder(&run);
    for (const char* line : {R"({"type":"step","step":1,"loss":5})", R"({"type":"step","step":2,"loss":4})",
                             "{\"type\":\"event\",\"reason\":\"ExecutorLost\",\"step\":2,\"message\":\"gone\\u001b[2J\"}"}) {
      progress.Show(*recorder.Add(line), run);
    }
  }
  std::fclose(file);
  std::string drawn(text, size);
  free(text);
  return drawn;
}

TEST(ProgressTest, AFileGetsPlainLines) {
  const std::string text = Drawn({}, {.every = 1});
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_THAT(text, HasSubstr("step 1/10 (10.0%) loss 5 "));
  EXPECT_THAT(text, HasSubstr("\nstep 2/10"));
  EXPECT_THAT(text, HasSubstr("step 2: ExecutorLost: gone [2J\n"));
}

// Of steps 1 to `last` of 10, each a second after the one before, with an evaluation after the third.
std::string Steps(int last, StepLines lines, ProgressStyle style = {}) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const file = open_memstream(&text, &size);
  double now_s = 100;
  lines.now_s = [&now_s] { return now_s; };
  {
    Progress progress(file, style, 10, "", lines);
    progress.Phase("starting");
    progress.Phase("starting");
    report::Run run;
    RunRecorder recorder(&run);
    for (int step = 1; step <= last; ++step, ++now_s) {
      progress.Show(*recorder.Add(absl::StrCat(R"({"type":"step","loss":5,"step":)", step, "}")), run);
      if (step == 3) progress.Show(*recorder.Add(R"({"type":"eval","step":3,"loss":4})"), run);
    }
  }
  std::fclose(file);
  std::string drawn(text, size);
  free(text);
  return drawn;
}

// "1 5 10": the steps that have a line.
std::string StepsIn(const std::string& text) {
  std::string steps;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const size_t slash = line.find("/10 ");
    if (absl::StartsWith(line, "step ") && slash != absl::string_view::npos)
      absl::StrAppend(&steps, steps.empty() ? "" : " ", line.substr(5, slash - 5));
  }
  return steps;
}

TEST(ProgressTest, AFileHasAStepLineEveryFewSeconds) {
  const std::string text = Steps(10, {.interval_s = 4});
  EXPECT_EQ(StepsIn(text), "1 5 9 10");
  EXPECT_THAT(text, HasSubstr("\nstep 3: validation loss 4"));
  EXPECT_THAT(text, ::testing::StartsWith("starting ..\nstep 1/10")) << "a phase is told once";
}

TEST(ProgressTest, TheLastStepOfARunThatEndsEarlyHasALine) {
  EXPECT_EQ(StepsIn(Steps(7, {.interval_s = 100})), "1 7");
  EXPECT_EQ(StepsIn(Steps(1, {.interval_s = 100})), "1");
}

TEST(ProgressTest, LinesEverySoManyStepsAreThoseSteps) {
  EXPECT_EQ(StepsIn(Steps(10, {.every = 4})), "1 4 8 10");
  EXPECT_EQ(StepsIn(Steps(9, {.every = 3})), "1 3 6 9");
}

TEST(ProgressTest, ATerminalKeepsTheLinesThatAreAskedFor) {
  EXPECT_THAT(Steps(10, {.every = 5}, {.redraw = true}), AllOf(HasSubstr("\x1b[Kstep 5/10 (50.0%) "), HasSubstr("\n")));
  EXPECT_THAT(Steps(9, {}, {.redraw = true}), Not(HasSubstr("loss 5 \n")));
}

TEST(ProgressTest, ATerminalRedrawsOneLineThatFits) {
  const std::string text = Drawn({.redraw = true, .colour = false, .columns = 20});
  EXPECT_THAT(text, HasSubstr("step 1/10 (10.0%) l\r\x1b[Kstep 2/10"));
  EXPECT_THAT(text, HasSubstr("gone [2J\nstep 2/10")) << "the status line comes back below a sentence";
  EXPECT_TRUE(text.ends_with("\r\x1b[K"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b[3")));
}

TEST(ProgressTest, ColourOnlyWhenAsked) {
  EXPECT_THAT(Drawn({.redraw = true, .colour = true, .columns = 80}), HasSubstr("\x1b[33mstep 2: ExecutorLost"));
}

}  // namespace
}  // namespace fusionllm::cli
