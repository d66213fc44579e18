#include "services/broker/run_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace fusionllm::services {
namespace {

using nlohmann::json;

json Page(const RunProgress& progress) { return json::parse(progress.Json()); }

v1::StageTimes Measured(const std::string& peer, double bytes_per_s) {
  v1::StageTimes times;
  v1::LinkBytes& link = *times.add_links();
  link.set_peer(peer);
  link.set_bandwidth_bytes_per_second(bytes_per_s);
  return times;
}

TEST(RunProgressTest, SaysNothingThatIsNotKnown) {
  const json page = Page(RunProgress(100, 4096));
  EXPECT_EQ(page["phase"], "starting");
  EXPECT_EQ(page["step"], 0);
  EXPECT_EQ(page["steps"], 100);
  for (const char* key : {"loss", "eta_seconds", "step_seconds", "predicted_step_seconds", "slowest_link", "checkpoint_step"}) {
    EXPECT_FALSE(page.contains(key)) << key;
  }
}

TEST(RunProgressTest, AStepMovesProgress) {
  RunProgress progress(100, 4096);
  progress.Plan({.devices = {"a", "b"}, .predicted_step_s = 0.4});
  progress.Step({.step = 20, .loss = 2.5F, .step_seconds = 0.5}, 0.45);
  progress.CheckpointKept(10);
  const json page = Page(progress);
  EXPECT_EQ(page["step"], 20);
  EXPECT_DOUBLE_EQ(page["loss"], 2.5);
  EXPECT_DOUBLE_EQ(page["tokens_per_second"], 8192);
  EXPECT_DOUBLE_EQ(page["eta_seconds"], 36);
  EXPECT_DOUBLE_EQ(page["step_seconds"], 0.45);
  EXPECT_DOUBLE_EQ(page["predicted_step_seconds"], 0.4);
  EXPECT_EQ(page["stages"], json({"a", "b"}));
  EXPECT_EQ(page["checkpoint_step"], 10);
}

TEST(RunProgressTest, TheSlowestLinkIsTheOneThatAStepWaitsForLongest) {
  RunProgress progress(100, 1);
  broker::PlanSummary plan{.devices = {"a", "b", "c"}};
  plan.links = {{.src_stage = 0, .dst_stage = 1, .codec = "fp32", .bytes = 1e6},
                {.src_stage = 1, .dst_stage = 2, .codec = "int8", .bytes = 4e6}};
  progress.Plan(plan);
  progress.TellingLinks({{"a", "b"}, {"b", "c"}});
  EXPECT_FALSE(Page(progress).contains("slowest_link")) << "nothing has been measured";
  progress.StageTimes("a", Measured("b", 1e6));
  progress.StageTimes("b", Measured("c", 2e6));
  const json slowest = Page(progress)["slowest_link"];
  EXPECT_EQ(slowest["src"], "b");
  EXPECT_EQ(slowest["dst"], "c");
  EXPECT_EQ(slowest["codec"], "int8");
  EXPECT_DOUBLE_EQ(slowest["seconds_per_step"], 2);
  EXPECT_EQ(Page(progress)["links"].size(), 2);
  progress.TellingLinks({{"a", "b"}});
  EXPECT_EQ(Page(progress)["slowest_link"]["src"], "a") << "what b sends waits for others on one wire";
  EXPECT_EQ(Page(progress)["links"], json::parse(R"([{"src":"a","dst":"b","bandwidth_bytes_per_second":1e6}])"));
  progress.Plan({.devices = {"a"}});
  EXPECT_FALSE(Page(progress).contains("slowest_link")) << "of a plan that is no more";
  EXPECT_FALSE(Page(progress).contains("links"));
}

TEST(RunProgressTest, ALossThatIsNoNumberLeavesAReadablePage) {
  RunProgress progress(100, 1);
  progress.Step({.step = 1, .loss = std::numeric_limits<float>::quiet_NaN(), .step_seconds = 1}, 1);
  EXPECT_FALSE(Page(progress).contains("loss"));
  EXPECT_EQ(Page(progress)["step"], 1);
}

}  // namespace
}  // namespace fusionllm::services
