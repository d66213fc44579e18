#include "lib/compression/codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/compression/header.h"
#include "lib/compression/layout.h"
#include "lib/compression/quantize.h"

namespace fusionllm::compression {
namespace {

// Writes the values in a layout of quantized or cast values and returns the header's parameter for it.
absl::StatusOr<int32_t> WriteValues(Layout layout, std::span<const float> values, std::byte* out) {
  const size_t n = values.size();
  uint32_t greatest = 0;
  switch (layout) {
    case Layout::kFp16:
      greatest = GreatestMagnitude(values.data(), n);
      if (greatest > kMaxMagnitudeBits) break;
      FloatToHalf(values.data(), n, std::ldexp(1.0f, -HalfExponent(greatest)), out);
      break;
    case Layout::kBf16:
      greatest = FloatToBfloat(values.data(), n, out);
      break;
    case Layout::kInt8:
      greatest = QuantizeInt8(values.data(), n, out, out + ScaleBytes(layout, n));
      break;
    case Layout::kInt4:
      greatest = QuantizeInt4(values.data(), n, out, out + ScaleBytes(layout, n));
      break;
    default:
      if (n > 0) std::memcpy(out, values.data(), 4 * n);
  }
  if (greatest > kMaxMagnitudeBits) return UnencodableError(values, FindUnencodable(values.data(), n));
  return ParameterOf(layout, greatest);
}

absl::Status ReadValues(const Message& message, std::span<float> out) {
  FUSIONLLM_RETURN_IF_ERROR(CheckParameter(message.layout, message.header.parameter));
  const std::byte* in = message.values.data();
  const size_t n = out.size();
  bool finite = true;
  switch (message.layout) {
    case Layout::kFp16:
      finite = HalfToFloat(in, n, std::ldexp(1.0f, message.header.parameter), out.data());
      break;
    case Layout::kBf16:
      finite = BfloatToFloat(in, n, out.data());
      break;
    case Layout::kInt8:
      finite = DequantizeInt8(in, in + ScaleBytes(message.layout, n), n, out.data());
      break;
    case Layout::kInt4:
      finite = DequantizeInt4(in, in + ScaleBytes(message.layout, n), n, out.data());
      break;
    default:
      if (n > 0) std::memcpy(out.data(), in, 4 * n);
  }
  return finite ? absl::OkStatus() : ValuesNotFiniteError();
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
  const ValueKind values = direction == Direction::kForward ? spec.top_k_values : GradientValueKind(spec.top_k_values);
  const size_t mask_bytes = layout == Layout::kTopK ? Mask::SerializedBytes(mask.elements(), mask.kept()) : 0;
  out->resize(kHeaderBytes + mask_bytes + PayloadBytes(ValueLayout(values), kept.size()));
  std::byte* payload = out->data() + kHeaderBytes;
  if (layout == Layout::kTopK) mask.Serialize(payload);
  FUSIONLLM_ASSIGN_OR_RETURN(const int32_t parameter, WriteValues(ValueLayout(values), kept, payload + mask_bytes));
  WriteHeader({.layout = layout,
               .direction = direction,
               .values = static_cast<uint8_t>(values),
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
  FUSIONLLM_RETURN_IF_ERROR(SelectTopK(values, KeptElements(spec.ratio, n), scratch));
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

}  // namespace

absl::Status Encode(const CodecSpec& spec, Direction direction, std::span<const float> values, const Mask* mask, EncoderState* state,
                    std::vector<std::byte>* out, Mask* mask_out) {
  static const Mask kNone;
  const Mask& chosen = mask == nullptr ? kNone : *mask;
  FUSIONLLM_RETURN_IF_ERROR(CheckEncode(spec, direction, values.size(), {.elements = chosen.elements(), .kept = chosen.kept()}));
  if (mask_out != nullptr) *mask_out = Mask();
  EncoderState temporary;
  EncoderState* used = state == nullptr ? &temporary : state;
  if (direction == Direction::kBackward && spec.kind == CodecKind::kTopK) {
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
  static const Mask kNone;
  const Mask& forward = mask == nullptr ? kNone : *mask;
  FUSIONLLM_ASSIGN_OR_RETURN(const Message message,
                             ReadMessage(direction, encoded, out.size(), {.elements = forward.elements(), .kept = forward.kept()}));
  if (mask_out != nullptr) *mask_out = Mask();
  const bool masked = message.header.layout == Layout::kMasked;
  if (!masked && message.header.layout != Layout::kTopK) return ReadValues(message, out);
  Mask carried;
  if (!masked) {
    FUSIONLLM_ASSIGN_OR_RETURN(carried, Mask::Parse(message.header.elements, message.header.kept, message.mask));
  }
  std::vector<float> kept(message.count);
  FUSIONLLM_RETURN_IF_ERROR(ReadValues(message, kept));
  (masked ? forward : carried).Scatter(kept, out);
  if (!masked && mask_out != nullptr) *mask_out = std::move(carried);
  return absl::OkStatus();
}

absl::StatusOr<MessageFormat> MessageFormatOf(Direction direction, std::span<const std::byte> message, size_t elements) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Header header, ReadHeader(message, direction, elements));
  const auto dense = [](CodecKind kind) { return MessageFormat{.spec = {.kind = kind}}; };
  switch (header.layout) {
    case Layout::kFp16:
      return dense(CodecKind::kFp16);
    case Layout::kBf16:
      return dense(CodecKind::kBf16);
    case Layout::kInt8:
      return dense(CodecKind::kInt8);
    case Layout::kInt4:
      return dense(CodecKind::kInt4);
    case Layout::kTopK:
    case Layout::kMasked: {
      const double ratio = header.kept == 0 ? 1 : static_cast<double>(header.elements) / header.kept;
      return MessageFormat{.spec = TopK(ratio, static_cast<ValueKind>(header.values))};
    }
    case Layout::kNativeBf16:
      return MessageFormat{.bfloats = true};
    default:
      return dense(CodecKind::kExact);
  }
}

}  // namespace fusionllm::compression
