#include "lib/compression/cuda/codec.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/compression/cuda/mask.h"
#include "lib/compression/cuda/quantize.h"
#include "lib/compression/cuda/select.h"
#include "lib/compression/header.h"
#include "lib/compression/layout.h"
#include "lib/compression/quantize.h"
#include "lib/compression/select.h"
#include "lib/kernels/cuda/bf16.h"
#include "lib/kernels/cuda/cuda.h"

namespace fusionllm::compression::cuda {
namespace {

// A message on the device: kHeaderBytes whose first four take the greatest magnitude, then, aligned, the mask and the values.
constexpr size_t kAlignment = 256;
size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

MaskSize SizeOf(const Selection* selection) {
  if (selection == nullptr) return {};
  return {.elements = selection->elements, .kept = selection->kept};
}

float* Floats(const tensor::MemoryBlock& block) { return reinterpret_cast<float*>(block.data()); }
uint32_t* Words(const tensor::MemoryBlock& block) { return reinterpret_cast<uint32_t*>(block.data()); }

class CudaTensorCodec final : public TensorCodec {
 public:
  explicit CudaTensorCodec(kernels::cuda::Device& device) : device_(device) {}

  tensor::Memory& memory() const override { return device_.memory(); }

  absl::Status Encode(const CodecSpec& spec, Direction direction, std::span<const float> values, const Selection* selection,
                      SenderState* state, std::vector<std::byte>* out, Selection* selection_out) override {
    FUSIONLLM_RETURN_IF_ERROR(CheckEncode(spec, direction, values.size(), SizeOf(selection)));
    if (selection_out != nullptr) selection_out->elements = selection_out->kept = 0;
    if (direction == Direction::kBackward) {
      if (spec.kind == CodecKind::kTopK) return EncodeMasked(spec, values, selection, out);
      return EncodeDense(GradientKind(spec.kind), direction, values, out);
    }
    if (!spec.error_feedback) {
      if (spec.kind == CodecKind::kTopK) return EncodeTopK(spec, values, nullptr, out, selection_out);
      return EncodeDense(spec.kind, direction, values, out);
    }
    if (state == nullptr) return absl::InvalidArgumentError("error feedback needs an encoder state to keep its residual");
    const auto n = static_cast<int64_t>(values.size());
    if (state->residual_elements != 0 && state->residual_elements != n) {
      return absl::InvalidArgumentError(
          absl::StrCat("error feedback: the residual has ", state->residual_elements, " elements, the tensor ", values.size()));
    }
    FUSIONLLM_RETURN_IF_ERROR(Reserve(state->corrected, values.size_bytes()));
    if (spec.kind == CodecKind::kTopK) return EncodeTopK(spec, values, state, out, selection_out);
    return EncodeDenseWithFeedback(spec, values, state, out);
  }

  absl::Status Decode(Direction direction, std::span<const std::byte> encoded, const Selection* selection, std::span<float> out,
                      Selection* selection_out) override {
    FUSIONLLM_ASSIGN_OR_RETURN(const Message message, ReadMessage(direction, encoded, out.size(), SizeOf(selection)));
    if (selection_out != nullptr) selection_out->elements = selection_out->kept = 0;
    const bool top_k = message.header.layout == Layout::kTopK, masked = message.header.layout == Layout::kMasked;
    if (top_k) FUSIONLLM_RETURN_IF_ERROR(Mask::Parse(message.header.elements, message.header.kept, message.mask).status());
    FUSIONLLM_RETURN_IF_ERROR(CheckParameter(message.layout, message.header.parameter));
    if (!ValuesAreFinite(message)) return ValuesNotFiniteError();
    const auto n = static_cast<int64_t>(out.size()), kept = static_cast<int64_t>(message.count);
    if (n == 0) return absl::OkStatus();
    if (message.layout == Layout::kExact) return memory().CopyIn(out.data(), message.values.data(), message.values.size());

    const size_t mask_room = Aligned(message.mask.size());
    FUSIONLLM_RETURN_IF_ERROR(Reserve(message_, mask_room + message.values.size()));
    std::byte* const on_device = message_.data();
    FUSIONLLM_RETURN_IF_ERROR(memory().CopyIn(on_device + mask_room, message.values.data(), message.values.size()));
    if (!top_k && !masked) return ReadValues(message.layout, on_device, n, message.header.parameter, nullptr, out.data());

    const uint32_t* indices = masked && selection != nullptr ? Words(selection->indices) : nullptr;
    if (top_k) {
      FUSIONLLM_RETURN_IF_ERROR(memory().CopyIn(on_device, message.mask.data(), message.mask.size()));
      tensor::MemoryBlock& room = selection_out == nullptr ? indices_ : selection_out->indices;
      FUSIONLLM_RETURN_IF_ERROR(Reserve(room, sizeof(uint32_t) * message.count));
      FUSIONLLM_RETURN_IF_ERROR(Reserve(workspace_, MaskWorkspaceBytes(n)));
      FUSIONLLM_RETURN_IF_ERROR(Done(ReadMask(stream(), on_device, n, kept, workspace_.data(), Words(room))));
      indices = Words(room);
    }
    FUSIONLLM_RETURN_IF_ERROR(Reserve(kept_, sizeof(float) * message.count));
    FUSIONLLM_RETURN_IF_ERROR(ReadValues(message.layout, on_device + mask_room, kept, message.header.parameter, nullptr, Floats(kept_)));
    FUSIONLLM_RETURN_IF_ERROR(Done(Scatter(stream(), Floats(kept_), indices, kept, n, out.data())));
    if (top_k && selection_out != nullptr) {
      selection_out->elements = n;
      selection_out->kept = kept;
    }
    return absl::OkStatus();
  }

  absl::Status Widen(std::span<const uint16_t> bfloats, std::span<float> floats) override {
    return Done(kernels::cuda::WidenBf16(stream(), bfloats.data(), floats.data(), static_cast<int64_t>(floats.size())));
  }
  absl::Status Round(std::span<const float> floats, std::span<uint16_t> bfloats) override {
    return Done(kernels::cuda::RoundToBf16(stream(), floats.data(), bfloats.data(), static_cast<int64_t>(floats.size())));
  }

 private:
  cudaStream_t stream() const { return device_.stream(); }
  static absl::Status Done(cudaError_t error) { return kernels::cuda::ToStatus(error, "compressing on the device"); }

  // Room that is never given back: messages of a run have few sizes.
  absl::Status Reserve(tensor::MemoryBlock& block, size_t bytes) {
    if (block.data() != nullptr && block.size() >= bytes) return absl::OkStatus();
    block = tensor::MemoryBlock();
    FUSIONLLM_ASSIGN_OR_RETURN(block, memory().Allocate(bytes));
    return absl::OkStatus();
  }

  uint32_t* greatest() const { return Words(message_); }
  std::byte* payload() const { return message_.data() + kAlignment; }

  // Room for a message, and no greatest magnitude yet.
  absl::Status BeginMessage(size_t payload_bytes) {
    FUSIONLLM_RETURN_IF_ERROR(Reserve(message_, kAlignment + payload_bytes));
    return memory().Zero(message_.data(), kHeaderBytes);
  }

  absl::StatusOr<uint32_t> GreatestFound() {
    uint32_t found = 0;
    FUSIONLLM_RETURN_IF_ERROR(memory().CopyOut(&found, greatest(), sizeof(found)));
    return found;
  }

  // Encodes, and notes the greatest magnitude.
  absl::Status WriteValues(Layout layout, const float* values, int64_t n, std::byte* out) {
    if (n == 0) return absl::OkStatus();
    std::byte* const codes = out + (BlockSize(layout) == 0 ? 0 : ScaleBytes(layout, static_cast<size_t>(n)));
    switch (layout) {
      case Layout::kFp16:
        FUSIONLLM_RETURN_IF_ERROR(Done(GreatestMagnitude(stream(), values, n, greatest())));
        return Done(FloatToHalf(stream(), values, n, greatest(), out));
      case Layout::kBf16:
        return Done(FloatToBfloat(stream(), values, n, out, greatest()));
      case Layout::kInt8:
        return Done(QuantizeInt8(stream(), values, n, out, codes, greatest()));
      case Layout::kInt4:
        return Done(QuantizeInt4(stream(), values, n, out, codes, greatest()));
      default:
        return absl::InternalError("no such values are made on the device");
    }
  }

  // out = minuend - decoded where there is one.
  absl::Status ReadValues(Layout layout, const std::byte* in, int64_t n, int32_t parameter, const float* minuend, float* out) {
    if (n == 0) return absl::OkStatus();
    const std::byte* const codes = in + (BlockSize(layout) == 0 ? 0 : ScaleBytes(layout, static_cast<size_t>(n)));
    switch (layout) {
      case Layout::kFp16:
        return Done(HalfToFloat(stream(), in, n, std::ldexp(1.0f, parameter), minuend, out));
      case Layout::kBf16:
        return Done(BfloatToFloat(stream(), in, n, minuend, out));
      case Layout::kInt8:
        return Done(DequantizeInt8(stream(), in, codes, n, minuend, out));
      case Layout::kInt4:
        return Done(DequantizeInt4(stream(), in, codes, n, minuend, out));
      default:
        return absl::InternalError("no such values are read on the device");
    }
  }

  // The error of the first element beyond what can be encoded.
  absl::Status Unencodable(std::span<const float> values) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<float> copy, CopyToHost(values));
    return UnencodableError(copy, FindUnencodable(copy.data(), copy.size()));
  }

  // Copies the message out, mask and values, and puts its header in front.
  absl::Status FinishMessage(Header header, Layout layout, size_t mask_bytes, size_t values_offset, size_t value_bytes, uint32_t found,
                             std::vector<std::byte>* out) {
    out->resize(kHeaderBytes + mask_bytes + value_bytes);
    FUSIONLLM_RETURN_IF_ERROR(memory().CopyOut(out->data() + kHeaderBytes, payload(), mask_bytes));
    FUSIONLLM_RETURN_IF_ERROR(memory().CopyOut(out->data() + kHeaderBytes + mask_bytes, payload() + values_offset, value_bytes));
    header.parameter = ParameterOf(layout, found);
    WriteHeader(header, out->data());
    return absl::OkStatus();
  }

  absl::Status EncodeDense(CodecKind kind, Direction direction, std::span<const float> values, std::vector<std::byte>* out) {
    const Layout layout = DenseLayout(kind);
    const size_t bytes = PayloadBytes(layout, values.size());
    const Header header{.layout = layout, .direction = direction, .elements = static_cast<uint32_t>(values.size())};
    if (layout == Layout::kExact) {
      out->resize(kHeaderBytes + bytes);
      WriteHeader(header, out->data());
      return memory().CopyOut(out->data() + kHeaderBytes, values.data(), bytes);
    }
    FUSIONLLM_RETURN_IF_ERROR(BeginMessage(bytes));
    FUSIONLLM_RETURN_IF_ERROR(WriteValues(layout, values.data(), static_cast<int64_t>(values.size()), payload()));
    FUSIONLLM_ASSIGN_OR_RETURN(const uint32_t found, GreatestFound());
    if (found > kMaxMagnitudeBits) return Unencodable(values);
    return FinishMessage(header, layout, 0, 0, bytes, found, out);
  }

  absl::Status EncodeDenseWithFeedback(const CodecSpec& spec, std::span<const float> values, SenderState* state,
                                       std::vector<std::byte>* out) {
    const auto n = static_cast<int64_t>(values.size());
    float* const corrected = Floats(state->corrected);
    const float* const residual = state->residual_elements == 0 ? nullptr : Floats(state->residual);
    if (n > 0) FUSIONLLM_RETURN_IF_ERROR(Done(Correct(stream(), values.data(), residual, n, corrected)));
    FUSIONLLM_RETURN_IF_ERROR(EncodeDense(spec.kind, Direction::kForward, {corrected, values.size()}, out));
    int32_t parameter = 0;
    std::memcpy(&parameter, out->data() + 12, sizeof(parameter));
    FUSIONLLM_RETURN_IF_ERROR(ReadValues(DenseLayout(spec.kind), payload(), n, parameter, corrected, corrected));
    std::swap(state->residual, state->corrected);
    state->residual_elements = n;
    return absl::OkStatus();
  }

  // A forward top-k message; with a state, of the values corrected by its residual.
  absl::Status EncodeTopK(const CodecSpec& spec, std::span<const float> values, SenderState* state, std::vector<std::byte>* out,
                          Selection* selection_out) {
    const auto n = static_cast<int64_t>(values.size());
    const int64_t k = KeptElements(spec.ratio, n);
    const auto kind = static_cast<uint8_t>(spec.top_k_values);
    const Layout layout = ValueLayout(kind);
    const auto mask_bytes = static_cast<size_t>(Mask::SerializedBytes(n, k));
    const size_t value_bytes = PayloadBytes(layout, static_cast<size_t>(k)), values_offset = Aligned(mask_bytes);
    FUSIONLLM_RETURN_IF_ERROR(BeginMessage(values_offset + value_bytes));
    tensor::MemoryBlock& indices = selection_out == nullptr ? indices_ : selection_out->indices;
    FUSIONLLM_RETURN_IF_ERROR(Reserve(indices, sizeof(uint32_t) * static_cast<size_t>(k)));
    FUSIONLLM_RETURN_IF_ERROR(Reserve(kept_, sizeof(float) * static_cast<size_t>(k)));
    FUSIONLLM_RETURN_IF_ERROR(Reserve(workspace_, SelectionWorkspaceBytes(n)));
    Feedback feedback;
    if (state != nullptr) {
      feedback = {.residual = state->residual_elements == 0 ? nullptr : Floats(state->residual), .corrected = Floats(state->corrected)};
    }
    const bool bitmap = Mask::UsesBitmap(n, k);
    if (n > 0) {
      FUSIONLLM_RETURN_IF_ERROR(Done(SelectGreatest(
          stream(), values.data(), n, k, feedback, workspace_.data(), greatest(),
          {.indices = Words(indices), .kept = Floats(kept_), .bitmap = bitmap ? reinterpret_cast<uint32_t*>(payload()) : nullptr})));
      if (!bitmap) FUSIONLLM_RETURN_IF_ERROR(Done(WriteOffsets(stream(), Words(indices), n, k, payload())));
    }
    // The greatest of all is among those kept, so the values add nothing to it.
    FUSIONLLM_RETURN_IF_ERROR(WriteValues(layout, Floats(kept_), k, payload() + values_offset));
    FUSIONLLM_ASSIGN_OR_RETURN(const uint32_t found, GreatestFound());
    if (found > kMaxMagnitudeBits)
      return Unencodable(state == nullptr ? values : std::span<const float>(feedback.corrected, values.size()));
    const Header header{.layout = Layout::kTopK, .values = kind, .elements = static_cast<uint32_t>(n), .kept = static_cast<uint32_t>(k)};
    FUSIONLLM_RETURN_IF_ERROR(FinishMessage(header, layout, mask_bytes, values_offset, value_bytes, found, out));
    if (selection_out != nullptr) {
      selection_out->elements = n;
      selection_out->kept = k;
    }
    if (state == nullptr) return absl::OkStatus();
    // Nothing arrived of what was not kept: there the corrected values are the residual.
    if (n > 0) {
      FUSIONLLM_RETURN_IF_ERROR(ReadValues(layout, payload() + values_offset, k, ParameterOf(layout, found), nullptr, Floats(kept_)));
      FUSIONLLM_RETURN_IF_ERROR(Done(SubtractKept(stream(), Floats(kept_), Words(indices), k, feedback.corrected)));
    }
    std::swap(state->residual, state->corrected);
    state->residual_elements = n;
    return absl::OkStatus();
  }

  absl::Status EncodeMasked(const CodecSpec& spec, std::span<const float> values, const Selection* selection, std::vector<std::byte>* out) {
    const int64_t k = selection == nullptr ? 0 : selection->kept;
    const auto kind = static_cast<uint8_t>(spec.top_k_values);
    const Layout layout = ValueLayout(kind);
    const size_t bytes = PayloadBytes(layout, static_cast<size_t>(k));
    FUSIONLLM_RETURN_IF_ERROR(BeginMessage(bytes));
    FUSIONLLM_RETURN_IF_ERROR(Reserve(kept_, sizeof(float) * static_cast<size_t>(k)));
    if (k > 0) FUSIONLLM_RETURN_IF_ERROR(Done(Gather(stream(), values.data(), Words(selection->indices), k, Floats(kept_))));
    FUSIONLLM_RETURN_IF_ERROR(WriteValues(layout, Floats(kept_), k, payload()));
    FUSIONLLM_ASSIGN_OR_RETURN(const uint32_t found, GreatestFound());
    if (found > kMaxMagnitudeBits) return UnencodableKept(values, *selection);
    const Header header{.layout = Layout::kMasked,
                        .direction = Direction::kBackward,
                        .values = kind,
                        .elements = static_cast<uint32_t>(values.size()),
                        .kept = static_cast<uint32_t>(k)};
    return FinishMessage(header, layout, 0, 0, bytes, found, out);
  }

  // Names the element by its place in the tensor, not among the kept.
  absl::Status UnencodableKept(std::span<const float> values, const Selection& selection) {
    FUSIONLLM_ASSIGN_OR_RETURN(const Mask mask, MaskOf(selection));
    FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<float> copy, CopyToHost(values));
    std::vector<float> kept(mask.kept());
    mask.Gather(copy, kept);
    return UnencodableError(copy, mask.Indices()[FindUnencodable(kept.data(), kept.size())]);
  }

  kernels::cuda::Device& device_;
  // Of the message under way; the stream's order keeps one message's from the next.
  tensor::MemoryBlock message_, kept_, indices_, workspace_;
};

}  // namespace

std::unique_ptr<TensorCodec> TensorCodecOn(kernels::Backend& backend) {
  kernels::cuda::Device* const device = kernels::cuda::DeviceOf(backend);
  return device == nullptr ? nullptr : std::make_unique<CudaTensorCodec>(*device);
}

}  // namespace fusionllm::compression::cuda
