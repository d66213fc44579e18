#include "lib/runtime/step_coordinator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/compression/rows.h"
#include "lib/runtime/evaluation_pass.h"

namespace fusionllm::runtime {
namespace {

using opdag::kNone;

// Fixed little-endian layouts; both are small and versioned with the protocol.
struct ReportHeader {
  uint32_t has_loss;
  float loss;
  double counted;
  uint64_t count;
};
struct ReportEntry {
  int64_t parameter;
  double sum_of_squares;
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
  if (!(header.counted >= 0 && header.counted <= 1)) return bad;
  StageReport report{.has_loss = header.has_loss != 0, .loss = header.loss, .counted = header.counted};
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

double GradientWeight(const autodiff::TrainingGraph& training, const StepDecision& decision) {
  return training.counted == kNone ? 1 : decision.counted;
}

StepCoordinator::StepCoordinator(const autodiff::TrainingGraph& training, const StageProgram& program, const TiedCodecs& codecs,
                                 std::shared_ptr<const CodecLimit> limit, ParameterStore& store, MessagePort& port, Inbox& inbox)
    : training_(training), program_(program), store_(store), port_(port), inbox_(inbox), limit_(std::move(limit)) {
  for (const int use : program_.local_uses) {
    const opdag::ParameterId parameter = training_.uses[use].parameter;
    if (program_.sharers[parameter].empty()) continue;
    const std::string& name = training_.graph.parameter(parameter).name;
    const auto codec = codecs.find(name);
    senders_[use].codec = codec == codecs.end() ? compression::Exact() : codec->second;
    if (senders_[use].codec.kind == compression::CodecKind::kExact) continue;
    residual_uses_[absl::StrCat("residual:", name, "@", training_.graph.op(training_.uses[use].op).name)] = use;
  }
}

absl::Status StepCoordinator::SendSharedGradients(int64_t step) {
  const std::optional<compression::CodecSpec> limit = limit_ == nullptr ? std::nullopt : limit_->Get();
  for (auto& [use, sender] : senders_) {
    const opdag::ParameterId parameter = training_.uses[use].parameter;
    FUSIONLLM_ASSIGN_OR_RETURN(std::vector<float> gradient, store_.ReadPerUseGradient(use));
    const compression::CodecSpec codec = limit.has_value() ? compression::LessAggressiveOf(sender.codec, *limit) : sender.codec;
    Payload message;
    FUSIONLLM_RETURN_IF_ERROR(compression::EncodeRows(codec, RowOf(parameter), gradient, &sender.residual, &message));
    if (codec.kind != compression::CodecKind::kExact) FUSIONLLM_RETURN_IF_ERROR(store_.WritePerUseGradient(use, gradient));
    for (const int sharer : program_.sharers[parameter]) {
      if (sharer == program_.stage) continue;
      FUSIONLLM_RETURN_IF_ERROR(port_.Send(sharer, {.step = step, .kind = MessageKind::kPerUseGradient, .id = use}, message));
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> StepCoordinator::ResidualNames() const {
  std::vector<std::string> names;
  for (const auto& [name, use] : residual_uses_) names.push_back(name);
  return names;
}

tensor::TensorView StepCoordinator::Residual(const std::string& name) {
  const int use = residual_uses_.at(name);
  const tensor::TensorType& type = training_.graph.parameter(training_.uses[use].parameter).type;
  std::vector<float>& residual = senders_.at(use).residual;
  residual.resize(static_cast<size_t>(type.elements()));
  return {type, reinterpret_cast<std::byte*>(residual.data())};
}

absl::Status StepCoordinator::CombineSharedGradients(int64_t step) {
  std::map<int, std::vector<float>> remote;
  for (int use = 0; use < static_cast<int>(training_.uses.size()); ++use) {
    const opdag::ParameterId parameter = training_.uses[use].parameter;
    const std::vector<int>& sharers = program_.sharers[parameter];
    const bool shared_here = std::find(sharers.begin(), sharers.end(), program_.stage) != sharers.end();
    const bool local = std::binary_search(program_.local_uses.begin(), program_.local_uses.end(), use);
    if (!shared_here || local) continue;
    FUSIONLLM_ASSIGN_OR_RETURN(const Payload message, inbox_.Take({.step = step, .kind = MessageKind::kPerUseGradient, .id = use}));
    std::vector<float>& gradient = remote[use];
    gradient.resize(static_cast<size_t>(training_.graph.parameter(parameter).type.elements()));
    if (const absl::Status status = compression::DecodeRows(RowOf(parameter), message, gradient); !status.ok()) {
      return Malformed(absl::StrFormat("gradient of '%s' from op '%s' (%s)", training_.graph.parameter(parameter).name,
                                       training_.graph.op(training_.uses[use].op).name, status.message()));
    }
  }
  return store_.CombineSharedUses(remote);
}

bool StepCoordinator::ReportsSharedGradients() const {
  return std::any_of(program_.parameters.begin(), program_.parameters.end(),
                     [&](opdag::ParameterId id) { return !program_.sharers[id].empty() && store_.Owns(id); });
}

// A matrix has a row for each index of its first dimension, as an embedding has one for each token; anything else is one row.
size_t StepCoordinator::RowOf(opdag::ParameterId parameter) const {
  const tensor::TensorType& type = training_.graph.parameter(parameter).type;
  const int64_t rows = type.shape.rank() < 2 ? 1 : type.shape.dim(0);
  return rows == 0 ? 0 : static_cast<size_t>(type.elements() / rows);
}

absl::Status StepCoordinator::SendReport(int64_t step, const StageReport& report) {
  Payload payload;
  Append(
      payload,
      ReportHeader{
          .has_loss = report.has_loss ? 1u : 0u, .loss = report.loss, .counted = report.counted, .count = report.sums_of_squares.size()});
  for (const auto& [parameter, sum] : report.sums_of_squares) Append(payload, ReportEntry{.parameter = parameter, .sum_of_squares = sum});
  return port_.Send(0, {.step = step, .kind = MessageKind::kReport, .id = program_.stage}, std::move(payload));
}

absl::StatusOr<StepDecision> StepCoordinator::CollectReports(int64_t step, const StageReport& own) {
  StepDecision decision{.loss = own.loss, .counted = own.counted};
  std::map<std::string, std::pair<opdag::ParameterId, double>> sums;  // by name: the canonical order
  const auto take = [&](const StageReport& report) {
    if (report.has_loss) decision.loss = report.loss;
    if (report.has_loss) decision.counted = report.counted;
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
    if (decision.offending_parameter == kNone && !std::isfinite(sum)) decision.offending_parameter = parameter;
  }
  const double weight = GradientWeight(training_, decision);
  decision.norm = weight > 0 ? std::sqrt(total) / weight : 0;
  return decision;
}

DecisionRecord RecordOf(const StepDecision& decision) {
  return {.norm = decision.norm,
          .counted = decision.counted,
          .loss = decision.loss,
          .stop = decision.stop,
          .checkpoint = decision.checkpoint,
          .unused = {},
          .offending_parameter = decision.offending_parameter,
          .unused_end = {}};
}

absl::StatusOr<StepDecision> DecisionOf(const DecisionRecord& record, const autodiff::TrainingGraph& training, absl::string_view from) {
  const bool shares = record.counted >= 0 && record.counted <= 1;  // false of NaN
  if (!shares || record.offending_parameter < kNone ||
      record.offending_parameter >= static_cast<int32_t>(training.graph.parameters().size())) {
    return Malformed(absl::StrCat("decision from ", from));
  }
  return StepDecision{.norm = record.norm,
                      .loss = record.loss,
                      .counted = record.counted,
                      .stop = record.stop != 0,
                      .checkpoint = record.checkpoint != 0,
                      .offending_parameter = record.offending_parameter};
}

absl::Status StepCoordinator::SendDecision(int64_t step, const StepDecision& decision) {
  for (int stage = 1; stage < program_.stages; ++stage) {
    Payload payload;
    Append(payload, RecordOf(decision));
    FUSIONLLM_RETURN_IF_ERROR(port_.Send(stage, {.step = step, .kind = MessageKind::kDecision}, std::move(payload)));
  }
  return absl::OkStatus();
}

absl::StatusOr<StepDecision> StepCoordinator::AwaitDecision(int64_t step) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Payload payload, inbox_.Take({.step = step, .kind = MessageKind::kDecision}));
  DecisionRecord record;
  if (payload.size() != sizeof(record)) return Malformed("decision from stage 0");
  std::memcpy(&record, payload.data(), sizeof(record));
  return DecisionOf(record, training_, "stage 0");
}

absl::StatusOr<int64_t> StepCoordinator::ShareEvaluationSize(int64_t step, int source_stage, int64_t own) {
  const MessageKey key{.step = step, .kind = MessageKind::kEvaluationSize};
  if (program_.stage != source_stage) {
    FUSIONLLM_ASSIGN_OR_RETURN(const Payload payload, inbox_.Take(key));
    int64_t samples = 0;
    if (payload.size() != sizeof(samples)) return Malformed(absl::StrCat("evaluation from stage ", source_stage));
    std::memcpy(&samples, payload.data(), sizeof(samples));
    if (samples < 0) return Malformed(absl::StrCat("evaluation from stage ", source_stage));
    return samples;
  }
  for (int stage = 0; stage < program_.stages; ++stage) {
    if (stage == source_stage) continue;
    Payload payload;
    Append(payload, own);
    FUSIONLLM_RETURN_IF_ERROR(port_.Send(stage, key, std::move(payload)));
  }
  return own;
}

absl::Status StepCoordinator::AwaitEvaluationWindow(int64_t step, int micro_batch, int window) {
  const int before_last = micro_batch / window - 2;
  if (program_.owns_loss || micro_batch % window != 0 || before_last < 0) return absl::OkStatus();
  return inbox_.Take({.step = step, .kind = MessageKind::kEvaluated, .micro_batch = before_last, .id = kEvaluatedWindow}).status();
}

absl::Status StepCoordinator::EndEvaluationWindow(int64_t step, int micro_batch, int window, int64_t samples, int64_t micro_batch_size) {
  const int number = micro_batch / window;
  if (!program_.owns_loss || micro_batch % window != window - 1) return absl::OkStatus();
  // No stage waits for what comes after the last one.
  if (!EvaluationPassAt(samples, micro_batch_size, int64_t{number + 2} * window).has_value()) return absl::OkStatus();
  const MessageKey key{.step = step, .kind = MessageKind::kEvaluated, .micro_batch = number, .id = kEvaluatedWindow};
  for (int stage = 0; stage < program_.stages; ++stage) {
    if (stage != program_.stage) FUSIONLLM_RETURN_IF_ERROR(port_.Send(stage, key, {}));
  }
  return absl::OkStatus();
}

absl::Status StepCoordinator::EndEvaluation(int64_t step) {
  const MessageKey key{.step = step, .kind = MessageKind::kEvaluated, .id = kEvaluatedAll};
  if (program_.owns_loss) return program_.stage == 0 ? absl::OkStatus() : port_.Send(0, key, {});
  return program_.stage == 0 ? inbox_.Take(key).status() : absl::OkStatus();
}

}  // namespace fusionllm::runtime
