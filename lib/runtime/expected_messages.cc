#include "lib/runtime/expected_messages.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "lib/runtime/evaluation_pass.h"

namespace fusionllm::runtime {
namespace {

// What any codec makes of an element at most, indices included (compression::EncodedBytes), and of headers.
constexpr uint64_t kEncodedElementBytes = 16;
constexpr uint64_t kHeaderBytes = 4096;
constexpr uint64_t kReportEntryBytes = 32;
// What replicas say to each other beside tensors: call headers, NCCL's ids, close messages with a message.
constexpr uint64_t kReplicaSlackBytes = uint64_t{64} << 20;

uint64_t EncodedBytesMax(const tensor::TensorType& type) {
  return kHeaderBytes + kEncodedElementBytes * static_cast<uint64_t>(type.elements());
}

}  // namespace

ExpectedMessages::ExpectedMessages(const autodiff::TrainingGraph& training, const std::vector<int>& stage_of_op,
                                   const StageProgram& program, int micro_batches, int replicas, int evaluation_window)
    : stages_(program.stages), replicas_(replicas), micro_batches_(micro_batches), evaluation_window_(evaluation_window) {
  const auto type_of = [&](const CutEdge& edge) -> const tensor::TensorType& { return training.graph.value(edge.value).type; };
  for (const Pass* pass : {&program.forward, &program.backward}) {
    for (const CutEdge& edge : pass->receives) Add(MessageKind::kValue, edge.value, edge.peer, EncodedBytesMax(type_of(edge)));
  }
  for (const CutEdge& edge : program.evaluate.receives)
    Add(MessageKind::kEvaluation, edge.value, edge.peer, EncodedBytesMax(type_of(edge)));
  for (int use = 0; use < static_cast<int>(training.uses.size()); ++use) {
    const autodiff::ParameterUse& of = training.uses[static_cast<size_t>(use)];
    const uint64_t bytes = EncodedBytesMax(training.graph.parameter(of.parameter).type);
    if (std::binary_search(program.local_uses.begin(), program.local_uses.end(), use)) chunk_bytes_max_ += bytes;
    const std::vector<int>& sharers = program.sharers[of.parameter];
    const int from = stage_of_op[static_cast<size_t>(of.op)];
    if (from != program.stage && std::find(sharers.begin(), sharers.end(), program.stage) != sharers.end()) {
      Add(MessageKind::kPerUseGradient, use, from, bytes);
    }
  }
  for (const opdag::ParameterId parameter : program.parameters) {
    chunk_bytes_max_ += EncodedBytesMax(training.graph.parameter(parameter).type);
  }
  chunk_bytes_max_ = 2 * chunk_bytes_max_ + kReplicaSlackBytes;  // of this call and of the next one
  const uint64_t report = kHeaderBytes + kReportEntryBytes * training.graph.parameters().size();
  const int loss_stage = stage_of_op[static_cast<size_t>(training.graph.value(training.graph.loss()).producer)];
  const int reader = LowestReader(training, stage_of_op);
  for (int stage = 0; stage < stages_; ++stage) {
    if (stage == program.stage) continue;
    if (program.stage == 0) Add(MessageKind::kReport, stage, stage, report);
    if (stage == 0) Add(MessageKind::kDecision, 0, stage, kHeaderBytes);
    if (stage == loss_stage) {
      for (const int32_t id : {kEvaluatedAll, kEvaluatedWindow}) Add(MessageKind::kEvaluated, id, stage, kHeaderBytes);
    }
    if (stage == reader) Add(MessageKind::kEvaluationSize, 0, stage, kHeaderBytes);
  }
}

absl::Status ExpectedMessages::Check(int place, const MessageKey& key, uint64_t bytes) const {
  const auto refusal = [&](absl::StatusCode code, const char* why) {
    return absl::Status(code, absl::StrFormat("a message of kind %d, id %d, step %d, micro-batch %d with %d bytes: %s",
                                              static_cast<int>(key.kind), key.id, key.step, key.micro_batch, bytes, why));
  };
  if (key.kind == MessageKind::kReplica) {
    if (place < stages_ || key.id < 0 || SenderOf(key) != place - stages_) {
      return refusal(absl::StatusCode::kPermissionDenied, "it is another replica's");
    }
    return absl::OkStatus();  // what is held of them is limited, not each of them
  }
  const auto known = bytes_max_.find({key.kind, key.id, place});
  if (known == bytes_max_.end()) return refusal(absl::StatusCode::kPermissionDenied, "the plan has none from there");
  if (bytes > known->second) return refusal(absl::StatusCode::kOutOfRange, "it is larger than any codec makes it");
  const bool one_a_micro_batch = key.kind == MessageKind::kValue;
  const bool numbered = one_a_micro_batch || key.kind == MessageKind::kEvaluation || key.kind == MessageKind::kEvaluated;
  if (key.micro_batch < 0 || (one_a_micro_batch && key.micro_batch >= micro_batches_) || (!numbered && key.micro_batch != 0)) {
    return refusal(absl::StatusCode::kOutOfRange, "no micro-batch has this number");
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::runtime
