#include "lib/runtime/evaluation_pass.h"

#include "absl/strings/str_format.h"

namespace fusionllm::runtime {

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

}  // namespace fusionllm::runtime
