// docs/reference/events.md has every type of line and every key that a broker writes, and no other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lib/base/source_file.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/plan/plan.h"
#include "lib/wire/plan_json.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/broker/run_log.h"

namespace fusionllm::services {
namespace {

using nlohmann::json;
using Keys = std::map<std::string, std::set<std::string>>;  // by type

std::string EventsPage() {
  const char* folder = std::getenv("FUSIONLLM_SOURCE_DIR");
  return base::ReadWholeFile(absl::StrCat(folder == nullptr ? "." : folder, "/docs/reference/events.md"));
}

// Words in backquotes of a text.
std::set<std::string> Quoted(absl::string_view text) {
  std::set<std::string> words;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '`');
  for (size_t i = 1; i < parts.size(); i += 2) words.emplace(parts[i]);
  return words;
}

// The first column of the table below "## TYPE".
Keys KeysOfPage() {
  Keys keys;
  std::string type;
  const std::string page = EventsPage();
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    if (absl::StartsWith(line, "## ")) type = std::string(line.substr(3));
    if (absl::StartsWith(line, "| `")) keys[type].merge(Quoted(line.substr(0, line.find('|', 1))));
  }
  return keys;
}

std::string SectionOf(const std::string& type) {
  const std::string page = EventsPage();
  const size_t begin = page.find(absl::StrCat("\n## ", type, "\n"));
  return begin == std::string::npos ? "" : page.substr(begin, page.find("\n## ", begin + 1) - begin);
}

// A plan in which nothing is left out of the text for being empty.
plan::Plan FullPlan() {
  plan::Plan plan;
  plan.strategy = "op-fence";
  plan.micro_batches = 2;
  plan.replicas = 2;
  plan.micro_batches_by_replica = {1, 1};
  plan.graph_hash = "0123456789abcdef";
  plan.lower_bounds = {{.name = "work", .seconds = 1, .holds = true, .why = "a reason"}};
  plan.stages = {{.index = 0, .devices = {"a", "b"}, .ops = {"x"}, .by_replica = {{}, {}}, .chain = {0, 1}, .chunk_bytes = 1}};
  plan.links = {{.src = "a", .dst = "b", .reason = "a reason", .values = {"x"}}};
  plan.tied = {{.parameter = "w", .stages = {0}, .bytes = 1}};
  plan.micro_batch_sizes = {{.size = 1}};
  plan.fewer_in_flight = {.in_flight = 1, .predicted_step_seconds = 1, .memory_bytes = 1};
  plan.arithmetic = {"bf16"};
  plan.warnings = {{.reason = "Reason", .message = "a sentence"}};
  plan.specified_share = 0.5;
  plan.fitted_share = 0.5;
  plan.fitted_relative_error = 0.5;
  plan.specifications = {"gpu"};
  plan.left_out = {"c"};
  plan.explain = {"a sentence"};
  return plan;
}

std::vector<json> Lines() {
  const base::TempFolder folder;
  const std::string path = folder / "out";
  std::FILE* const out = std::fopen(path.c_str(), "w");
  RunLog log(out, 10, 1);
  log.Plan({.document = wire::PrintPlan(FullPlan()), .devices = {"a", "b"}, .plan = FullPlan()}, 1);
  log.Step(1, {.step = 1, .loss = 1, .step_seconds = 0.5});
  v1::EvaluationReport evaluation;
  evaluation.set_accuracy(0.5);
  log.Evaluation(evaluation);
  broker::EmitEvent event;
  event.reason = "Straggler";
  event.device = "a";
  event.peer = "b";
  event.pid = 7;
  event.stage = 0;
  event.replica = 1;
  event.measured = 2.0;
  event.planned = 1.0;
  event.backoff.emplace();
  event.reduces_compression = true;
  event.files = event.validation_files = {{"a.txt", 1}};
  log.Event(event);
  v1::StageTimes times;
  times.set_step(1);
  times.add_spans();
  v1::LinkBytes& link = *times.add_links();
  link.set_peer("b");
  link.set_wire_bytes_sent(10);
  link.set_ratio(2);
  link.set_compared_messages(1);
  log.StageTimes("a", times);
  log.Summary({});
  log.Error(absl::InternalError("failed"), "Reason");
  std::fclose(out);
  std::vector<json> lines;
  const std::string text = base::ReadWholeFile(path);
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) lines.push_back(json::parse(line));
  return lines;
}

TEST(EventsPageTest, ThePageHasTheTypesAndKeysThatAreWritten) {
  Keys written;
  for (const json& line : Lines()) {
    for (const auto& [key, value] : line.items()) {
      if (key != "type" && key != "time") written[line["type"]].insert(key);
    }
  }
  // By fusionctl, which writes the file (cli/run/run_summary.cc).
  for (const char* key : {"started",
                          "elapsed_seconds",
                          "steps_made",
                          "training_seconds",
                          "mean_loss",
                          "mean_loss_steps",
                          "validation_loss",
                          "validation_step",
                          "validation_accuracy",
                          "tokens_per_second",
                          "samples_per_second",
                          "parameters",
                          "bytes_between_sites",
                          "evaluation_bytes",
                          "bottleneck",
                          "loss_cost",
                          "cores",
                          "cores_of_other_programs",
                          "slower_than_planned",
                          "already_done",
                          "report"}) {
    written["summary"].insert(key);
  }
  const Keys page = KeysOfPage();
  EXPECT_EQ(written.size(), 7u);
  for (const auto& [type, keys] : written) {
    ASSERT_TRUE(page.contains(type)) << "docs/reference/events.md has no section \"## " << type << '"';
    EXPECT_THAT(page.at(type), ::testing::ContainerEq(keys)) << "of type " << type << ": docs/reference/events.md, against what is written";
  }
  EXPECT_EQ(page.size(), written.size());
}

TEST(EventsPageTest, EveryLineHasItsTime) {
  for (const json& line : Lines()) {
    absl::Time time;
    std::string error;
    ASSERT_TRUE(line.contains("time")) << line;
    EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, line["time"].get<std::string>(), &time, &error)) << error;
    EXPECT_LT(absl::AbsDuration(absl::Now() - time), absl::Hours(1)) << line;
  }
}

TEST(EventsPageTest, WhatTheListsOfASummaryHoldIsNamed) {
  for (const json& line : Lines()) {
    if (line["type"] != "summary") continue;
    const std::set<std::string> named = Quoted(SectionOf("summary"));
    for (const char* list : {"links", "stages"}) {
      ASSERT_FALSE(line[list].empty());
      for (const json& item : line[list]) {
        for (const auto& [key, value] : item.items()) EXPECT_TRUE(named.contains(key)) << list << ": " << key;
      }
    }
  }
}

}  // namespace
}  // namespace fusionllm::services
