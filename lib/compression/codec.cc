#include "lib/compression/codec.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/compression/header.h"
#include "lib/compression/message.h"
#include "lib/compression/registry.h"

namespace fusionllm::compression {
namespace {

absl::Status EncodeWithFeedback(const CodecSpec& spec, std::span<const float> values, EncoderState* state, std::vector<std::byte>* out,
                                Mask* mask_out) {
  if (!state->residual.empty() && state->residual.size() != values.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("error feedback: the residual has ", state->residual.size(), " elements, the tensor ", values.size()));
  }
  state->corrected.assign(values.begin(), values.end());
  for (size_t i = 0; i < state->residual.size(); ++i) state->corrected[i] += state->residual[i];
  FUSIONLLM_RETURN_IF_ERROR(CodecOf(spec.kind).Encode(spec, Direction::kForward, state->corrected, Mask(), *state, out, mask_out));
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
  EncoderState& used = state == nullptr ? temporary : *state;
  if (direction == Direction::kBackward || !spec.error_feedback) {
    return CodecOf(spec.kind).Encode(spec, direction, values, chosen, used, out, mask_out);
  }
  if (state == nullptr) return absl::InvalidArgumentError("error feedback needs an encoder state to keep its residual");
  return EncodeWithFeedback(spec, values, state, out, mask_out);
}

absl::Status Decode(Direction direction, std::span<const std::byte> encoded, const Mask* mask, std::span<float> out, Mask* mask_out) {
  static const Mask kNone;
  const Mask& forward = mask == nullptr ? kNone : *mask;
  FUSIONLLM_ASSIGN_OR_RETURN(const Message message,
                             ReadMessage(direction, encoded, out.size(), {.elements = forward.elements(), .kept = forward.kept()}));
  if (mask_out != nullptr) *mask_out = Mask();
  const auto read_values = [&](std::span<float> values) {
    return message.codec->ReadValues(message.values.data(), message.header.parameter, values);
  };
  const bool masked = message.header.layout == Layout::kMasked;
  if (!masked && message.header.layout != Layout::kTopK) return read_values(out);
  Mask carried;
  if (!masked) {
    FUSIONLLM_ASSIGN_OR_RETURN(carried, Mask::Parse(message.header.elements, message.header.kept, message.mask));
  }
  std::vector<float> kept(message.count);
  FUSIONLLM_RETURN_IF_ERROR(read_values(kept));
  (masked ? forward : carried).Scatter(kept, out);
  if (!masked && mask_out != nullptr) *mask_out = std::move(carried);
  return absl::OkStatus();
}

absl::StatusOr<MessageFormat> MessageFormatOf(Direction direction, std::span<const std::byte> message, size_t elements) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Header header, ReadHeader(message, direction, elements));
  if (header.layout == Layout::kNativeBf16) return MessageFormat{.bfloats = true};
  if (header.layout == Layout::kTopK || header.layout == Layout::kMasked) {
    const double ratio = header.kept == 0 ? 1 : static_cast<double>(header.elements) / header.kept;
    return MessageFormat{.spec = TopK(ratio, static_cast<ValueKind>(header.values))};
  }
  const DenseCodec* const dense = FindDenseCodec(header.layout);
  return MessageFormat{.spec = {.kind = dense == nullptr ? CodecKind::kExact : dense->traits.kind}};
}

}  // namespace fusionllm::compression
