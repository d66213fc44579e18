// What a run prints: one JSON object a line (docs/reference/events.md), and the figures its summary needs.
// Not thread-safe: used by the broker's loop.
#pragma once

#include <cstdio>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/broker/run_state.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/broker/journal.h"

namespace fusionllm::services {

class RunLog {
 public:
  // `tokens_per_step`: targets of a global batch, of images one each; `samples_per_step`: its size. Lines go to `out`, flushed one by one.
  RunLog(std::FILE* out, int64_t tokens_per_step, int64_t samples_per_step);

  void Plan(const broker::RunPlan& plan, uint32_t epoch);
  // Whether it is the first one of the run in which no target counts: such a step has no loss.
  bool Step(uint32_t epoch, const broker::StepRecord& record);
  // What an earlier life of the broker has reported and counted already: not reported again.
  void RestoreFrom(const JournalState& past);
  // Sent so far, in all epochs.
  Traffic SentBytes() const;
  void Event(const broker::EmitEvent& event);
  void Evaluation(const v1::EvaluationReport& report);
  void StageTimes(const std::string& device, const v1::StageTimes& times);
  // What `device` sent to a peer in this epoch, by anybody's count: the most that was reported holds.
  void Sent(const std::string& device, const v1::LinkBytes& link);
  // `representative_links`: those whose rate, as measured, is that of their wire (RunState::representative_links); of others it is 0,
  // unknown.
  void Summary(const broker::PlanMonitor::LinkSet& representative_links);
  // A failure, for who started the broker: {"type":"error", ...}.
  void Error(const absl::Status& status, const std::string& refusal_reason);

 private:
  struct StageTotals {
    double busy_seconds = 0;
    double lateness_seconds = 0;
    int64_t peak_memory_bytes = 0;
    std::map<std::string, v1::LinkBytes> links;
  };
  void Write(nlohmann::json line);
  void Remember(const nlohmann::json& plan);
  Traffic EvaluationBytes() const;
  nlohmann::json Compression(const nlohmann::json& plan) const;

  std::FILE* const out_;
  const int64_t tokens_per_step_, samples_per_step_;
  broker::RunPlan plan_;
  std::map<int64_t, broker::StepRecord> steps_;  // the newest record of each step
  std::vector<double> step_seconds_;             // of the plan in force
  std::map<std::string, StageTotals> stages_;    // by device, of the plan in force
  Traffic earlier_bytes_;                        // of earlier epochs
  Traffic earlier_evaluation_bytes_;             // of those, by evaluations
  bool evaluation_bytes_known_ = true;           // an earlier life of the broker leaves only the sum of both
  // Of the run, as far as this life of the broker has heard: of messages that were compared, and of codecs made less aggressive.
  std::optional<double> max_relative_error_, min_cosine_;
  int backoffs_ = 0;
  // Codec and ratio of each link, by source and destination, in the newest plan that has it.
  std::map<std::pair<std::string, std::string>, std::pair<std::string, double>> codecs_;
};

}  // namespace fusionllm::services
