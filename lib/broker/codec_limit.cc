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

// Of a codec that names one; kAuto stands for the whole ladder.
CodecKind KindOf(job::Codec codec) {
  for (const CodecKind kind : {CodecKind::kExact, CodecKind::kFp16, CodecKind::kBf16, CodecKind::kInt8, CodecKind::kInt4}) {
    if (codec == CodecOf(kind)) return kind;
  }
  return CodecKind::kTopK;
}

}  // namespace

std::optional<CodecSpec> HarshestCodec(const PlanSummary& plan) {
  CodecSpec harshest;
  for (const PlannedLink& link : plan.links) {
    const absl::StatusOr<CodecSpec> spec = compression::ParseCodecSpec(link.codec);
    if (spec.ok() && std::pair(spec->kind, spec->ratio) > std::pair(harshest.kind, harshest.ratio)) harshest = *spec;
  }
  if (harshest.kind == CodecKind::kExact) return std::nullopt;
  return harshest;
}

job::Compression LimitedTo(job::Compression compression, const CodecSpec& limit) {
  if (compression.policy == job::CompressionPolicy::kNone) return compression;
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
