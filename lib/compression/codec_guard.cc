#include "lib/compression/codec_guard.h"

#include <tuple>

namespace fusionllm::compression {
namespace {

using opdag::ActivationKind;

constexpr double kLeastTopKRatio = 4;  // below, int4 loses less and is as small

CodecSpec Dense(CodecKind kind, const CodecSpec& like) {
  return {.kind = kind, .error_feedback = like.error_feedback && kind != CodecKind::kExact};
}

// bf16 stands beside fp16.
auto Harshness(const CodecSpec& spec) {
  const CodecKind kind = spec.kind == CodecKind::kBf16 ? CodecKind::kFp16 : spec.kind;
  return std::tuple(kind, spec.ratio, spec.kind == CodecKind::kTopK && spec.top_k_values == ValueKind::kInt8);
}

}  // namespace

double MaxRelativeError(ActivationKind kind, Direction direction) {
  switch (kind) {
    case ActivationKind::kData:
    case ActivationKind::kLossInput:
      return 0.002;  // fp16 and bf16 pass; int8 (0.006) does not, nor does its gradient
    case ActivationKind::kResidual:
    case ActivationKind::kAttentionInput:
      return direction == Direction::kForward ? 0.8 : 0.05;  // top-k 12.5 passes (0.78), 15 does not (0.81)
    case ActivationKind::kNormalized:
    case ActivationKind::kHidden:
      return direction == Direction::kForward ? 0.15 : 0.05;  // int4 passes, top-k does not
  }
  return 0.002;
}

std::vector<CodecSpec> GentlerCodecs(const CodecSpec& spec, Direction direction) {
  std::vector<CodecSpec> codecs;
  const bool backward = direction == Direction::kBackward;
  if (spec.kind == CodecKind::kTopK && backward) {
    if (spec.top_k_values == ValueKind::kInt8) codecs.push_back(TopK(spec.ratio, ValueKind::kFp16));
    return codecs;
  }
  for (double ratio = spec.ratio / 2; spec.kind == CodecKind::kTopK && ratio >= kLeastTopKRatio; ratio /= 2) {
    codecs.push_back(spec);
    codecs.back().ratio = ratio;
  }
  for (const CodecKind kind : {CodecKind::kInt4, CodecKind::kInt8, CodecKind::kFp16, CodecKind::kExact}) {
    if (backward && GradientKind(kind) != kind) continue;
    if (Harshness(Dense(kind, spec)) < Harshness(spec)) codecs.push_back(Dense(kind, spec));
  }
  return codecs;
}

CodecSpec GentlerOf(const CodecSpec& a, const CodecSpec& b) {
  CodecSpec gentler = Harshness(b) < Harshness(a) ? b : a;
  gentler.error_feedback = a.error_feedback && gentler.kind != CodecKind::kExact;
  return gentler;
}

CodecSpec AfterBadLoss(const CodecSpec& spec) {
  switch (spec.kind) {
    case CodecKind::kTopK:
    case CodecKind::kInt4:
      return Dense(CodecKind::kInt8, spec);
    case CodecKind::kInt8:
      return Dense(CodecKind::kFp16, spec);
    default:
      return Exact();
  }
}

}  // namespace fusionllm::compression
