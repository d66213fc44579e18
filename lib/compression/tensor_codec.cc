#include "lib/compression/tensor_codec.h"

#include <utility>

#include "lib/base/status_macros.h"
#include "lib/compression/bf16_message.h"
#include "lib/compression/header.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::compression {
namespace {

class Host final : public TensorCodec {
 public:
  tensor::Memory& memory() const override { return tensor::HostMemory(); }
  absl::Status Encode(const CodecSpec& spec, Direction direction, std::span<const float> values, const Selection* selection,
                      SenderState* state, std::vector<std::byte>* out, Selection* selection_out) override {
    return compression::Encode(spec, direction, values, selection == nullptr ? nullptr : &selection->mask,
                               state == nullptr ? nullptr : &state->host, out, selection_out == nullptr ? nullptr : &selection_out->mask);
  }
  absl::Status Decode(Direction direction, std::span<const std::byte> encoded, const Selection* selection, std::span<float> out,
                      Selection* selection_out) override {
    return compression::Decode(direction, encoded, selection == nullptr ? nullptr : &selection->mask, out,
                               selection_out == nullptr ? nullptr : &selection_out->mask);
  }
  absl::Status Upcast(std::span<const uint16_t> bfloats, std::span<float> floats) override {
    tensor::UpcastBf16(bfloats, floats.data());
    return absl::OkStatus();
  }
  absl::Status Round(std::span<const float> floats, std::span<uint16_t> bfloats) override {
    tensor::RoundToBf16(floats, bfloats.data());
    return absl::OkStatus();
  }
};

class Whole final : public PendingMessage {
 public:
  explicit Whole(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  size_t size() const override { return bytes_.size(); }
  absl::Status Finish(std::vector<std::byte>* out) override {
    *out = std::move(bytes_);
    return absl::OkStatus();
  }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

std::unique_ptr<PendingMessage> CompletedMessage(std::vector<std::byte> bytes) { return std::make_unique<Whole>(std::move(bytes)); }

absl::StatusOr<std::unique_ptr<PendingMessage>> TensorCodec::StartEncode(const CodecSpec& spec, Direction direction,
                                                                         std::span<const float> values, const Selection* selection,
                                                                         SenderState* state, Selection* selection_out) {
  std::vector<std::byte> out;
  FUSIONLLM_RETURN_IF_ERROR(Encode(spec, direction, values, selection, state, &out, selection_out));
  return CompletedMessage(std::move(out));
}

absl::StatusOr<std::unique_ptr<PendingMessage>> TensorCodec::StartEncodeIntegers(std::span<const int32_t> values) {
  std::vector<std::byte> out;
  FUSIONLLM_RETURN_IF_ERROR(EncodeIntegers(values, &out));
  return CompletedMessage(std::move(out));
}

absl::StatusOr<std::unique_ptr<PendingMessage>> TensorCodec::StartEncodeBf16(Direction direction, std::span<const uint16_t> values) {
  std::vector<std::byte> out;
  FUSIONLLM_RETURN_IF_ERROR(EncodeBf16(direction, values, &out));
  return CompletedMessage(std::move(out));
}

absl::StatusOr<std::vector<float>> TensorCodec::CopyToHost(std::span<const float> values) {
  std::vector<float> copy(values.size());
  FUSIONLLM_RETURN_IF_ERROR(memory().CopyOut(copy.data(), values.data(), values.size_bytes()));
  return copy;
}

absl::StatusOr<Mask> TensorCodec::MaskOf(const Selection& selection) {
  if (memory().on_host()) return selection.mask;
  if (selection.elements == 0) return Mask();
  std::vector<uint32_t> indices(selection.kept);
  FUSIONLLM_RETURN_IF_ERROR(memory().CopyOut(indices.data(), selection.indices.data(), indices.size() * sizeof(uint32_t)));
  return Mask::FromIndices(selection.elements, indices);
}

absl::Status TensorCodec::EncodeIntegers(std::span<const int32_t> values, std::vector<std::byte>* out) {
  if (memory().on_host()) return compression::EncodeIntegers(values, out);
  std::vector<int32_t> copy(values.size());
  FUSIONLLM_RETURN_IF_ERROR(memory().CopyOut(copy.data(), values.data(), values.size_bytes()));
  return compression::EncodeIntegers(copy, out);
}

absl::Status TensorCodec::DecodeIntegers(std::span<const std::byte> encoded, std::span<int32_t> out) {
  if (memory().on_host()) return compression::DecodeIntegers(encoded, out);
  std::vector<int32_t> decoded(out.size());
  FUSIONLLM_RETURN_IF_ERROR(compression::DecodeIntegers(encoded, decoded));
  return memory().CopyIn(out.data(), decoded.data(), out.size_bytes());
}

absl::Status TensorCodec::EncodeBf16(Direction direction, std::span<const uint16_t> values, std::vector<std::byte>* out) {
  FUSIONLLM_RETURN_IF_ERROR(BeginBf16(direction, values.size(), out));
  return memory().CopyOut(out->data() + kHeaderBytes, values.data(), values.size_bytes());
}

absl::Status TensorCodec::DecodeBf16(Direction direction, std::span<const std::byte> encoded, std::span<uint16_t> out) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::span<const std::byte> payload, ReadBf16(direction, encoded, out.size()));
  return memory().CopyIn(out.data(), payload.data(), payload.size());
}

absl::StatusOr<CompressionError> TensorCodec::Compare(Direction direction, std::span<const float> original,
                                                      std::span<const std::byte> encoded, const Selection* selection) {
  std::vector<float> copy;
  if (!memory().on_host()) {
    FUSIONLLM_ASSIGN_OR_RETURN(copy, CopyToHost(original));
    original = copy;
  }
  Mask mask;
  if (selection != nullptr) {
    FUSIONLLM_ASSIGN_OR_RETURN(mask, MaskOf(*selection));
  }
  std::vector<float> decoded(original.size());
  FUSIONLLM_RETURN_IF_ERROR(compression::Decode(direction, encoded, &mask, decoded, nullptr));
  if (mask.dense()) return CompareTensors(original, decoded);
  // What the forward message did not send has no gradient that could be lost.
  std::vector<float> kept_original(mask.kept()), kept_decoded(mask.kept());
  mask.Gather(original, kept_original);
  mask.Gather(decoded, kept_decoded);
  return CompareTensors(kept_original, kept_decoded);
}

absl::Status TensorCodec::ReadResidual(const SenderState& state, std::vector<float>* out) {
  if (memory().on_host()) {
    *out = state.host.residual;
    return absl::OkStatus();
  }
  out->resize(state.residual_elements);
  return memory().CopyOut(out->data(), state.residual.data(), out->size() * sizeof(float));
}

absl::Status TensorCodec::WriteResidual(std::span<const float> residual, SenderState* state) {
  if (memory().on_host()) {
    state->host.residual.assign(residual.begin(), residual.end());
    return absl::OkStatus();
  }
  FUSIONLLM_ASSIGN_OR_RETURN(state->residual, memory().Allocate(residual.size_bytes()));
  state->residual_elements = static_cast<int64_t>(residual.size());
  return memory().CopyIn(state->residual.data(), residual.data(), residual.size_bytes());
}

std::unique_ptr<TensorCodec> HostTensorCodec() { return std::make_unique<Host>(); }

}  // namespace fusionllm::compression
