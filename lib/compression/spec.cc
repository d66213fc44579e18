#include "lib/compression/spec.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/status_macros.h"
#include "lib/compression/registry.h"

namespace fusionllm::compression {

absl::string_view Name(CodecKind kind) { return CodecOf(kind).traits.name; }

bool IsSparse(CodecKind kind) { return CodecOf(kind).dense() == nullptr; }

std::string ToString(const CodecSpec& spec) {
  const std::string parameters = CodecOf(spec.kind).Parameters(spec);
  return absl::StrCat(Name(spec.kind), parameters.empty() ? "" : "@", parameters, spec.error_feedback ? "+ef" : "");
}

absl::StatusOr<CodecSpec> ParseCodecSpec(absl::string_view text) {
  if (text.size() > 64) return absl::InvalidArgumentError("a codec name has at most 64 characters");
  CodecSpec spec;
  absl::string_view rest = text;
  spec.error_feedback = absl::ConsumeSuffix(&rest, "+ef");
  const size_t at = rest.find('@');
  const Codec* const codec = FindCodec(rest.substr(0, at));
  if (codec == nullptr) return UnknownCodecError(text);
  spec.kind = codec->traits.kind;
  std::optional<absl::string_view> parameters;
  if (at != absl::string_view::npos) parameters = rest.substr(at + 1);
  FUSIONLLM_RETURN_IF_ERROR(codec->ParseParameters(text, parameters, &spec));
  FUSIONLLM_RETURN_IF_ERROR(Validate(spec));
  return spec;
}

absl::Status Validate(const CodecSpec& spec) {
  if (static_cast<size_t>(spec.kind) >= Codecs().size()) {
    return absl::InvalidArgumentError(absl::StrCat("codec kind ", static_cast<int>(spec.kind), " does not exist"));
  }
  FUSIONLLM_RETURN_IF_ERROR(CodecOf(spec.kind).CheckParameters(spec));
  if (FindValueCodec(spec.top_k_values) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("top-k values of kind ", static_cast<int>(spec.top_k_values), " do not exist"));
  }
  if (spec.kind == CodecKind::kExact && spec.error_feedback) {
    return absl::InvalidArgumentError("codec fp32 loses nothing, so it takes no error feedback");
  }
  return absl::OkStatus();
}

CodecKind GradientKind(CodecKind forward) { return CodecOf(forward).traits.gradient; }

ValueKind GradientValueKind(ValueKind forward) {
  const DenseCodec& values = *FindValueCodec(forward);
  return CodecOf(values.traits.gradient).traits.values.value_or(forward);
}

int64_t EncodedBytes(const CodecSpec& spec, int64_t n, Direction direction, int64_t bytes_of_element) {
  return kHeaderBytes + CodecOf(spec.kind).PayloadBytes(spec, n, direction, bytes_of_element);
}

int64_t EncodedIntegerBytes(int64_t n, int64_t below) {
  const int width = below <= 0 ? 4 : below <= (1 << 8) ? 1 : below <= (1 << 16) ? 2 : 4;
  return kHeaderBytes + width * n;
}

double WireRatio(const CodecSpec& spec, int64_t n) {
  if (n == 0) return 1;
  const int64_t encoded = EncodedBytes(spec, n, Direction::kForward) + EncodedBytes(spec, n, Direction::kBackward);
  return 8.0 * static_cast<double>(n) / static_cast<double>(encoded);
}

}  // namespace fusionllm::compression
