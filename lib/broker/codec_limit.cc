#include "lib/broker/codec_limit.h"

#include <algorithm>

namespace fusionllm::broker {
namespace {

using compression::CodecKind;
using compression::CodecSpec;

job::Codec CodecOf(CodecKind kind) {
  switch (kind) {
    case CodecKind::kExact:
      return job::Codec::kFp32;
    case CodecKind::kFp16:
      return job::Codec::kFp16;
    case CodecKind::kBf16:
      return job::Codec::kBf16;
    case CodecKind::kInt8:
      return job::Codec::kInt8;
    case CodecKind::kInt4:
      return job::Codec::kInt4;
    case CodecKind::kTopK:
      return job::Codec::kTopk;
  }
  return job::Codec::kFp32;
}

// Of a codec that names one; kAuto stands for all levels.
CodecKind KindOf(job::Codec codec) {
  for (const CodecKind kind : {CodecKind::kExact, CodecKind::kFp16, CodecKind::kBf16, CodecKind::kInt8, CodecKind::kInt4}) {
    if (codec == CodecOf(kind)) return kind;
  }
  return CodecKind::kTopK;
}

CodecKind KindOf(job::TiedGradients choice) {
  switch (choice) {
    case job::TiedGradients::kBf16:
      return CodecKind::kBf16;
    case job::TiedGradients::kInt8:
      return CodecKind::kInt8;
    case job::TiedGradients::kInt4:
      return CodecKind::kInt4;
    case job::TiedGradients::kAuto:
    case job::TiedGradients::kFp32:
      break;
  }
  return CodecKind::kExact;
}

// The most aggressive one that is not beyond the kind.
job::TiedGradients TiedOf(CodecKind kind) {
  switch (kind) {
    case CodecKind::kExact:
    case CodecKind::kFp16:
      return job::TiedGradients::kFp32;
    case CodecKind::kBf16:
      return job::TiedGradients::kBf16;
    case CodecKind::kInt8:
      return job::TiedGradients::kInt8;
    case CodecKind::kInt4:
    case CodecKind::kTopK:
      break;
  }
  return job::TiedGradients::kInt4;
}

}  // namespace

std::optional<CodecSpec> MostAggressiveCodec(const PlanSummary& plan) {
  CodecSpec most_aggressive;
  const auto take = [&](const std::string& codec) {
    const absl::StatusOr<CodecSpec> spec = compression::ParseCodecSpec(codec);
    if (spec.ok() && std::pair(spec->kind, spec->ratio) > std::pair(most_aggressive.kind, most_aggressive.ratio)) most_aggressive = *spec;
  };
  for (const PlannedLink& link : plan.links) take(link.codec);
  for (const std::string& codec : plan.tied_codecs) take(codec);
  if (most_aggressive.kind == CodecKind::kExact) return std::nullopt;
  return most_aggressive;
}

job::Compression WithCodecLimit(job::Compression compression, const CodecSpec& limit) {
  if (compression.policy == job::CompressionPolicy::kNone) return compression;
  // auto keeps within limit and codec by itself.
  if (compression.tied_gradients != job::TiedGradients::kAuto && KindOf(compression.tied_gradients) > limit.kind) {
    compression.tied_gradients = TiedOf(limit.kind);
  }
  if (limit.kind == CodecKind::kExact) {
    compression.policy = job::CompressionPolicy::kNone;
  } else if (limit.kind == CodecKind::kTopK) {
    compression.ratio = std::min(compression.ratio, limit.ratio);
  } else if (compression.codec == job::Codec::kAuto) {
    compression.limit = CodecOf(std::min(limit.kind, KindOf(compression.limit)));
  } else {
    compression.codec = CodecOf(std::min(limit.kind, KindOf(compression.codec)));
  }
  return compression;
}

}  // namespace fusionllm::broker
