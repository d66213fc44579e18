#include "lib/runtime/evaluation_pass.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace fusionllm::runtime {
namespace {

constexpr int64_t kEvaluationBytesHeld = int64_t{128} << 20;
constexpr int64_t kMaxEvaluationWindow = 4096;

}  // namespace

std::optional<EvaluationPass> EvaluationPassAt(int64_t set_samples, int64_t micro_batch_size, int64_t index) {
  const int64_t whole = set_samples / micro_batch_size;
  if (index < whole) return EvaluationPass{index * micro_batch_size, micro_batch_size};
  EvaluationPass pass{whole * micro_batch_size, 0};
  for (int64_t i = whole; i <= index; ++i) {
    pass.first += pass.samples;
    pass.samples = set_samples - pass.first;
    if (pass.samples == 0) return std::nullopt;
    while (micro_batch_size % pass.samples != 0) --pass.samples;
  }
  return pass;
}

absl::StatusOr<std::vector<int64_t>> SamplesOfPass(int64_t set_samples, int64_t micro_batch_size, int64_t index) {
  const std::optional<EvaluationPass> pass = EvaluationPassAt(set_samples, micro_batch_size, index);
  if (!pass.has_value()) return absl::InternalError(absl::StrFormat("an evaluation of %d samples has no pass %d", set_samples, index));
  std::vector<int64_t> samples(static_cast<size_t>(micro_batch_size));
  for (int64_t i = 0; i < micro_batch_size; ++i) samples[static_cast<size_t>(i)] = pass->first + i % pass->samples;
  return samples;
}

absl::StatusOr<int64_t> SamplesToEvaluate(std::optional<int64_t> set_samples, std::optional<int64_t> batches, int64_t global_batch_size) {
  if (!set_samples && !batches) return absl::FailedPreconditionError("an evaluation of a source without end needs a number of batches");
  if (!batches) return *set_samples;
  const int64_t asked = *batches * global_batch_size;
  return set_samples ? std::min(*set_samples, asked) : asked;
}

int LowestReader(const autodiff::TrainingGraph& training, const std::vector<int>& stage_of_op) {
  int lowest = -1;
  for (opdag::OpId id = 0; id < training.forward_ops; ++id) {
    if (training.graph.op(id).kind != opdag::OpKind::kPlaceholder) continue;
    const int stage = stage_of_op[static_cast<size_t>(id)];
    lowest = lowest < 0 ? stage : std::min(lowest, stage);
  }
  return lowest;
}

int EvaluationWindow(const autodiff::TrainingGraph& training, const std::vector<int>& stage_of_op, int stages) {
  std::vector<int64_t> received(static_cast<size_t>(stages));
  for (opdag::OpId id = 0; id < training.forward_ops; ++id) {
    const int stage = stage_of_op[static_cast<size_t>(id)];
    for (const opdag::ValueId input : training.graph.op(id).inputs) {
      const opdag::Value& value = training.graph.value(input);
      // A value that several ops read is counted for each: it only has to be the same on all stages.
      if (stage_of_op[static_cast<size_t>(value.producer)] != stage) received[static_cast<size_t>(stage)] += value.type.bytes();
    }
  }
  const int64_t largest = std::max<int64_t>(1, *std::max_element(received.begin(), received.end()));
  return static_cast<int>(
      std::clamp<int64_t>(kEvaluationBytesHeld / (2 * largest), stages, std::max<int64_t>(stages, kMaxEvaluationWindow)));
}

}  // namespace fusionllm::runtime
