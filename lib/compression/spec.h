// Names a codec for the tensors that cross a cut edge, and tells what a message will weigh before any data exists.
//
// Text forms: "fp32" (exact), "fp16", "bf16", "int8", "int4", "topk@20:int8" (keeps one of 20 values, the values as int8),
// "topk@20:int4", "topk@20:fp16"; "topk@20" means int8 values. "+ef" behind a lossy form turns error feedback on: "int4+ef".
// Pure functions and plain values; thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/compression/codec_kind.h"

namespace fusionllm::compression {

// Forward: an activation, from the stage that makes it. Backward: its gradient, on the way back.
enum class Direction : uint8_t { kForward, kBackward };

inline constexpr int64_t kMaxElements = int64_t{1} << 30;  // of one tensor
inline constexpr double kMaxTopKRatio = 1e6;
// Lossy codecs refuse greater magnitudes (and NaN): beyond it a block's scale times its largest code could overflow to infinity.
inline constexpr float kMaxMagnitude = 0x1p120f;

inline constexpr int64_t kHeaderBytes = 16;  // in front of every message

struct CodecSpec {
  CodecKind kind = CodecKind::kExact;
  // Top-k only, 1 otherwise: size / kept, 1 to kMaxTopKRatio. The wire ratio is another one (a kept value also has an index and fewer
  // bits).
  double ratio = 1;
  ValueKind top_k_values = ValueKind::kInt8;  // top-k only
  // Adds what the last forward message of the same encoder lost to the next one. Off by default: over batches it carries other samples'
  // errors and hurts (docs/design/codec-limits.md). Never applied to gradients.
  bool error_feedback = false;

  bool operator==(const CodecSpec&) const = default;
};

// Shorthands.
inline CodecSpec Exact() { return {}; }
inline CodecSpec TopK(double ratio, ValueKind values = ValueKind::kInt8) { return {CodecKind::kTopK, ratio, values}; }

absl::string_view Name(CodecKind kind);  // without parameters: "int8", "topk"
// Whether a codec sends a selection of the values and takes a ratio; the others send all of them.
bool IsSparse(CodecKind kind);
std::string ToString(const CodecSpec& spec);
// InvalidArgument names the text and what is wrong with it. Parse(ToString(s)) == s for every valid s.
absl::StatusOr<CodecSpec> ParseCodecSpec(absl::string_view text);
// InvalidArgument for a ratio outside its range or error feedback on an exact codec.
absl::Status Validate(const CodecSpec& spec);

// Values a top-k edge of n elements keeps: ceil(n / ratio), so that size / kept never exceeds the ratio; at least 1 for n > 0.
int64_t KeptElements(double ratio, int64_t n);

// The kind that a quantizer uses for the gradient of an edge: int4 -> int8 (gradients need more bits than activations), others unchanged.
// A top-k edge stays kTopK: its gradient is what the forward's mask selects, without indices.
CodecKind GradientKind(CodecKind forward);
// What the gradient of a top-k edge travels as whose kept values are `forward`: int4 -> int8, others unchanged.
ValueKind GradientValueKind(ValueKind forward);

// The exact size of the message that Encode makes of n elements, header included. n in [0, kMaxElements], spec valid. bytes_of_element:
// 4, or 2 of a bf16 tensor, which the exact codec sends as it is (EncodeBf16); no other codec cares.
int64_t EncodedBytes(const CodecSpec& spec, int64_t n, Direction direction, int64_t bytes_of_element = 4);

// The most that EncodeIntegers makes of n ids, header included, that all lie in [0, below); below <= 0: unknown.
int64_t EncodedIntegerBytes(int64_t n, int64_t below);

// Dense fp32 bytes over encoded bytes, forward and backward together; for n = 0 it is 1. Against 16-bit values it would be half.
double WireRatio(const CodecSpec& spec, int64_t n);

}  // namespace fusionllm::compression
