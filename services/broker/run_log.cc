#include "services/broker/run_log.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lib/base/json_text.h"
#include "lib/base/printable_text.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/broker/run_progress.h"

namespace fusionllm::services {
namespace {

using nlohmann::json;

double Median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();  // written as null: nothing was measured
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Of two counts of the same bytes, whose reports come in any order, the larger is the later one, class by class.
void RaiseBytes(const v1::LinkBytes& with, v1::LinkBytes& link) {
  int64_t sum = 0;
  for (int c = 0; c < std::max(with.wire_bytes_sent_by_class_size(), link.wire_bytes_sent_by_class_size()); ++c) {
    if (c >= link.wire_bytes_sent_by_class_size()) link.add_wire_bytes_sent_by_class(0);
    const int64_t bytes = c < with.wire_bytes_sent_by_class_size() ? with.wire_bytes_sent_by_class(c) : 0;
    link.set_wire_bytes_sent_by_class(c, std::max(bytes, link.wire_bytes_sent_by_class(c)));
    sum += link.wire_bytes_sent_by_class(c);
  }
  link.set_wire_bytes_sent(std::max({with.wire_bytes_sent(), link.wire_bytes_sent(), sum}));
  link.set_evaluation_bytes_sent(std::max(with.evaluation_bytes_sent(), link.evaluation_bytes_sent()));
}

// What the sender measured of its codec, where it compressed and compared.
void AddCompression(const v1::LinkBytes& link, json& line) {
  if (link.ratio() > 0) line["measured_ratio"] = link.ratio();
  if (link.compared_messages() == 0) return;
  line["compared_messages"] = link.compared_messages();
  line["relative_error"] = link.relative_error();
  line["cosine"] = link.cosine();
  line["residual_norm"] = link.residual_norm();
}

// A spare may have taken a stage since the plan was made: the holder of a rank is named by it.
json ParsePlan(const broker::RunPlan& plan) {
  json document = base::ParseJson(plan.document);
  if (!document.is_object()) return json::object();
  std::map<std::string, std::string> now;  // by the name in the document
  json& stages = document["stages"];
  for (size_t rank = 0; rank < plan.devices.size() && stages.is_array(); ++rank) {
    const auto stage = static_cast<size_t>(plan.StageOf(static_cast<int>(rank)));
    const auto replica = static_cast<size_t>(plan.ReplicaOf(static_cast<int>(rank)));
    if (stage >= stages.size()) break;
    json& devices = stages[stage]["devices"];
    if (!devices.is_array() || replica >= devices.size() || !devices[replica].is_string()) continue;
    now[devices[replica]] = plan.devices[rank];
    devices[replica] = plan.devices[rank];
  }
  for (json& link : document["links"]) {
    for (const char* end : {"src", "dst"}) {
      const auto found = now.find(link.value(end, ""));
      if (found != now.end()) link[end] = found->second;
    }
  }
  return document;
}

// None where no target counts.
json LossOf(const broker::StepRecord& record) { return record.counted > 0 ? json(record.loss) : json(); }

}  // namespace

RunLog::RunLog(std::FILE* out, int64_t tokens_per_step, int64_t samples_per_step)
    : out_(out), tokens_per_step_(tokens_per_step), samples_per_step_(samples_per_step) {}

void RunLog::Write(json line) {
  line["time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
  // NaN and infinity have no JSON form; nlohmann writes null.
  const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

void RunLog::Plan(const broker::RunPlan& plan, uint32_t epoch) {
  earlier_bytes_ = SentBytes();
  earlier_evaluation_bytes_ = EvaluationBytes();
  plan_ = plan;
  stages_.clear();
  step_seconds_.clear();
  json line = {{"type", "plan"}, {"epoch", epoch}};
  line.update(ParsePlan(plan));
  Remember(line);
  Write(line);
}

void RunLog::Remember(const json& plan) {
  for (const json& link : plan.value("links", json::array())) {
    codecs_[{link.value("src", ""), link.value("dst", "")}] = {link.value("codec", "fp32"), link.value("ratio", 1.0)};
  }
}

bool RunLog::Step(uint32_t epoch, const broker::StepRecord& record) {
  const bool first_without_targets =
      record.counted == 0 && std::none_of(steps_.begin(), steps_.end(), [](const auto& step) { return step.second.counted == 0; });
  steps_[record.step] = record;
  step_seconds_.push_back(record.step_seconds);
  const int64_t targets = std::llround(record.counted * static_cast<double>(tokens_per_step_));
  const auto a_second = [&](int64_t count) { return record.step_seconds > 0 ? static_cast<double>(count) / record.step_seconds : 0.0; };
  Write({{"type", "step"},
         {"step", record.step},
         {"loss", LossOf(record)},
         {"loss_bits", absl::StrFormat("%08x", std::bit_cast<uint32_t>(record.loss))},
         {"grad_norm", record.gradient_norm},
         {"learning_rate", record.learning_rate},
         {"step_seconds", record.step_seconds},
         {"targets", targets},
         {"ignored_targets", tokens_per_step_ - targets},
         {"tokens_per_second", a_second(targets)},
         {"samples_per_second", a_second(samples_per_step_)},
         {"epoch", epoch}});
  return first_without_targets;
}

void RunLog::RestoreFrom(const JournalState& past) {
  evaluation_bytes_known_ = false;
  plan_ = past.plan;
  Remember(ParsePlan(plan_));
  for (const auto& [of_epoch, record] : past.steps) {
    steps_[record.step] = record;
    if (of_epoch == past.epoch) step_seconds_.push_back(record.step_seconds);
  }
  earlier_bytes_ = past.earlier_bytes;
  backoffs_ = past.backoffs;
  // Executors that are well tell their newest sums with the next step.
  for (const auto& [device, peers] : past.epoch_bytes) {
    for (const auto& [peer, bytes] : peers) stages_[device].links[peer].set_wire_bytes_sent(bytes);
  }
}

Traffic RunLog::SentBytes() const {
  Traffic bytes = earlier_bytes_;
  for (const auto& [device, totals] : stages_) {
    for (const auto& [peer, link] : totals.links) bytes[device][peer] += link.wire_bytes_sent();
  }
  return bytes;
}

Traffic RunLog::EvaluationBytes() const {
  Traffic bytes = earlier_evaluation_bytes_;
  for (const auto& [device, totals] : stages_) {
    for (const auto& [peer, link] : totals.links) bytes[device][peer] += link.evaluation_bytes_sent();
  }
  return bytes;
}

void RunLog::Event(const broker::EmitEvent& event) {
  json line = {{"type", "event"}, {"reason", event.reason}, {"step", event.step}, {"message", base::PrintableText(event.message)}};
  if (!event.device.empty()) line["device"] = event.device;
  if (event.pid != 0) line["pid"] = event.pid;
  if (!event.peer.empty()) line["peer"] = event.peer;
  if (event.measured.has_value()) line["measured"] = *event.measured;
  if (event.planned.has_value()) line["planned"] = *event.planned;
  if (event.stage.has_value()) {
    line["stage"] = *event.stage;
  } else if (event.reason == "ExecutorJoined") {
    line["stage"] = nullptr;
  }
  if (event.replica.has_value()) line["replica"] = *event.replica;
  for (const auto& [key, files] : {std::pair("files", &event.files), std::pair("validation_files", &event.validation_files)}) {
    for (const broker::DataFile& file : *files) line[key].push_back({{"path", file.path}, {"bytes", file.bytes}});
  }
  if (event.reduces_compression) ++backoffs_;
  if (const auto& found = event.backoff; found.has_value()) {
    line.update({{"value", found->value},
                 {"gradient", found->gradient},
                 {"kind", found->kind},
                 {"codec", found->from},
                 {"codec_after", found->to},
                 {"relative_error", found->relative_error},
                 {"cosine", found->cosine},
                 {"relative_error_limit", found->limit},
                 {"relative_error_after", found->remaining_error},
                 {"expected_loss_increase", event.expected_loss_increase}});
  }
  Write(line);
}

void RunLog::Evaluation(const v1::EvaluationReport& report) {
  Write({{"type", "eval"},
         {"step", report.step()},
         {"loss", report.loss()},
         {"accuracy", report.has_accuracy() ? json(report.accuracy()) : json(nullptr)}});
}

void RunLog::StageTimes(const std::string& device, const v1::StageTimes& times) {
  StageTotals& totals = stages_[device];
  totals.busy_seconds = times.epoch_busy_seconds();
  totals.lateness_seconds = times.epoch_lateness_seconds();
  totals.peak_memory_bytes = std::max(totals.peak_memory_bytes, times.peak_memory_bytes());
  for (const v1::LinkBytes& link : times.links()) {
    v1::LinkBytes& known = totals.links[link.peer()];
    v1::LinkBytes newest = link;
    RaiseBytes(known, newest);
    known = std::move(newest);
    if (link.compared_messages() == 0) continue;
    max_relative_error_ = std::max(max_relative_error_.value_or(0), link.relative_error());
    min_cosine_ = std::min(min_cosine_.value_or(1), link.cosine());
  }
  if (times.spans().empty()) return;
  json spans = json::array();
  for (const v1::Span& span : times.spans()) spans.push_back({span.kind(), span.micro_batch(), span.begin_ns(), span.end_ns()});
  Write({{"type", "trace"}, {"device", device}, {"step", times.step()}, {"spans", std::move(spans)}});
}

void RunLog::Sent(const std::string& device, const v1::LinkBytes& link) {
  v1::LinkBytes& known = stages_[device].links[link.peer()];
  known.set_peer(link.peer());
  RaiseBytes(link, known);
}

// What the plan expects of its codecs, and what they did. Null where nothing was compressed with loss.
json RunLog::Compression(const json& plan) const {
  double links = 0;
  for (const json& link : plan.value("links", json::array())) links += link.value("loss_cost", 0.0);
  const double expected = plan.value("loss_cost", links);  // with tied gradients, which are no links
  if (expected == 0 && !max_relative_error_.has_value() && backoffs_ == 0) return json();
  json figures = {{"expected_loss_increase", expected}, {"backoffs", backoffs_}};
  if (max_relative_error_.has_value()) figures.update({{"max_relative_error", *max_relative_error_}, {"min_cosine", *min_cosine_}});
  return figures;
}

void RunLog::Summary(const broker::PlanMonitor::LinkSet& representative_links) {
  std::vector<double> counted = step_seconds_;
  counted.erase(counted.begin(), counted.begin() + static_cast<std::ptrdiff_t>(std::min(counted.size(), kWarmUpSteps)));
  const json plan = ParsePlan(plan_);
  json line = {{"type", "summary"},
               {"steps", steps_.empty() ? 0 : steps_.rbegin()->first},
               {"final_loss", steps_.empty() ? json() : LossOf(steps_.rbegin()->second)},
               {"median_step_seconds", Median(counted)},
               {"predicted_step_seconds", plan.value("predicted_step_seconds", 0.0)},
               {"links", json::array()},
               {"stages", json::array()}};
  double seconds = 0;
  for (const double step : step_seconds_) seconds += step;

  const Traffic bytes = SentBytes();
  Traffic evaluation_bytes = EvaluationBytes();
  std::map<std::string, std::map<std::string, v1::LinkBytes>> measured;
  for (const auto& [device, totals] : stages_) {
    for (const auto& [peer, link] : totals.links) measured[device][peer] = link;
  }
  int64_t wire_bytes = 0;
  for (const auto& [src, peers] : bytes) {
    for (const auto& [dst, count] : peers) {
      wire_bytes += count;
      const auto planned = codecs_.find({src, dst});
      const double bytes_per_s = measured[src][dst].bandwidth_bytes_per_second();
      const bool known = bytes_per_s > 0 && representative_links.contains({src, dst});
      line["links"].push_back({{"src", src},
                               {"dst", dst},
                               {"bytes", count},
                               {"codec", planned == codecs_.end() ? "fp32" : planned->second.first},
                               {"ratio", planned == codecs_.end() ? 1.0 : planned->second.second},
                               {"bandwidth_bytes_per_second", known ? bytes_per_s : 0.0}});
      if (evaluation_bytes_known_) line["links"].back()["evaluation_bytes"] = std::min(count, evaluation_bytes[src][dst]);
      AddCompression(measured[src][dst], line["links"].back());
    }
  }
  line["wire_bytes"] = wire_bytes;
  if (json compression = Compression(plan); !compression.is_null()) line["compression"] = std::move(compression);
  for (size_t i = 0; i < plan_.devices.size(); ++i) {
    const StageTotals& totals = stages_[plan_.devices[i]];
    line["stages"].push_back({{"index", plan_.StageOf(static_cast<int>(i))},
                              {"device", plan_.devices[i]},
                              {"busy_ratio", seconds > 0 ? totals.busy_seconds / seconds : 0.0},
                              {"lateness_seconds", totals.lateness_seconds},
                              {"peak_memory_bytes", totals.peak_memory_bytes},
                              {"predicted_memory_bytes", plan_.MemoryBytesOf(static_cast<int>(i))}});
    if (plan_.plan.replicas > 1) line["stages"].back()["replica"] = plan_.ReplicaOf(static_cast<int>(i));
  }
  Write(line);
}

void RunLog::Error(const absl::Status& status, const std::string& refusal_reason) {
  Write({{"type", "error"},
         {"code", absl::StatusCodeToString(status.code())},
         {"reason", refusal_reason},
         {"message", std::string(status.message())}});
}

}  // namespace fusionllm::services
