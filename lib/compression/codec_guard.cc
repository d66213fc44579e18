#include "lib/compression/codec_guard.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <tuple>

#include "lib/compression/loss_prior.h"

namespace fusionllm::compression {
namespace {

using opdag::ActivationKind;

constexpr double kMinTopKRatio = 4;      // of int8 values: below, int4 loses less and is as small
constexpr double kMinInt4Ratio = 2;      // of int4 values, which are smaller
constexpr double kMinMeasuredRatio = 2;  // below, the prior is no more than a line to nothing
constexpr double kGuardRounding = 1e-9;

CodecSpec Dense(CodecKind kind, const CodecSpec& like) {
  return {.kind = kind, .error_feedback = like.error_feedback && kind != CodecKind::kExact};
}

// bf16 stands beside fp16.
auto Harshness(const CodecSpec& spec) {
  const CodecKind kind = spec.kind == CodecKind::kBf16 ? CodecKind::kFp16 : spec.kind;
  return std::tuple(kind, spec.ratio, spec.kind == CodecKind::kTopK ? spec.top_k_values : ValueKind::kFp16);
}

// The relative error of the n/ratio greatest of n normal values: sqrt of the share of their squares below t, where P(|x| > t) = 1/ratio.
double TopKErrorOfNormal(double ratio) {
  double low = 0, high = 40;
  while (high - low > 1e-6) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::numbers::sqrt2) > 1 / ratio ? low : high) = middle;
  }
  const double density = std::exp(-low * low / 2) * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // of |x|
  return std::sqrt(std::max(0.0, std::erf(low / std::numbers::sqrt2) - low * density));
}

}  // namespace

double MaxRelativeError(const CodecSpec& codec, ActivationKind kind, Direction direction, double nats) {
  if (kind == ActivationKind::kData || kind == ActivationKind::kLossInput) return 0.002;  // fp16 and bf16 pass; int8 (0.006) does not
  constexpr double kInt8Passes = 0.05, kInt4Passes = 0.15;
  if (direction == Direction::kBackward) return kInt8Passes;
  const auto bears = [&](const CodecSpec& spec) { return ExpectedLossIncrease(spec, kind, 0) <= nats * (1 + kGuardRounding); };
  if (!bears({.kind = CodecKind::kInt4})) return kInt8Passes;  // an error that int4 makes does not show that it was top-k's
  const ValueKind values = codec.kind == CodecKind::kTopK ? codec.top_k_values : ValueKind::kInt8;
  if (!bears(TopK(kMinMeasuredRatio, values))) return kInt4Passes;
  double low = kMinMeasuredRatio, high = kMaxTopKRatio;
  while (high / low > 1.001) {
    const double middle = std::sqrt(low * high);
    (bears(TopK(middle, values)) ? low : high) = middle;
  }
  // Of normal values int4 loses up to this share of what was kept, the others next to nothing.
  const double of_kept = values == ValueKind::kInt4 ? 0.12 : 0;
  const double dropped = TopKErrorOfNormal(low);
  return std::max(kInt4Passes, std::hypot(dropped, of_kept * std::sqrt(1 - dropped * dropped)));
}

std::vector<double> SplitLossBudget(double nats, std::span<const double> expected) {
  const double total = std::accumulate(expected.begin(), expected.end(), 0.0);
  std::vector<double> shares;
  for (const double cost : expected) shares.push_back(total > nats ? nats * cost / total : cost + nats - total);
  return shares;
}

std::vector<CodecSpec> LessAggressiveCodecs(const CodecSpec& spec, Direction direction) {
  std::vector<CodecSpec> codecs;
  const bool backward = direction == Direction::kBackward;
  if (spec.kind == CodecKind::kTopK && backward) {
    if (spec.top_k_values != ValueKind::kFp16) codecs.push_back(TopK(spec.ratio, ValueKind::kFp16));
    return codecs;
  }
  if (spec.kind == CodecKind::kTopK) {
    const double least = spec.top_k_values == ValueKind::kInt4 ? kMinInt4Ratio : kMinTopKRatio;
    for (double ratio = spec.ratio / 2; ratio >= least; ratio /= 2) {
      codecs.push_back(spec);
      codecs.back().ratio = ratio;
    }
  }
  for (const CodecKind kind : {CodecKind::kInt4, CodecKind::kInt8, CodecKind::kFp16, CodecKind::kExact}) {
    if (backward && GradientKind(kind) != kind) continue;
    if (Harshness(Dense(kind, spec)) < Harshness(spec)) codecs.push_back(Dense(kind, spec));
  }
  return codecs;
}

CodecSpec LessAggressiveOf(const CodecSpec& a, const CodecSpec& b) {
  CodecSpec gentler = Harshness(b) < Harshness(a) ? b : a;
  gentler.error_feedback = a.error_feedback && gentler.kind != CodecKind::kExact;
  return gentler;
}

CodecSpec CodecAfterDivergence(const CodecSpec& spec) {
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
