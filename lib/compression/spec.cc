#include "lib/compression/spec.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "lib/base/status_macros.h"
#include "lib/compression/mask.h"

namespace fusionllm::compression {
namespace {

constexpr std::array<absl::string_view, 6> kNames = {"fp32", "fp16", "bf16", "int8", "int4", "topk"};
constexpr std::array<absl::string_view, 3> kValueNames = {"fp16", "int8", "int4"};
constexpr std::array<CodecKind, 3> kValueCodecs = {CodecKind::kFp16, CodecKind::kInt8, CodecKind::kInt4};

int64_t QuantizedBlocks(int64_t n, int64_t block_size) { return (n + block_size - 1) / block_size; }

int64_t QuantizedBytes(CodecKind kind, int64_t n) {
  switch (kind) {
    case CodecKind::kFp16:
    case CodecKind::kBf16:
      return 2 * n;
    case CodecKind::kInt8:
      return 2 * QuantizedBlocks(n, kInt8BlockSize) + n;
    case CodecKind::kInt4:
      return (2 + kInt4BlockSize / 2) * QuantizedBlocks(n, kInt4BlockSize);
    case CodecKind::kExact:
    case CodecKind::kTopK:
      break;
  }
  return 4 * n;
}

absl::Status ParseTopK(absl::string_view text, absl::string_view tail, CodecSpec* spec) {
  const size_t colon = tail.find(':');
  const absl::string_view values = colon == absl::string_view::npos ? "int8" : tail.substr(colon + 1);
  const auto found = std::find(kValueNames.begin(), kValueNames.end(), values);
  if (found == kValueNames.end()) {
    return absl::InvalidArgumentError(absl::StrCat("codec '", text, "': the values of top-k are int4, int8 or fp16, not '", values, "'"));
  }
  spec->top_k_values = static_cast<ValueKind>(found - kValueNames.begin());
  if (!absl::SimpleAtod(tail.substr(0, colon), &spec->ratio)) {
    return absl::InvalidArgumentError(absl::StrCat("codec '", text, "': '", tail.substr(0, colon), "' is not a number"));
  }
  return absl::OkStatus();
}

// The shortest decimal that reads back as the same number.
std::string ShortestDecimal(double value) {
  for (int digits = 6; digits < 17; ++digits) {
    const std::string text = absl::StrFormat("%.*g", digits, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

}  // namespace

absl::string_view Name(CodecKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::string ToString(const CodecSpec& spec) {
  std::string text(Name(spec.kind));
  if (spec.kind == CodecKind::kTopK) {
    absl::StrAppend(&text, "@", ShortestDecimal(spec.ratio), ":", kValueNames[static_cast<size_t>(spec.top_k_values)]);
  }
  if (spec.error_feedback) text += "+ef";
  return text;
}

absl::StatusOr<CodecSpec> ParseCodecSpec(absl::string_view text) {
  if (text.size() > 64) return absl::InvalidArgumentError("a codec name has at most 64 characters");
  CodecSpec spec;
  absl::string_view rest = text;
  spec.error_feedback = absl::ConsumeSuffix(&rest, "+ef");
  if (absl::ConsumePrefix(&rest, "topk@")) {
    spec.kind = CodecKind::kTopK;
    FUSIONLLM_RETURN_IF_ERROR(ParseTopK(text, rest, &spec));
  } else if (rest == "topk") {
    return absl::InvalidArgumentError("codec 'topk' needs its ratio, as in 'topk@20'");
  } else {
    size_t kind = 0;
    while (kind < kNames.size() && kNames[kind] != rest) ++kind;
    if (kind == kNames.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown codec '", text, "'; known: fp32 fp16 bf16 int8 int4 topk@RATIO[:int4|:int8|:fp16]"));
    }
    spec.kind = static_cast<CodecKind>(kind);
  }
  FUSIONLLM_RETURN_IF_ERROR(Validate(spec));
  return spec;
}

absl::Status Validate(const CodecSpec& spec) {
  if (static_cast<size_t>(spec.kind) >= kNames.size()) {
    return absl::InvalidArgumentError(absl::StrCat("codec kind ", static_cast<int>(spec.kind), " does not exist"));
  }
  if (spec.kind == CodecKind::kTopK && !(spec.ratio >= 1 && spec.ratio <= kMaxTopKRatio)) {
    return absl::InvalidArgumentError(absl::StrCat("top-k ratio ", spec.ratio, " is outside [1, ", kMaxTopKRatio, "]"));
  }
  if (static_cast<size_t>(spec.top_k_values) >= kValueNames.size()) {
    return absl::InvalidArgumentError(absl::StrCat("top-k values of kind ", static_cast<int>(spec.top_k_values), " do not exist"));
  }
  if (spec.kind != CodecKind::kTopK && spec.ratio != 1) {
    return absl::InvalidArgumentError(absl::StrCat("codec ", Name(spec.kind), " takes no ratio, but has ", spec.ratio));
  }
  if (spec.kind == CodecKind::kExact && spec.error_feedback) {
    return absl::InvalidArgumentError("codec fp32 loses nothing, so it takes no error feedback");
  }
  return absl::OkStatus();
}

int64_t KeptElements(double ratio, int64_t n) {
  if (n == 0) return 0;
  const auto kept = static_cast<int64_t>(std::ceil(static_cast<double>(n) / ratio));
  return std::min(n, std::max<int64_t>(1, kept));
}

CodecKind GradientKind(CodecKind forward) { return forward == CodecKind::kInt4 ? CodecKind::kInt8 : forward; }

ValueKind GradientValueKind(ValueKind forward) { return forward == ValueKind::kInt4 ? ValueKind::kInt8 : forward; }

int64_t EncodedBytes(const CodecSpec& spec, int64_t n, Direction direction, int64_t bytes_of_element) {
  if (spec.kind == CodecKind::kExact) return kHeaderBytes + bytes_of_element * n;
  if (spec.kind != CodecKind::kTopK) {
    return kHeaderBytes + QuantizedBytes(direction == Direction::kForward ? spec.kind : GradientKind(spec.kind), n);
  }
  const int64_t kept = KeptElements(spec.ratio, n);
  const ValueKind kind = direction == Direction::kForward ? spec.top_k_values : GradientValueKind(spec.top_k_values);
  const int64_t values = QuantizedBytes(kValueCodecs[static_cast<size_t>(kind)], kept);
  return kHeaderBytes + values + (direction == Direction::kForward ? Mask::SerializedBytes(n, kept) : 0);
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
