#include "lib/compression/codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/compression/header.h"
#include "lib/compression/quantize.h"

namespace fusionllm::compression {
namespace {

constexpr int kLeastHalfExponent = -126;    // 2^e and 2^-e are normal floats between these
constexpr int kGreatestHalfExponent = 106;  // 65504 · 2^106 stays below infinity; kMaxMagnitude needs no more

Layout DenseLayout(CodecKind kind) {
  switch (kind) {
    case CodecKind::kFp16:
      return Layout::kFp16;
    case CodecKind::kBf16:
      return Layout::kBf16;
    case CodecKind::kInt8:
      return Layout::kInt8;
    case CodecKind::kInt4:
      return Layout::kInt4;
    case CodecKind::kExact:
    case CodecKind::kTopK:
      break;
  }
  return Layout::kExact;
}

Layout ValueLayout(uint8_t values) { return values == 0 ? Layout::kFp16 : Layout::kInt8; }

size_t ScaleBytes(Layout layout, size_t n) {
  const size_t block = layout == Layout::kInt8 ? kInt8BlockSize : kInt4BlockSize;
  return 2 * ((n + block - 1) / block);
}

size_t PayloadBytes(Layout layout, size_t n) {
  switch (layout) {
    case Layout::kFp16:
    case Layout::kBf16:
      return 2 * n;
    case Layout::kInt8:
      return ScaleBytes(layout, n) + n;
    case Layout::kInt4:
      return ScaleBytes(layout, n) * (2 + kInt4BlockSize / 2) / 2;
    default:
      return 4 * n;
  }
}

// The e that puts the greatest magnitude into [2^14, 2^15) once multiplied by 2^-e.
int HalfExponent(uint32_t greatest_magnitude) {
  const int exponent = static_cast<int>(greatest_magnitude >> 23) - 127 - 14;
  return std::clamp(exponent, kLeastHalfExponent, kGreatestHalfExponent);
}

// Writes the values in a layout of quantized or cast values and returns the header's parameter for it.
absl::StatusOr<int32_t> WriteValues(Layout layout, std::span<const float> values, std::byte* out) {
  const size_t n = values.size();
  uint32_t greatest = 0;
  int32_t parameter = 0;
  switch (layout) {
    case Layout::kFp16:
      greatest = GreatestMagnitude(values.data(), n);
      if (greatest > kMaxMagnitudeBits) break;
      parameter = HalfExponent(greatest);
      FloatToHalf(values.data(), n, std::ldexp(1.0f, -parameter), out);
      break;
    case Layout::kBf16:
      greatest = FloatToBfloat(values.data(), n, out);
      break;
    case Layout::kInt8:
      greatest = QuantizeInt8(values.data(), n, out, out + ScaleBytes(layout, n));
      parameter = kInt8BlockSize;
      break;
    case Layout::kInt4:
      greatest = QuantizeInt4(values.data(), n, out, out + ScaleBytes(layout, n));
      parameter = kInt4BlockSize;
      break;
    default:
      if (n > 0) std::memcpy(out, values.data(), 4 * n);
  }
  if (greatest > kMaxMagnitudeBits) return UnencodableError(values, FindUnencodable(values.data(), n));
  return parameter;
}

absl::Status ReadValues(Layout layout, int32_t parameter, std::span<const std::byte> payload, std::span<float> out) {
  const size_t n = out.size();
  if (payload.size() != PayloadBytes(layout, n)) {
    return absl::InvalidArgumentError(
        absl::StrCat("compressed tensor: ", n, " values take ", PayloadBytes(layout, n), " bytes, the message has ", payload.size()));
  }
  bool finite = true;
  int32_t block = 0;
  switch (layout) {
    case Layout::kFp16:
      if (parameter < kLeastHalfExponent || parameter > kGreatestHalfExponent) {
        return absl::InvalidArgumentError(absl::StrCat("compressed tensor: byte 12: exponent ", parameter, " is out of range"));
      }
      finite = HalfToFloat(payload.data(), n, std::ldexp(1.0f, parameter), out.data());
      break;
    case Layout::kBf16:
      finite = BfloatToFloat(payload.data(), n, out.data());
      break;
    case Layout::kInt8:
      block = kInt8BlockSize;
      if (parameter == block) finite = DequantizeInt8(payload.data(), payload.data() + ScaleBytes(layout, n), n, out.data());
      break;
    case Layout::kInt4:
      block = kInt4BlockSize;
      if (parameter == block) finite = DequantizeInt4(payload.data(), payload.data() + ScaleBytes(layout, n), n, out.data());
      break;
    default:
      if (n > 0) std::memcpy(out.data(), payload.data(), 4 * n);
  }
  if (block != 0 && parameter != block) {
    return absl::InvalidArgumentError(absl::StrCat("compressed tensor: byte 12: blocks of ", block, " are known, not of ", parameter));
  }
  if (!finite) return absl::InvalidArgumentError("compressed tensor: a scale or value is infinite, NaN or out of range");
  return absl::OkStatus();
}

absl::Status EncodeDense(CodecKind kind, Direction direction, std::span<const float> values, std::vector<std::byte>* out) {
  const Layout layout = DenseLayout(kind);
  out->resize(kHeaderBytes + PayloadBytes(layout, values.size()));
  FUSIONLLM_ASSIGN_OR_RETURN(const int32_t parameter, WriteValues(layout, values, out->data() + kHeaderBytes));
  WriteHeader({.layout = layout, .direction = direction, .elements = static_cast<uint32_t>(values.size()), .parameter = parameter},
              out->data());
  return absl::OkStatus();
}

// A top-k message (with its mask) or a masked one (without).
absl::Status EncodeKept(const CodecSpec& spec, Layout layout, Direction direction, const Mask& mask, std::span<const float> kept,
                        std::vector<std::byte>* out) {
  const auto values = static_cast<uint8_t>(spec.top_k_values);
  const size_t mask_bytes = layout == Layout::kTopK ? Mask::SerializedBytes(mask.elements(), mask.kept()) : 0;
  out->resize(kHeaderBytes + mask_bytes + PayloadBytes(ValueLayout(values), kept.size()));
  std::byte* payload = out->data() + kHeaderBytes;
  if (layout == Layout::kTopK) mask.Serialize(payload);
  FUSIONLLM_ASSIGN_OR_RETURN(const int32_t parameter, WriteValues(ValueLayout(values), kept, payload + mask_bytes));
  WriteHeader({.layout = layout,
               .direction = direction,
               .values = values,
               .elements = static_cast<uint32_t>(mask.elements()),
               .kept = static_cast<uint32_t>(kept.size()),
               .parameter = parameter},
              out->data());
  return absl::OkStatus();
}

absl::Status EncodeForward(const CodecSpec& spec, std::span<const float> values, SelectionScratch* scratch, std::vector<std::byte>* out,
                           Mask* mask_out) {
  if (spec.kind != CodecKind::kTopK) return EncodeDense(spec.kind, Direction::kForward, values, out);
  const auto n = static_cast<int64_t>(values.size());
  FUSIONLLM_RETURN_IF_ERROR(SelectGreatest(values, KeptElements(spec.ratio, n), scratch));
  Mask mask = Mask::FromIndices(n, scratch->indices);
  FUSIONLLM_RETURN_IF_ERROR(EncodeKept(spec, Layout::kTopK, Direction::kForward, mask, scratch->values, out));
  if (mask_out != nullptr) *mask_out = std::move(mask);
  return absl::OkStatus();
}

absl::Status EncodeWithFeedback(const CodecSpec& spec, std::span<const float> values, EncoderState* state, std::vector<std::byte>* out,
                                Mask* mask_out) {
  if (!state->residual.empty() && state->residual.size() != values.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("error feedback: the residual has ", state->residual.size(), " elements, the tensor ", values.size()));
  }
  state->corrected.assign(values.begin(), values.end());
  for (size_t i = 0; i < state->residual.size(); ++i) state->corrected[i] += state->residual[i];
  FUSIONLLM_RETURN_IF_ERROR(EncodeForward(spec, state->corrected, &state->selection, out, mask_out));
  state->residual.resize(values.size());
  // What the receiver sees comes from the same decoder, so the residual is exact.
  FUSIONLLM_RETURN_IF_ERROR(Decode(Direction::kForward, *out, nullptr, state->residual, nullptr));
  for (size_t i = 0; i < values.size(); ++i) state->residual[i] = state->corrected[i] - state->residual[i];
  return absl::OkStatus();
}

absl::Status CheckMask(bool needed, const Mask* mask, size_t elements, absl::string_view what) {
  const bool given = mask != nullptr && !mask->dense();
  if (needed && !given && elements > 0) return absl::InvalidArgumentError(absl::StrCat(what, " needs the mask of its forward message"));
  if (!needed && given) return absl::InvalidArgumentError(absl::StrCat(what, " takes no mask, but one was given"));
  if (needed && given && mask->elements() != static_cast<int64_t>(elements)) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": the mask is for ", mask->elements(), " elements, the tensor has ", elements));
  }
  return absl::OkStatus();
}

absl::Status DecodeMasked(const Header& header, std::span<const std::byte> payload, const Mask* mask, std::span<float> out) {
  static const Mask kNone;
  const Mask& used = mask == nullptr ? kNone : *mask;
  if (static_cast<int64_t>(header.kept) != used.kept()) {
    return absl::InvalidArgumentError(
        absl::StrCat("compressed tensor: gradient of ", header.kept, " values, the forward message kept ", used.kept()));
  }
  if (payload.size() != PayloadBytes(ValueLayout(header.values), header.kept)) {
    return absl::InvalidArgumentError(
        absl::StrCat("compressed tensor: a payload of ", payload.size(), " bytes is not ", header.kept, " values"));
  }
  std::vector<float> kept(header.kept);
  FUSIONLLM_RETURN_IF_ERROR(ReadValues(ValueLayout(header.values), header.parameter, payload, kept));
  used.Scatter(kept, out);
  return absl::OkStatus();
}

absl::Status DecodeTopK(const Header& header, std::span<const std::byte> payload, std::span<float> out, Mask* mask_out) {
  const auto mask_bytes = static_cast<size_t>(Mask::SerializedBytes(header.elements, header.kept));
  const size_t value_bytes = PayloadBytes(ValueLayout(header.values), header.kept);
  if (payload.size() != mask_bytes + value_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("compressed tensor: ", header.kept, " of ", header.elements, " elements take ",
                                                   mask_bytes + value_bytes, " bytes, the message has ", payload.size()));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(Mask mask, Mask::Parse(header.elements, header.kept, payload.first(mask_bytes)));
  std::vector<float> kept(header.kept);
  FUSIONLLM_RETURN_IF_ERROR(ReadValues(ValueLayout(header.values), header.parameter, payload.subspan(mask_bytes), kept));
  mask.Scatter(kept, out);
  if (mask_out != nullptr) *mask_out = std::move(mask);
  return absl::OkStatus();
}

absl::Status CheckElements(size_t n) {
  if (n <= static_cast<size_t>(kMaxElements)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a tensor of ", n, " elements exceeds the limit of ", kMaxElements));
}

}  // namespace

absl::Status Encode(const CodecSpec& spec, Direction direction, std::span<const float> values, const Mask* mask, EncoderState* state,
                    std::vector<std::byte>* out, Mask* mask_out) {
  FUSIONLLM_RETURN_IF_ERROR(Validate(spec));
  FUSIONLLM_RETURN_IF_ERROR(CheckElements(values.size()));
  const bool masked = direction == Direction::kBackward && spec.kind == CodecKind::kTopK;
  FUSIONLLM_RETURN_IF_ERROR(CheckMask(masked, mask, values.size(), masked ? "a top-k gradient" : "this message"));
  if (mask_out != nullptr) *mask_out = Mask();
  EncoderState temporary;
  EncoderState* used = state == nullptr ? &temporary : state;
  if (masked) {
    static const Mask kNone;
    const Mask& chosen = mask == nullptr ? kNone : *mask;
    used->corrected.resize(chosen.kept());
    chosen.Gather(values, used->corrected);
    // Checked here to name an element by its place in the tensor, not among the kept.
    const size_t bad = FindUnencodable(used->corrected.data(), used->corrected.size());
    if (bad < used->corrected.size()) return UnencodableError(values, chosen.Indices()[bad]);
    return EncodeKept(spec, Layout::kMasked, direction, chosen, used->corrected, out);
  }
  if (direction == Direction::kBackward) return EncodeDense(GradientKind(spec.kind), direction, values, out);
  if (!spec.error_feedback) return EncodeForward(spec, values, &used->selection, out, mask_out);
  if (state == nullptr) return absl::InvalidArgumentError("error feedback needs an encoder state to keep its residual");
  return EncodeWithFeedback(spec, values, state, out, mask_out);
}

absl::Status Decode(Direction direction, std::span<const std::byte> encoded, const Mask* mask, std::span<float> out, Mask* mask_out) {
  FUSIONLLM_RETURN_IF_ERROR(CheckElements(out.size()));
  FUSIONLLM_ASSIGN_OR_RETURN(const Header header, ReadHeader(encoded, direction, out.size()));
  if (header.layout == Layout::kIntegers) return absl::InvalidArgumentError("compressed tensor: integers where floats were expected");
  const bool masked = header.layout == Layout::kMasked;
  if (masked && direction == Direction::kForward)
    return absl::InvalidArgumentError("compressed tensor: a forward message cannot be masked");
  if (header.layout == Layout::kTopK && direction == Direction::kBackward) {
    return absl::InvalidArgumentError("compressed tensor: a gradient with a selection of its own would ruin training");
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckMask(masked, mask, out.size(), masked ? "a top-k gradient" : "this message"));
  if (mask_out != nullptr) *mask_out = Mask();
  const std::span<const std::byte> payload = encoded.subspan(kHeaderBytes);
  if (masked) return DecodeMasked(header, payload, mask, out);
  if (header.layout == Layout::kTopK) return DecodeTopK(header, payload, out, mask_out);
  return ReadValues(header.layout, header.parameter, payload, out);
}

}  // namespace fusionllm::compression
