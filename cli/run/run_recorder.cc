#include "cli/run/run_recorder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/json_text.h"
#include "lib/plan/plan.h"

namespace fusionllm::cli {
namespace {

using nlohmann::json;
using report::Run;

constexpr int64_t kMaxReplicas = 10'000;
constexpr int64_t kMaxMicroBatches = 1'000'000;
constexpr size_t kMaxSpans = 200'000;  // more would make an unreadable drawing even of one step

const json& Get(const json& object, const char* key) {
  static const json none;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? *found : none;
}

double Number(const json& object, const char* key, double missing = 0) {
  const auto& value = Get(object, key);
  if (value.is_number()) return value.get<double>();
  const bool written_as_null = value.is_null() && object.is_object() && object.contains(key);
  return written_as_null ? std::numeric_limits<double>::quiet_NaN() : missing;
}

int64_t AsInteger(const json& value) {
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number()) return 0;
  const double number = value.get<double>();
  return std::abs(number) < 9e18 ? static_cast<int64_t>(number) : 0;
}

int64_t Integer(const json& object, const char* key) { return AsInteger(Get(object, key)); }

std::string Text(const json& object, const char* key) {
  const auto& value = Get(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::vector<std::string> Texts(const json& object, const char* key) {
  std::vector<std::string> texts;
  const auto& value = Get(object, key);
  if (!value.is_array()) return texts;
  for (const json& item : value) {
    if (item.is_string()) texts.push_back(item.get<std::string>());
  }
  return texts;
}

template <class T, class Make>
std::vector<T> List(const json& object, const char* key, const Make& make) {
  std::vector<T> items;
  const auto& value = Get(object, key);
  if (!value.is_array()) return items;
  for (const json& item : value) items.push_back(make(item));
  return items;
}

// A number, or one for each stage: the largest.
int64_t Largest(const json& value) {
  if (!value.is_array()) return AsInteger(value);
  int64_t largest = 0;
  for (const json& item : value) largest = std::max(largest, AsInteger(item));
  return largest;
}

std::vector<int64_t> Integers(const json& object, const char* key) {
  return List<int64_t>(object, key, [](const json& item) { return AsInteger(item); });
}

// No plan of ours has more of anything than `most`, and what another one says takes no memory.
int Bounded(int64_t number, int64_t most) { return static_cast<int>(std::clamp<int64_t>(number, 0, most)); }
int Replica(int64_t number) { return Bounded(number, kMaxReplicas); }
int MicroBatches(int64_t number) { return Bounded(number, kMaxMicroBatches); }

plan::Stage ReadStage(const json& item) {
  plan::Stage stage{.index = static_cast<int>(Integer(item, "index")),
                    .devices = Texts(item, "devices"),
                    .ops = Texts(item, "ops"),
                    .compute_seconds = Number(item, "compute_seconds"),
                    .codec_seconds = Number(item, "codec_seconds"),
                    .update_seconds = Number(item, "update_seconds"),
                    .in_flight = MicroBatches(Integer(item, "in_flight")),
                    .memory_bytes = Integer(item, "memory_bytes"),
                    .device_memory_bytes = Integer(item, "device_memory_bytes"),
                    .sync_bytes = Integer(item, "sync_bytes")};
  stage.by_replica = List<plan::Replica>(item, "by_replica", [](const json& rank) {
    return plan::Replica{.compute_seconds = Number(rank, "compute_seconds"), .memory_bytes = Integer(rank, "memory_bytes")};
  });
  for (const int64_t replica : Integers(item, "chain")) stage.chain.push_back(Replica(replica));
  return stage;
}

plan::Link ReadLink(const json& item) {
  return {.src = Text(item, "src"),
          .dst = Text(item, "dst"),
          .backward = Text(item, "direction") == "backward",
          .bytes = Integer(item, "bytes"),
          .tied_bytes = Integer(item, "tied_bytes"),
          .codec = Text(item, "codec"),
          .ratio = Number(item, "ratio", 1),
          .seconds = Number(item, "seconds"),
          .loss_cost = Number(item, "loss_cost")};
}

// What the codecs cost; of a plan that does not say it as far as its links do.
void ReadLossCost(const json& line, plan::Plan& plan) {
  for (const plan::Link& link : plan.links) plan.loss_cost += link.loss_cost;
  for (const char* key : {"loss_cost", "expected_loss_increase"}) {
    if (Get(line, key).is_number()) plan.loss_cost = Number(line, key);
  }
  for (const char* key : {"loss_cost_source", "loss_increase_source"}) {
    if (const std::string source = Text(line, key); !source.empty()) plan.loss_cost_source = source;
  }
}

// For people: a plan that is acted on is read by wire::ParsePlan.
plan::Plan ReadPlan(const json& line) {
  plan::Plan plan{.strategy = Text(line, "strategy"),
                  .predicted_step_seconds = Number(line, "predicted_step_seconds"),
                  .lower_bound_seconds = Number(line, "lower_bound_seconds"),
                  .gap = Number(line, "gap"),
                  .micro_batches = MicroBatches(Integer(line, "micro_batches")),
                  .micro_batch_size = Integer(line, "micro_batch_size"),
                  .in_flight = MicroBatches(Largest(Get(line, "in_flight"))),
                  .replicas = std::max(1, Replica(Integer(line, "replicas"))),
                  .sync_seconds = Number(line, "sync_seconds"),
                  .sync_bytes = Integer(line, "sync_bytes"),
                  .unit = Text(line, "unit"),
                  .tokens_per_second = Number(line, "tokens_per_second"),
                  .parameters = Integer(line, "parameters"),
                  .tokens_per_step = Integer(line, "tokens_per_step"),
                  .steps = Integer(line, "steps"),
                  .site_bytes = Integer(line, "site_bytes"),
                  .bottleneck = Text(line, "bottleneck")};
  for (const int64_t share : Integers(line, "micro_batches_by_replica")) plan.micro_batches_by_replica.push_back(MicroBatches(share));
  plan.stages = List<plan::Stage>(line, "stages", ReadStage);
  if (plan.in_flight == 0) {
    for (const plan::Stage& stage : plan.stages) plan.in_flight = std::max(plan.in_flight, stage.in_flight);
  }
  plan.links = List<plan::Link>(line, "links", ReadLink);
  plan.tied = List<plan::TiedParameter>(line, "tied", [](const json& item) { return plan::TiedParameter{.codec = Text(item, "codec")}; });
  ReadLossCost(line, plan);
  if (const json& fewer = Get(line, "fewer_in_flight"); fewer.is_object()) {
    plan.fewer_in_flight = {.in_flight = MicroBatches(Integer(fewer, "in_flight")),
                            .predicted_step_seconds = Number(fewer, "predicted_step_seconds"),
                            .memory_bytes = Integer(fewer, "memory_bytes")};
  }
  plan.warnings = List<plan::Warning>(
      line, "warnings", [](const json& item) { return plan::Warning{.reason = Text(item, "reason"), .message = Text(item, "message")}; });
  return plan;
}

std::optional<report::CompressionTotal> ReadCompression(const json& compression) {
  if (!compression.is_object()) return std::nullopt;
  report::CompressionTotal total{.backoffs = Integer(compression, "backoffs")};
  total.compared = Get(compression, "max_relative_error").is_number() && Get(compression, "min_cosine").is_number();
  if (!total.compared) return total;
  total.max_relative_error = Number(compression, "max_relative_error");
  total.min_cosine = Number(compression, "min_cosine");
  return total;
}

report::Summary ReadSummary(const json& line) {
  report::Summary summary;
  summary.steps = Integer(line, "steps");
  summary.final_loss = Number(line, "final_loss");
  summary.median_step_s = Number(line, "median_step_seconds");
  summary.predicted_step_s = Number(line, "predicted_step_seconds");
  summary.wire_bytes = Integer(line, "wire_bytes");
  summary.compression = ReadCompression(Get(line, "compression"));
  summary.links = List<report::LinkTotal>(line, "links", [](const json& item) {
    report::LinkTotal link{.src = Text(item, "src"),
                           .dst = Text(item, "dst"),
                           .bytes = Integer(item, "bytes"),
                           .codec = Text(item, "codec"),
                           .ratio = Number(item, "ratio", 1),
                           .bytes_per_s = Number(item, "bandwidth_bytes_per_second"),
                           .compared_messages = Integer(item, "compared_messages"),
                           .relative_error = Number(item, "relative_error"),
                           .cosine = Number(item, "cosine")};
    if (Get(item, "evaluation_bytes").is_number()) link.evaluation_bytes = Integer(item, "evaluation_bytes");
    return link;
  });
  summary.stages = List<report::StageTotal>(line, "stages", [](const json& item) {
    return report::StageTotal{static_cast<int>(Integer(item, "index")), static_cast<int>(Integer(item, "replica")), Text(item, "device"),
                              Number(item, "busy_ratio"),
                              // Of a run of the previous release it is "overrun_seconds".
                              Number(item, Get(item, "overrun_seconds").is_number() ? "overrun_seconds" : "lateness_seconds"),
                              Integer(item, "peak_memory_bytes"), Integer(item, "predicted_memory_bytes")};
  });
  return summary;
}

std::vector<report::DataFile> ReadFiles(const json& line, const char* key) {
  return List<report::DataFile>(line, key, [](const json& item) { return report::DataFile{Text(item, "path"), Integer(item, "bytes")}; });
}

// Steps replayed after a restore come again and take the place of the first telling.
void AddStep(const json& line, Run& run) {
  const report::StepPoint point = {Integer(line, "step"),
                                   Number(line, "loss"),
                                   Number(line, "grad_norm"),
                                   Number(line, "learning_rate"),
                                   Number(line, "step_seconds"),
                                   Number(line, "tokens_per_second"),
                                   Number(line, "samples_per_second"),
                                   Integer(line, "targets"),
                                   Integer(line, "ignored_targets")};
  while (!run.steps.empty() && run.steps.back().step >= point.step) run.steps.pop_back();
  run.earlier_steps = std::min(run.earlier_steps, run.steps.size());
  run.steps.push_back(point);
  ++run.steps_made;
}

void AddEvaluation(const json& line, Run& run) {
  report::EvaluationPoint point = {Integer(line, "step"), Number(line, "loss")};
  if (line.contains("accuracy") && line["accuracy"].is_number()) point.accuracy = line["accuracy"].get<double>();
  while (!run.evaluations.empty() && run.evaluations.back().step >= point.step) run.evaluations.pop_back();
  run.evaluations.push_back(point);
}

// After a restore checkpoints are saved again; those behind it were of a history that is given up.
void AddCheckpoint(const report::Event& event, Run& run) {
  while (!run.checkpoints.empty() && run.checkpoints.back().step >= event.step) run.checkpoints.pop_back();
  run.checkpoints.push_back({event.step, event.message});
}

// Keeps those of the newest plan that has any, of too many the newest steps.
void AddTrace(const json& line, Run& run) {
  const std::string device = Text(line, "device");
  const int64_t step = Integer(line, "step");
  const auto& spans = Get(line, "spans");
  if (!spans.is_array() || spans.empty()) return;
  // A step that is made again after a restore is reported again.
  std::erase_if(run.spans,
                [&](const report::Span& span) { return span.plan != run.plans || (span.device == device && span.step == step); });
  while (!run.spans.empty() && run.spans.size() + spans.size() > kMaxSpans) {
    const auto oldest = std::min_element(run.spans.begin(), run.spans.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
    if (oldest->step >= step) break;
    std::erase_if(run.spans, [gone = oldest->step](const report::Span& span) { return span.step == gone; });
  }
  for (const json& item : spans) {
    if (!item.is_array() || item.size() != 4 || run.spans.size() >= kMaxSpans) continue;
    const int64_t kind = AsInteger(item[0]);
    if (kind < 0 || kind > static_cast<int64_t>(report::Span::Kind::kEvaluate)) continue;
    run.spans.push_back({device, step, static_cast<report::Span::Kind>(kind), static_cast<int32_t>(AsInteger(item[1])), AsInteger(item[2]),
                         AsInteger(item[3]), run.plans});
  }
}

}  // namespace

absl::StatusOr<LineType> RunRecorder::Add(absl::string_view line) {
  const json document = base::ParseJson(line);
  if (!document.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat("not a JSON object: ", line.substr(0, 80), line.size() > 80 ? "..." : ""));
  }
  const std::string type = Text(document, "type");
  if (type == "plan") {
    run_->plan = ReadPlan(document);
    ++run_->plans;
    return LineType::kPlan;
  }
  if (type == "step") {
    AddStep(document, *run_);
    return LineType::kStep;
  }
  if (type == "eval") {
    AddEvaluation(document, *run_);
    return LineType::kEvaluation;
  }
  if (type == "event") {
    run_->events.push_back({Text(document, "reason"), Integer(document, "step"), Text(document, "message"), Text(document, "device")});
    if (run_->events.back().reason == "DataOpened") {
      run_->files = ReadFiles(document, "files");
      run_->validation_files = ReadFiles(document, "validation_files");
    }
    if (run_->events.back().reason == "CheckpointSaved") AddCheckpoint(run_->events.back(), *run_);
    return LineType::kEvent;
  }
  if (type == "trace") {
    AddTrace(document, *run_);
    return LineType::kTrace;
  }
  if (type == "summary") {
    run_->summary = ReadSummary(document);
    return LineType::kSummary;
  }
  if (type == "error") {
    error_ = {Text(document, "code"), Text(document, "reason"), Text(document, "message")};
    return LineType::kError;
  }
  return LineType::kOther;
}

std::string WithField(absl::string_view line, absl::string_view key, absl::string_view value) {
  json document = base::ParseJson(line);
  if (!document.is_object()) return std::string(line);
  document[std::string(key)] = std::string(value);
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace fusionllm::cli
