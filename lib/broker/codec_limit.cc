#include "lib/broker/codec_limit.h"

#include <algorithm>

#include "lib/compression/registry.h"

namespace fusionllm::broker {
namespace {

using compression::CodecKind;
using compression::CodecSpec;

// The most aggressive that gradients of tied parameters may travel as and that is not beyond the kind.
CodecKind TiedKindWithin(CodecKind kind) {
  CodecKind within = CodecKind::kExact;
  for (const compression::Codec* codec : compression::Codecs()) {
    if (codec->traits.kind <= kind && codec->traits.tied_loss_increase.has_value()) within = codec->traits.kind;
  }
  return within;
}

}  // namespace

std::optional<CodecSpec> MostAggressiveCodec(const RunPlan& plan) {
  CodecSpec most_aggressive;
  const auto take = [&](const std::string& codec) {
    const absl::StatusOr<CodecSpec> spec = compression::ParseCodecSpec(codec);
    if (spec.ok() && std::pair(spec->kind, spec->ratio) > std::pair(most_aggressive.kind, most_aggressive.ratio)) most_aggressive = *spec;
  };
  for (const plan::Link& link : plan.plan.links) take(link.codec);
  for (const plan::TiedParameter& tied : plan.plan.tied) take(tied.codec);
  if (most_aggressive.kind == CodecKind::kExact) return std::nullopt;
  return most_aggressive;
}

job::Compression WithCodecLimit(job::Compression compression, const CodecSpec& limit) {
  if (compression.policy == job::CompressionPolicy::kNone) return compression;
  // auto keeps within limit and codec by itself.
  if (std::optional<CodecKind>& tied = compression.tied_gradients.kind; tied.has_value() && *tied > limit.kind) {
    tied = TiedKindWithin(limit.kind);
  }
  if (limit.kind == CodecKind::kExact) {
    compression.policy = job::CompressionPolicy::kNone;
  } else if (compression::IsSparse(limit.kind)) {
    compression.ratio = std::min(compression.ratio, limit.ratio);
  } else {
    std::optional<CodecKind>& last = compression.codec.kind.has_value() ? compression.codec.kind : compression.limit.kind;
    last = std::min(limit.kind, last.value_or(limit.kind));
  }
  return compression;
}

}  // namespace fusionllm::broker
