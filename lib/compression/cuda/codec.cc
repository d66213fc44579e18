#include "lib/compression/cuda/codec.h"

#include <array>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/compression/bf16_message.h"
#include "lib/compression/cuda/mask.h"
#include "lib/compression/cuda/quantize.h"
#include "lib/compression/cuda/select.h"
#include "lib/compression/header.h"
#include "lib/compression/message.h"
#include "lib/compression/quantize.h"
#include "lib/compression/registry.h"
#include "lib/compression/select.h"
#include "lib/kernels/cuda/bf16.h"
#include "lib/kernels/cuda/cuda.h"

namespace fusionllm::compression::cuda {
namespace {

using kernels::cuda::AlignedForTransfer;

// Where a message lies in a buffer of the device, and what becomes of it on the host: an UnencodableValue, then, each aligned, mask and
// values.
struct Parcel {
  Header header;
  const DenseCodec* values = nullptr;  // that they are written in; null: as they are
  size_t mask_bytes = 0;
  size_t value_bytes = 0;

  static constexpr size_t kMaskOffset = kernels::cuda::kTransferAlignment;
  size_t values_offset() const { return kMaskOffset + AlignedForTransfer(mask_bytes); }
  size_t bytes_on_device() const { return values_offset() + value_bytes; }
  size_t message_bytes() const { return kHeaderBytes + mask_bytes + value_bytes; }
};
static_assert(sizeof(UnencodableValue) <= Parcel::kMaskOffset);

MaskSize SizeOf(const Selection* selection) {
  if (selection == nullptr) return {};
  return {.elements = selection->elements, .kept = selection->kept};
}

float* Floats(const tensor::MemoryBlock& block) { return reinterpret_cast<float*>(block.data()); }
uint32_t* Words(const tensor::MemoryBlock& block) { return reinterpret_cast<uint32_t*>(block.data()); }

class LeavingMessage final : public PendingMessage {
 public:
  LeavingMessage(const Parcel& parcel, std::unique_ptr<kernels::cuda::PendingTransfer> transfer)
      : parcel_(parcel), transfer_(std::move(transfer)) {}
  size_t size() const override { return parcel_.message_bytes(); }
  absl::Status Finish(std::vector<std::byte>* out) override {
    FUSIONLLM_RETURN_IF_ERROR(transfer_->Wait());
    const std::span<const std::byte> here = transfer_->bytes();
    UnencodableValue unencodable;
    std::memcpy(&unencodable, here.data(), sizeof(unencodable));
    if (unencodable.max_magnitude > kMaxMagnitudeBits) return UnencodableError(unencodable.index, unencodable.value);
    out->resize(parcel_.message_bytes());
    Header header = parcel_.header;
    if (parcel_.values != nullptr) header.parameter = parcel_.values->ParameterOf(unencodable.max_magnitude);
    WriteHeader(header, out->data());
    std::byte* const payload = out->data() + kHeaderBytes;
    if (parcel_.mask_bytes > 0) std::memcpy(payload, here.data() + Parcel::kMaskOffset, parcel_.mask_bytes);
    if (parcel_.value_bytes > 0) std::memcpy(payload + parcel_.mask_bytes, here.data() + parcel_.values_offset(), parcel_.value_bytes);
    return absl::OkStatus();
  }

 private:
  const Parcel parcel_;
  const std::unique_ptr<kernels::cuda::PendingTransfer> transfer_;
};

// Integers are coded on the host.
class LeavingIntegers final : public PendingMessage {
 public:
  explicit LeavingIntegers(std::unique_ptr<kernels::cuda::PendingTransfer> transfer) : transfer_(std::move(transfer)) {}
  size_t size() const override { return kHeaderBytes + transfer_->size(); }
  absl::Status Finish(std::vector<std::byte>* out) override {
    FUSIONLLM_RETURN_IF_ERROR(transfer_->Wait());
    std::vector<int32_t> values(transfer_->size() / sizeof(int32_t));
    if (!values.empty()) std::memcpy(values.data(), transfer_->bytes().data(), transfer_->size());
    return compression::EncodeIntegers(values, out);
  }

 private:
  const std::unique_ptr<kernels::cuda::PendingTransfer> transfer_;
};

class CudaTensorCodec final : public TensorCodec {
 public:
  explicit CudaTensorCodec(kernels::cuda::Device& device) : device_(device) {}

  tensor::Memory& memory() const override { return device_.memory(); }

  absl::Status Encode(const CodecSpec& spec, Direction direction, std::span<const float> values, const Selection* selection,
                      SenderState* state, std::vector<std::byte>* out, Selection* selection_out) override {
    const int64_t residual_before = state == nullptr ? 0 : state->residual_elements;
    FUSIONLLM_ASSIGN_OR_RETURN(const std::unique_ptr<PendingMessage> message,
                               StartEncode(spec, direction, values, selection, state, selection_out));
    absl::Status finished = message->Finish(out);
    if (!finished.ok() && selection_out != nullptr) selection_out->elements = selection_out->kept = 0;
    if (!finished.ok() && state != nullptr && spec.error_feedback && direction == Direction::kForward) {
      std::swap(state->residual, state->corrected);  // a message that is refused leaves the residual as it was
      state->residual_elements = residual_before;
    }
    return finished;
  }

  absl::StatusOr<std::unique_ptr<PendingMessage>> StartEncode(const CodecSpec& spec, Direction direction, std::span<const float> values,
                                                              const Selection* selection, SenderState* state,
                                                              Selection* selection_out) override {
    FUSIONLLM_RETURN_IF_ERROR(CheckEncode(spec, direction, values.size(), SizeOf(selection)));
    if (selection_out != nullptr) selection_out->elements = selection_out->kept = 0;
    if (direction == Direction::kBackward) {
      if (IsSparse(spec.kind)) return EncodeMasked(spec, values, selection);
      return EncodeDense(*CodecOf(GradientKind(spec.kind)).dense(), direction, values);
    }
    if (!spec.error_feedback) {
      if (IsSparse(spec.kind)) return EncodeTopK(spec, values, nullptr, selection_out);
      return EncodeDense(*CodecOf(spec.kind).dense(), direction, values);
    }
    if (state == nullptr) return absl::InvalidArgumentError("error feedback needs an encoder state to keep its residual");
    const auto n = static_cast<int64_t>(values.size());
    if (state->residual_elements != 0 && state->residual_elements != n) {
      return absl::InvalidArgumentError(
          absl::StrCat("error feedback: the residual has ", state->residual_elements, " elements, the tensor ", values.size()));
    }
    FUSIONLLM_RETURN_IF_ERROR(Reserve(state->corrected, values.size_bytes()));
    if (IsSparse(spec.kind)) return EncodeTopK(spec, values, state, selection_out);
    return EncodeDenseWithFeedback(spec, values, state);
  }

  absl::StatusOr<std::unique_ptr<PendingMessage>> StartEncodeIntegers(std::span<const int32_t> values) override {
    FUSIONLLM_ASSIGN_OR_RETURN(std::byte* const buffer, device_.device_to_host().Begin(values.size_bytes()));
    FUSIONLLM_RETURN_IF_ERROR(CopyThere(buffer, values.data(), values.size_bytes()));
    FUSIONLLM_ASSIGN_OR_RETURN(auto transfer, device_.device_to_host().Send(values.size_bytes()));
    return std::make_unique<LeavingIntegers>(std::move(transfer));
  }
  absl::StatusOr<std::unique_ptr<PendingMessage>> StartEncodeBf16(Direction direction, std::span<const uint16_t> values) override {
    FUSIONLLM_RETURN_IF_ERROR(CheckBf16(values.size()));
    return EncodeAsTheyAre({.layout = Layout::kNativeBf16, .direction = direction, .elements = static_cast<uint32_t>(values.size())},
                           std::as_bytes(values));
  }

  absl::Status Decode(Direction direction, std::span<const std::byte> encoded, const Selection* selection, std::span<float> out,
                      Selection* selection_out) override {
    FUSIONLLM_ASSIGN_OR_RETURN(const Message message, ReadMessage(direction, encoded, out.size(), SizeOf(selection)));
    if (selection_out != nullptr) selection_out->elements = selection_out->kept = 0;
    const bool top_k = message.header.layout == Layout::kTopK, masked = message.header.layout == Layout::kMasked;
    if (top_k) FUSIONLLM_RETURN_IF_ERROR(Mask::Parse(message.header.elements, message.header.kept, message.mask).status());
    FUSIONLLM_RETURN_IF_ERROR(message.codec->CheckParameter(message.header.parameter));
    if (!message.codec->AreFinite(message.values, message.count)) return ValuesNotFiniteError();
    const auto n = static_cast<int64_t>(out.size()), kept = static_cast<int64_t>(message.count);
    if (n == 0) return absl::OkStatus();
    if (message.codec->layout == Layout::kExact) return BringAsTheyAre(message.values, out.data());

    const std::array<std::span<const std::byte>, 2> pieces = {message.mask, message.values};
    FUSIONLLM_ASSIGN_OR_RETURN(const std::byte* const on_device, device_.host_to_device().CopyToDevice(pieces));
    const absl::Cleanup release = [this] { device_.host_to_device().Release().IgnoreError(); };
    const std::byte* const coded = on_device + AlignedForTransfer(message.mask.size());
    if (!top_k && !masked) return ReadValues(*message.codec, coded, n, message.header.parameter, out.data());

    const uint32_t* indices = masked && selection != nullptr ? Words(selection->indices) : nullptr;
    if (top_k) {
      tensor::MemoryBlock& room = selection_out == nullptr ? indices_ : selection_out->indices;
      FUSIONLLM_RETURN_IF_ERROR(Reserve(room, sizeof(uint32_t) * message.count));
      FUSIONLLM_RETURN_IF_ERROR(Reserve(workspace_, MaskWorkspaceBytes(n)));
      FUSIONLLM_RETURN_IF_ERROR(Done(ReadMask(stream(), on_device, n, kept, workspace_.data(), Words(room))));
      indices = Words(room);
    }
    FUSIONLLM_RETURN_IF_ERROR(Reserve(kept_, sizeof(float) * message.count));
    FUSIONLLM_RETURN_IF_ERROR(ReadValues(*message.codec, coded, kept, message.header.parameter, Floats(kept_)));
    FUSIONLLM_RETURN_IF_ERROR(Done(Scatter(stream(), Floats(kept_), indices, kept, n, out.data())));
    if (top_k && selection_out != nullptr) {
      selection_out->elements = n;
      selection_out->kept = kept;
    }
    return absl::OkStatus();
  }

  absl::Status DecodeBf16(Direction direction, std::span<const std::byte> encoded, std::span<uint16_t> out) override {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::span<const std::byte> payload, ReadBf16(direction, encoded, out.size()));
    return BringAsTheyAre(payload, out.data());
  }

  absl::Status Upcast(std::span<const uint16_t> bfloats, std::span<float> floats) override {
    return Done(kernels::cuda::UpcastBf16(stream(), bfloats.data(), floats.data(), static_cast<int64_t>(floats.size())));
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

  // A buffer for the message, whose UnencodableValue finds nothing yet. What lies between the parts leaves as well, and is zeros: so
  // nothing is read that was not written, which is what compute-sanitizer's initcheck looks for.
  absl::StatusOr<std::byte*> Begin(const Parcel& parcel) {
    FUSIONLLM_ASSIGN_OR_RETURN(std::byte* const buffer, device_.device_to_host().Begin(parcel.bytes_on_device()));
    FUSIONLLM_RETURN_IF_ERROR(memory().Zero(buffer, Parcel::kMaskOffset));
    if (const size_t end = parcel.values_offset(); end != Parcel::kMaskOffset + parcel.mask_bytes) {
      FUSIONLLM_RETURN_IF_ERROR(memory().Zero(buffer + end - kernels::cuda::kTransferAlignment, kernels::cuda::kTransferAlignment));
    }
    return buffer;
  }
  absl::StatusOr<std::unique_ptr<PendingMessage>> Send(const Parcel& parcel) {
    FUSIONLLM_ASSIGN_OR_RETURN(auto transfer, device_.device_to_host().Send(parcel.bytes_on_device()));
    return std::make_unique<LeavingMessage>(parcel, std::move(transfer));
  }
  static UnencodableValue* UnencodableOf(std::byte* buffer) { return reinterpret_cast<UnencodableValue*>(buffer); }
  static uint32_t* MaxMagnitudeOf(std::byte* buffer) { return &UnencodableOf(buffer)->max_magnitude; }

  absl::Status CopyThere(void* to, const void* from, size_t bytes) {
    if (bytes == 0) return absl::OkStatus();
    return Done(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream()));
  }
  absl::StatusOr<std::unique_ptr<PendingMessage>> EncodeAsTheyAre(const Header& header, std::span<const std::byte> values) {
    const Parcel parcel{.header = header, .value_bytes = values.size()};
    FUSIONLLM_ASSIGN_OR_RETURN(std::byte* const buffer, Begin(parcel));
    FUSIONLLM_RETURN_IF_ERROR(CopyThere(buffer + parcel.values_offset(), values.data(), values.size()));
    return Send(parcel);
  }
  // By way of a buffer: so the bytes need not wait for what still reads the tensor.
  absl::Status BringAsTheyAre(std::span<const std::byte> values, void* out) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::byte* const on_device, device_.host_to_device().CopyToDevice({&values, 1}));
    FUSIONLLM_RETURN_IF_ERROR(CopyThere(out, on_device, values.size()));
    return device_.host_to_device().Release();
  }

  // Encodes, and notes the greatest magnitude.
  absl::Status WriteValues(const DenseCodec& codec, const float* values, int64_t n, std::byte* out, uint32_t* max_magnitude) {
    if (n == 0) return absl::OkStatus();
    FUSIONLLM_ASSIGN_OR_RETURN(const DeviceCodec* const device_codec, KernelsOf(codec));
    return Done(device_codec->encode(stream(), values, n, out, max_magnitude));
  }

  absl::Status ReadValues(const DenseCodec& codec, const std::byte* in, int64_t n, int32_t parameter, float* out) {
    if (n == 0) return absl::OkStatus();
    FUSIONLLM_ASSIGN_OR_RETURN(const DeviceCodec* const device_codec, KernelsOf(codec));
    return Done(device_codec->decode(stream(), in, n, parameter, nullptr, nullptr, out));
  }

  // Of what WriteValues wrote; out = minuend - decoded where there is a minuend.
  absl::Status ReadWritten(const DenseCodec& codec, const std::byte* in, int64_t n, const uint32_t* max_magnitude, const float* minuend,
                           float* out) {
    if (n == 0) return absl::OkStatus();
    FUSIONLLM_ASSIGN_OR_RETURN(const DeviceCodec* const device_codec, KernelsOf(codec));
    return Done(device_codec->decode(stream(), in, n, 0, max_magnitude, minuend, out));
  }

  static absl::StatusOr<const DeviceCodec*> KernelsOf(const DenseCodec& codec) {
    const DeviceCodec* const found = FindDeviceCodec(codec.layout);
    if (found == nullptr) return absl::InternalError(absl::StrCat("codec ", codec.traits.name, " has no kernels"));
    return found;
  }

  absl::Status CheckEncodable(const float* values, const uint32_t* indices, int64_t n, std::byte* buffer) {
    return n == 0 ? absl::OkStatus() : Done(FindUnencodable(stream(), values, indices, n, UnencodableOf(buffer)));
  }

  absl::StatusOr<std::unique_ptr<PendingMessage>> EncodeDense(const DenseCodec& codec, Direction direction, std::span<const float> values) {
    const Header header{.layout = codec.layout, .direction = direction, .elements = static_cast<uint32_t>(values.size())};
    if (codec.layout == Layout::kExact) return EncodeAsTheyAre(header, std::as_bytes(values));
    const Parcel parcel{.header = header, .values = &codec, .value_bytes = codec.ValueBytes(values.size())};
    FUSIONLLM_RETURN_IF_ERROR(WriteDense(parcel, values).status());
    return Send(parcel);
  }

  // Encodes to a buffer; returns it.
  absl::StatusOr<std::byte*> WriteDense(const Parcel& parcel, std::span<const float> values) {
    const auto n = static_cast<int64_t>(values.size());
    FUSIONLLM_ASSIGN_OR_RETURN(std::byte* const buffer, Begin(parcel));
    FUSIONLLM_RETURN_IF_ERROR(WriteValues(*parcel.values, values.data(), n, buffer + parcel.values_offset(), MaxMagnitudeOf(buffer)));
    FUSIONLLM_RETURN_IF_ERROR(CheckEncodable(values.data(), nullptr, n, buffer));
    return buffer;
  }

  absl::StatusOr<std::unique_ptr<PendingMessage>> EncodeDenseWithFeedback(const CodecSpec& spec, std::span<const float> values,
                                                                          SenderState* state) {
    const auto n = static_cast<int64_t>(values.size());
    float* const corrected = Floats(state->corrected);
    const float* const residual = state->residual_elements == 0 ? nullptr : Floats(state->residual);
    if (n > 0) FUSIONLLM_RETURN_IF_ERROR(Done(Correct(stream(), values.data(), residual, n, corrected)));
    const DenseCodec& codec = *CodecOf(spec.kind).dense();
    const Parcel parcel{.header = {.layout = codec.layout, .direction = Direction::kForward, .elements = static_cast<uint32_t>(n)},
                        .values = &codec,
                        .value_bytes = codec.ValueBytes(values.size())};
    FUSIONLLM_ASSIGN_OR_RETURN(std::byte* const buffer, WriteDense(parcel, {corrected, values.size()}));
    FUSIONLLM_RETURN_IF_ERROR(ReadWritten(codec, buffer + parcel.values_offset(), n, MaxMagnitudeOf(buffer), corrected, corrected));
    std::swap(state->residual, state->corrected);
    state->residual_elements = n;
    return Send(parcel);
  }

  // A forward top-k message; with a state, of the values corrected by its residual.
  absl::StatusOr<std::unique_ptr<PendingMessage>> EncodeTopK(const CodecSpec& spec, std::span<const float> values, SenderState* state,
                                                             Selection* selection_out) {
    const auto n = static_cast<int64_t>(values.size());
    const int64_t k = KeptElements(spec.ratio, n);
    const DenseCodec& codec = *FindValueCodec(spec.top_k_values);
    const Parcel parcel{.header = {.layout = Layout::kTopK,
                                   .values = static_cast<uint8_t>(spec.top_k_values),
                                   .elements = static_cast<uint32_t>(n),
                                   .kept = static_cast<uint32_t>(k)},
                        .values = &codec,
                        .mask_bytes = static_cast<size_t>(Mask::SerializedBytes(n, k)),
                        .value_bytes = codec.ValueBytes(static_cast<size_t>(k))};
    FUSIONLLM_ASSIGN_OR_RETURN(std::byte* const buffer, Begin(parcel));
    std::byte* const mask = buffer + Parcel::kMaskOffset;
    std::byte* const coded = buffer + parcel.values_offset();
    tensor::MemoryBlock& indices = selection_out == nullptr ? indices_ : selection_out->indices;
    FUSIONLLM_RETURN_IF_ERROR(Reserve(indices, sizeof(uint32_t) * static_cast<size_t>(k)));
    FUSIONLLM_RETURN_IF_ERROR(Reserve(kept_, sizeof(float) * static_cast<size_t>(k)));
    FUSIONLLM_RETURN_IF_ERROR(Reserve(workspace_, SelectionWorkspaceBytes(n, k)));
    Feedback feedback;
    if (state != nullptr) {
      feedback = {.residual = state->residual_elements == 0 ? nullptr : Floats(state->residual), .corrected = Floats(state->corrected)};
    }
    const bool bitmap = Mask::UsesBitmap(n, k);
    if (n > 0) {
      FUSIONLLM_RETURN_IF_ERROR(Done(
          SelectTopK(stream(), values.data(), n, k, feedback, workspace_.data(), MaxMagnitudeOf(buffer),
                     {.indices = Words(indices), .kept = Floats(kept_), .bitmap = bitmap ? reinterpret_cast<uint32_t*>(mask) : nullptr})));
      if (!bitmap) FUSIONLLM_RETURN_IF_ERROR(Done(WriteOffsets(stream(), Words(indices), n, k, mask)));
    }
    FUSIONLLM_RETURN_IF_ERROR(CheckEncodable(state == nullptr ? values.data() : feedback.corrected, nullptr, n, buffer));
    // The greatest of all is among those kept, so the values add nothing to it.
    FUSIONLLM_RETURN_IF_ERROR(WriteValues(codec, Floats(kept_), k, coded, MaxMagnitudeOf(buffer)));
    if (selection_out != nullptr) {
      selection_out->elements = n;
      selection_out->kept = k;
    }
    if (state == nullptr) return Send(parcel);
    // Nothing arrived of what was not kept: there the corrected values are the residual.
    if (n > 0) {
      FUSIONLLM_RETURN_IF_ERROR(ReadWritten(codec, coded, k, MaxMagnitudeOf(buffer), nullptr, Floats(kept_)));
      FUSIONLLM_RETURN_IF_ERROR(Done(SubtractKept(stream(), Floats(kept_), Words(indices), k, feedback.corrected)));
    }
    std::swap(state->residual, state->corrected);
    state->residual_elements = n;
    return Send(parcel);
  }

  absl::StatusOr<std::unique_ptr<PendingMessage>> EncodeMasked(const CodecSpec& spec, std::span<const float> values,
                                                               const Selection* selection) {
    const int64_t k = selection == nullptr ? 0 : selection->kept;
    const ValueKind values_kind = GradientValueKind(spec.top_k_values);
    const DenseCodec& codec = *FindValueCodec(values_kind);
    const Parcel parcel{.header = {.layout = Layout::kMasked,
                                   .direction = Direction::kBackward,
                                   .values = static_cast<uint8_t>(values_kind),
                                   .elements = static_cast<uint32_t>(values.size()),
                                   .kept = static_cast<uint32_t>(k)},
                        .values = &codec,
                        .value_bytes = codec.ValueBytes(static_cast<size_t>(k))};
    FUSIONLLM_ASSIGN_OR_RETURN(std::byte* const buffer, Begin(parcel));
    FUSIONLLM_RETURN_IF_ERROR(Reserve(kept_, sizeof(float) * static_cast<size_t>(k)));
    const uint32_t* const indices = k == 0 ? nullptr : Words(selection->indices);
    if (k > 0) FUSIONLLM_RETURN_IF_ERROR(Done(Gather(stream(), values.data(), indices, k, Floats(kept_))));
    FUSIONLLM_RETURN_IF_ERROR(WriteValues(codec, Floats(kept_), k, buffer + parcel.values_offset(), MaxMagnitudeOf(buffer)));
    FUSIONLLM_RETURN_IF_ERROR(CheckEncodable(Floats(kept_), indices, k, buffer));  // named by its place in the tensor, not among the kept
    return Send(parcel);
  }

  kernels::cuda::Device& device_;
  // Of the message under way; the stream's order keeps one message's from the next.
  tensor::MemoryBlock kept_, indices_, workspace_;
};

}  // namespace

std::unique_ptr<TensorCodec> TensorCodecOn(kernels::Backend& backend) {
  kernels::cuda::Device* const device = kernels::cuda::DeviceOf(backend);
  return device == nullptr ? nullptr : std::make_unique<CudaTensorCodec>(*device);
}

}  // namespace fusionllm::compression::cuda
