#include "lib/compression/codec_guard.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <tuple>

#include "lib/compression/loss_prior.h"
#include "lib/compression/registry.h"

namespace fusionllm::compression {
namespace {

using opdag::ActivationKind;

constexpr double kMinMeasuredRatio = 2;  // below, the prior is no more than a line to nothing
constexpr double kGuardRounding = 1e-9;

CodecSpec Dense(CodecKind kind, const CodecSpec& like) {
  return {.kind = kind, .error_feedback = like.error_feedback && kind != CodecKind::kExact};
}

auto Harshness(const CodecSpec& spec) {
  const CodecKind values = IsSparse(spec.kind) ? FindValueCodec(spec.top_k_values)->traits.kind : CodecKind::kExact;
  return std::tuple(CodecOf(spec.kind).traits.level, spec.ratio, values);
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
  const auto bears = [&](const CodecSpec& spec) {
    const double cost = ExpectedLossIncrease(spec, kind, 0);
    return cost == 0 || cost <= nats * (1 + kGuardRounding);
  };
  double of_dense = 0;
  bool bears_all = true;
  for (const Codec* dense : Codecs()) {
    if (dense->traits.tolerated_error == 0) continue;
    const bool passes =
        direction == Direction::kBackward ? dense->traits.gradient == dense->traits.kind : bears({.kind = dense->traits.kind});
    if (passes) of_dense = std::max(of_dense, dense->traits.tolerated_error);
    bears_all = bears_all && passes;
  }
  // An error that a dense codec makes does not show that it was top-k's.
  if (direction == Direction::kBackward || !bears_all) return of_dense;
  const ValueKind values = IsSparse(codec.kind) ? codec.top_k_values : ValueKind::kInt8;
  if (!bears(TopK(kMinMeasuredRatio, values))) return of_dense;
  double low = kMinMeasuredRatio, high = kMaxTopKRatio;
  while (high / low > 1.001) {
    const double middle = std::sqrt(low * high);
    (bears(TopK(middle, values)) ? low : high) = middle;
  }
  const double of_kept = FindValueCodec(values)->traits.error_of_normal;
  const double dropped = TopKErrorOfNormal(low);
  return std::max(of_dense, std::hypot(dropped, of_kept * std::sqrt(1 - dropped * dropped)));
}

std::vector<double> SplitLossBudget(double nats, std::span<const double> expected) {
  const double total = std::accumulate(expected.begin(), expected.end(), 0.0);
  std::vector<double> shares;
  for (const double cost : expected) shares.push_back(total > nats ? nats * cost / total : cost + nats - total);
  return shares;
}

std::vector<CodecSpec> LessAggressiveCodecs(const CodecSpec& spec, Direction direction) {
  const bool backward = direction == Direction::kBackward;
  std::vector<CodecSpec> codecs = CodecOf(spec.kind).LessAggressiveVariants(spec, direction);
  if (backward && IsSparse(spec.kind)) return codecs;  // under the mask whatever it loses
  const std::span<const Codec* const> all = Codecs();
  for (auto codec = all.rbegin(); codec != all.rend(); ++codec) {
    const CodecTraits& traits = (*codec)->traits;
    if (!traits.automatic && traits.kind != CodecKind::kExact) continue;
    if (backward && traits.gradient != traits.kind) continue;
    if (Harshness(Dense(traits.kind, spec)) < Harshness(spec)) codecs.push_back(Dense(traits.kind, spec));
  }
  return codecs;
}

CodecSpec LessAggressiveOf(const CodecSpec& a, const CodecSpec& b) {
  CodecSpec gentler = Harshness(b) < Harshness(a) ? b : a;
  gentler.error_feedback = a.error_feedback && gentler.kind != CodecKind::kExact;
  return gentler;
}

CodecSpec CodecAfterDivergence(const CodecSpec& spec) { return Dense(CodecOf(spec.kind).traits.after_divergence, spec); }

}  // namespace fusionllm::compression
