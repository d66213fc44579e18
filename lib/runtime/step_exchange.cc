#include "lib/runtime/step_exchange.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace fusionllm::runtime {
namespace {

using opdag::kNone;

// Fixed little-endian layouts; both are small and versioned with the protocol.
struct ReportHeader {
  uint32_t has_loss;
  float loss;
  uint64_t count;
};
struct ReportEntry {
  int64_t parameter;
  double sum_of_squares;
};
struct DecisionRecord {
  double norm;
  float loss;
  uint8_t stop;
  uint8_t checkpoint;
  uint8_t unused[2];
  int32_t culprit;
  uint8_t unused_end[4];
};

template <typename T>
void Append(Payload& payload, const T& record) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&record);
  payload.insert(payload.end(), bytes, bytes + sizeof(T));
}

absl::StatusOr<StageReport> ParseReport(const Payload& payload, size_t parameters, int from) {
  const absl::Status bad = Malformed(absl::StrCat("report from stage ", from));
  ReportHeader header;
  if (payload.size() < sizeof(header)) return bad;
  std::memcpy(&header, payload.data(), sizeof(header));
  if (header.count > parameters || payload.size() != sizeof(header) + header.count * sizeof(ReportEntry)) return bad;
  StageReport report{.has_loss = header.has_loss != 0, .loss = header.loss};
  for (size_t i = 0; i < header.count; ++i) {
    ReportEntry entry;
    std::memcpy(&entry, payload.data() + sizeof(header) + i * sizeof(entry), sizeof(entry));
    if (entry.parameter < 0 || entry.parameter >= static_cast<int64_t>(parameters)) return bad;
    report.sums_of_squares.emplace_back(static_cast<opdag::ParameterId>(entry.parameter), entry.sum_of_squares);
  }
  return report;
}

}  // namespace

absl::Status Malformed(absl::string_view what) {
  return absl::InternalError(
      absl::StrCat("malformed step ", what, "; executors of different builds may send such: run the same one on all devices"));
}

StepExchange::StepExchange(const autodiff::TrainingGraph& training, const StageProgram& program, ParameterStore& store, MessagePort& port,
                           Inbox& inbox)
    : training_(training), program_(program), store_(store), port_(port), inbox_(inbox) {}

absl::Status StepExchange::CombineSharedGradients(int64_t step) {
  for (const int use : program_.local_uses) {
    const std::vector<int>& sharers = program_.sharers[training_.uses[use].parameter];
    if (sharers.empty()) continue;
    FUSIONLLM_ASSIGN_OR_RETURN(const Payload gradient, store_.ReadUseGradient(use));
    for (const int sharer : sharers) {
      if (sharer == program_.stage) continue;
      FUSIONLLM_RETURN_IF_ERROR(port_.Send(sharer, {.step = step, .kind = MessageKind::kUseGradient, .id = use}, gradient));
    }
  }
  std::map<int, Payload> remote;
  for (int use = 0; use < static_cast<int>(training_.uses.size()); ++use) {
    const std::vector<int>& sharers = program_.sharers[training_.uses[use].parameter];
    const bool shared_here = std::find(sharers.begin(), sharers.end(), program_.stage) != sharers.end();
    const bool local = std::binary_search(program_.local_uses.begin(), program_.local_uses.end(), use);
    if (!shared_here || local) continue;
    FUSIONLLM_ASSIGN_OR_RETURN(remote[use], inbox_.Take({.step = step, .kind = MessageKind::kUseGradient, .id = use}));
  }
  return store_.CombineUses(remote);
}

absl::Status StepExchange::SendReport(int64_t step, const StageReport& report) {
  Payload payload;
  Append(payload, ReportHeader{.has_loss = report.has_loss ? 1u : 0u, .loss = report.loss, .count = report.sums_of_squares.size()});
  for (const auto& [parameter, sum] : report.sums_of_squares) Append(payload, ReportEntry{.parameter = parameter, .sum_of_squares = sum});
  return port_.Send(0, {.step = step, .kind = MessageKind::kReport, .id = program_.stage}, std::move(payload));
}

absl::StatusOr<StepDecision> StepExchange::CollectReports(int64_t step, const StageReport& own) {
  StepDecision decision{.loss = own.loss};
  std::map<std::string, std::pair<opdag::ParameterId, double>> sums;  // by name: the canonical order
  const auto take = [&](const StageReport& report) {
    if (report.has_loss) decision.loss = report.loss;
    for (const auto& [parameter, sum] : report.sums_of_squares) sums[training_.graph.parameter(parameter).name] = {parameter, sum};
  };
  take(own);
  for (int stage = 1; stage < program_.stages; ++stage) {
    FUSIONLLM_ASSIGN_OR_RETURN(const Payload payload, inbox_.Take({.step = step, .kind = MessageKind::kReport, .id = stage}));
    FUSIONLLM_ASSIGN_OR_RETURN(const StageReport report, ParseReport(payload, training_.graph.parameters().size(), stage));
    take(report);
  }
  double total = 0;
  for (const auto& [name, entry] : sums) {
    const auto& [parameter, sum] = entry;
    total += sum;
    if (decision.culprit == kNone && !std::isfinite(sum)) decision.culprit = parameter;
  }
  decision.norm = std::sqrt(total);
  return decision;
}

absl::Status StepExchange::SendDecision(int64_t step, const StepDecision& decision) {
  for (int stage = 1; stage < program_.stages; ++stage) {
    Payload payload;
    Append(payload, DecisionRecord{.norm = decision.norm,
                                   .loss = decision.loss,
                                   .stop = decision.stop,
                                   .checkpoint = decision.checkpoint,
                                   .culprit = decision.culprit});
    FUSIONLLM_RETURN_IF_ERROR(port_.Send(stage, {.step = step, .kind = MessageKind::kDecision}, std::move(payload)));
  }
  return absl::OkStatus();
}

absl::StatusOr<StepDecision> StepExchange::AwaitDecision(int64_t step) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Payload payload, inbox_.Take({.step = step, .kind = MessageKind::kDecision}));
  DecisionRecord record;
  if (payload.size() != sizeof(record)) return Malformed("decision from stage 0");
  std::memcpy(&record, payload.data(), sizeof(record));
  if (record.culprit < kNone || record.culprit >= static_cast<int32_t>(training_.graph.parameters().size())) {
    return Malformed("decision from stage 0");
  }
  return StepDecision{
      .norm = record.norm, .loss = record.loss, .stop = record.stop != 0, .checkpoint = record.checkpoint != 0, .culprit = record.culprit};
}

}  // namespace fusionllm::runtime
