#include "lib/compression/loss_prior.h"

#include <array>
#include <cmath>

namespace fusionllm::compression {
namespace {

struct ProbePoint {
  double ratio, loss_increase;
};
// docs/compression.md, "The probe"; ratio 1 keeps everything.
constexpr std::array<ProbePoint, 6> kTopKProbe = {{{1, 0}, {3, 0.042}, {5, 0.048}, {10, 0.082}, {30, 0.148}, {100, 0.479}}};
// int8 values at 1/10 reached the loss of fp16 values, so the kind of values does not enter.
constexpr double kInt4LossIncrease = 0.008;

}  // namespace

CodecSpec AllowedCodec(const CodecSpec& spec, opdag::ActivationKind kind) {
  if (kind == opdag::ActivationKind::kData) return Exact();
  const bool coarse = spec.kind == CodecKind::kInt8 || spec.kind == CodecKind::kInt4 || spec.kind == CodecKind::kTopK;
  if (kind == opdag::ActivationKind::kLossInput && coarse) return {.kind = CodecKind::kFp16};
  return spec;
}

double ExpectedLossIncrease(const CodecSpec& spec) {
  if (spec.kind == CodecKind::kInt4) return kInt4LossIncrease;
  if (spec.kind != CodecKind::kTopK) return 0;
  size_t i = 1;
  while (i + 1 < kTopKProbe.size() && kTopKProbe[i].ratio < spec.ratio) ++i;
  const ProbePoint a = kTopKProbe[i - 1], b = kTopKProbe[i];
  return a.loss_increase + (b.loss_increase - a.loss_increase) * std::log(spec.ratio / a.ratio) / std::log(b.ratio / a.ratio);
}

}  // namespace fusionllm::compression
