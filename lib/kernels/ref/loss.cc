#include <cmath>

#include "lib/base/status_macros.h"
#include "lib/kernels/ref/reference.h"

namespace fusionllm::kernels::ref {
namespace {

constexpr int64_t kDefaultIgnored = -100;  // torch's

void StoreCount(const tensor::TensorView& view, const tensor::TensorType& type, int64_t count) {
  if (view.data == nullptr) return;
  if (type.dtype == tensor::DType::kF32) *view.f32() = static_cast<float>(count);
  if (type.dtype == tensor::DType::kI32) *view.as<int32_t>() = static_cast<int32_t>(count);
  if (type.dtype == tensor::DType::kI64) *view.as<int64_t>() = count;
}

float ShareOf(int64_t counted, int64_t rows) { return static_cast<float>(static_cast<double>(counted) / static_cast<double>(rows)); }

// A micro-batch whose labels are all ignored has loss 0, not 0/0: it adds nothing to the global mean.
absl::Status CrossEntropy(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t rows = op.in(0).rows();
  const int64_t classes = op.in(0).dim(-1);
  const int64_t ignored = op.attributes.Int("ignore_index", kDefaultIgnored);
  const auto* labels = arguments.inputs[1].as<int32_t>();
  FUSIONLLM_RETURN_IF_ERROR(CheckRange(op, "label", labels, rows, classes, ignored));
  float* lse = OutputOrNull(arguments, 2);
  double loss = 0;
  int64_t counted = 0;
  int64_t correct = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const float* logits = arguments.inputs[0].f32() + row * classes;
    int64_t best = 0;
    for (int64_t c = 1; c < classes; ++c) {
      if (logits[c] > logits[best]) best = c;
    }
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(logits[c]) - logits[best]);
    const double log_sum = logits[best] + std::log(sum);
    if (lse != nullptr) lse[row] = static_cast<float>(log_sum);
    if (labels[row] == ignored) continue;
    loss += log_sum - logits[labels[row]];
    ++counted;
    if (best == labels[row]) ++correct;
  }
  *arguments.outputs[0].f32() = static_cast<float>(counted == 0 ? 0 : loss / static_cast<double>(counted));
  if (arguments.outputs.size() > 1) StoreCount(arguments.outputs[1], op.outputs[1], correct);
  if (float* share = OutputOrNull(arguments, 3); share != nullptr) *share = ShareOf(counted, rows);
  return absl::OkStatus();
}

absl::Status CrossEntropyGrad(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t rows = op.in(0).rows();
  const int64_t classes = op.in(0).dim(-1);
  const int64_t ignored = op.attributes.Int("ignore_index", kDefaultIgnored);
  const auto* labels = arguments.inputs[1].as<int32_t>();
  FUSIONLLM_RETURN_IF_ERROR(CheckRange(op, "label", labels, rows, classes, ignored));
  int64_t counted = 0;
  for (int64_t row = 0; row < rows; ++row) counted += labels[row] != ignored;
  const double scale = counted == 0 ? 0 : *arguments.inputs[3].f32() / static_cast<double>(counted);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < classes; ++c) {
      const int64_t i = row * classes + c;
      const double p = std::exp(static_cast<double>(arguments.inputs[0].f32()[i]) - arguments.inputs[2].f32()[row]);
      arguments.outputs[0].f32()[i] = labels[row] == ignored ? 0.f : static_cast<float>((p - (c == labels[row] ? 1 : 0)) * scale);
    }
  }
  return absl::OkStatus();
}

absl::Status Mse(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t count = op.in(0).elements();
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double difference = static_cast<double>(arguments.inputs[0].f32()[i]) - arguments.inputs[1].f32()[i];
    sum += difference * difference;
  }
  *arguments.outputs[0].f32() = static_cast<float>(sum / static_cast<double>(count));
  return absl::OkStatus();
}

absl::Status MseGrad(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t count = op.in(0).elements();
  const double scale = 2.0 * *arguments.inputs[2].f32() / static_cast<double>(count);
  for (int64_t i = 0; i < count; ++i) {
    const double difference = static_cast<double>(arguments.inputs[0].f32()[i]) - arguments.inputs[1].f32()[i];
    arguments.outputs[0].f32()[i] = static_cast<float>(difference * scale);
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const Entry> LossKernels() {
  static constexpr Entry kEntries[] = {{OpKind::kCrossEntropy, CrossEntropy},
                                       {OpKind::kCrossEntropyGrad, CrossEntropyGrad},
                                       {OpKind::kMse, Mse},
                                       {OpKind::kMseGrad, MseGrad}};
  return kEntries;
}

}  // namespace fusionllm::kernels::ref
