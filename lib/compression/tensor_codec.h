// The codecs of codec.h for tensors wherever they live: on the host, or in a device's memory, where lib/compression/cuda encodes them so
// that only the encoded bytes cross to the host.
//
// Every implementation writes the same bytes for the same numbers, and decodes the same numbers from the same bytes: the two ends of a link
// need not compute on the same kind of device. One conformance suite holds them to it (testing/conformance.h).
//
// Tensor addresses (spans of floats and integers) are those of memory(); messages are always the host's. Encode waits for what computes the
// tensor; Decode may return before the tensor is there, in the order of the memory's other copies and kernels. What comes from a peer is
// checked on the host before Decode returns. Not thread-safe: one thread uses a TensorCodec and what it made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/compression/codec.h"
#include "lib/compression/loss_divergence_detector.h"
#include "lib/compression/mask.h"
#include "lib/compression/spec.h"
#include "lib/tensor/memory.h"

namespace fusionllm::compression {

// What a forward top-k message kept, until its backward message; dense when it kept all. Of use to the codec that filled it alone, which
// must outlive it.
struct Selection {
  Mask mask;  // of codecs on the host
  // Of codecs on a device: the kept elements' numbers there, ascending 32-bit integers, 4 bytes for each.
  tensor::MemoryBlock indices;
  int64_t elements = 0;
  int64_t kept = 0;
};

// What one sender keeps for one edge between its messages. One caller at a time; of use to one codec, which must outlive it.
struct SenderState {
  EncoderState host;  // of codecs on the host
  // Of codecs on a device: as EncoderState::residual and corrected. No residual yet: 0 elements.
  tensor::MemoryBlock residual, corrected;
  int64_t residual_elements = 0;
};

// A message that was asked for and may not be whole yet.
class PendingMessage {
 public:
  virtual ~PendingMessage() = default;
  // Bytes that it will have; of integers, at most.
  virtual size_t size() const = 0;
  // Waits until it is whole; once, from any thread. *out keeps its capacity. Errors: those of TensorCodec::Encode that the tensor's numbers
  // show.
  virtual absl::Status Finish(std::vector<std::byte>* out) = 0;
};

class TensorCodec {
 public:
  virtual ~TensorCodec() = default;
  // Where the tensors live. Outlives the codec.
  virtual tensor::Memory& memory() const = 0;

  // As compression::Encode: `selection` is the forward's for the gradient of a top-k edge (null or dense otherwise), selection_out (may be
  // null) receives that of a forward message, `state` may be null without error feedback. *out, the host's, keeps its capacity. Errors:
  // Encode's; ResourceExhausted for memory of the device; those that kernels found before it.
  virtual absl::Status Encode(const CodecSpec& spec, Direction direction, std::span<const float> values, const Selection* selection,
                              SenderState* state, std::vector<std::byte>* out, Selection* selection_out) = 0;
  // As Encode, but waits for nothing where the codec is a device's: the tensor, the selection and the state are read in the order of the
  // memory's kernels, and may be used for what comes next. After a message whose Finish fails the state's residual means nothing. The
  // message must go before the codec.
  virtual absl::StatusOr<std::unique_ptr<PendingMessage>> StartEncode(const CodecSpec& spec, Direction direction,
                                                                      std::span<const float> values, const Selection* selection,
                                                                      SenderState* state, Selection* selection_out);
  // As compression::Decode, into a tensor of memory().
  virtual absl::Status Decode(Direction direction, std::span<const std::byte> encoded, const Selection* selection, std::span<float> out,
                              Selection* selection_out) = 0;

  // Labels and ids. They are coded on the host, by way of a copy where they live elsewhere: they are few, and come from the host.
  absl::Status EncodeIntegers(std::span<const int32_t> values, std::vector<std::byte>* out);
  absl::Status DecodeIntegers(std::span<const std::byte> encoded, std::span<int32_t> out);
  // As StartEncode.
  virtual absl::StatusOr<std::unique_ptr<PendingMessage>> StartEncodeIntegers(std::span<const int32_t> values);

  // bf16 tensors, without loss, as compression::EncodeBf16 and DecodeBf16.
  absl::Status EncodeBf16(Direction direction, std::span<const uint16_t> values, std::vector<std::byte>* out);
  virtual absl::Status DecodeBf16(Direction direction, std::span<const std::byte> encoded, std::span<uint16_t> out);
  // As StartEncode.
  virtual absl::StatusOr<std::unique_ptr<PendingMessage>> StartEncodeBf16(Direction direction, std::span<const uint16_t> values);
  // The floats that lossy codecs take a bf16 tensor for, and the bf16 tensor that what they decode is rounded to (lib/tensor/bf16.h). As
  // many of the one as of the other, all in memory(), aligned to 16 bytes, and apart. Asynchronous as Decode is.
  virtual absl::Status Upcast(std::span<const uint16_t> bfloats, std::span<float> floats) = 0;
  virtual absl::Status Round(std::span<const float> floats, std::span<uint16_t> bfloats) = 0;

  // How far what the receiver decodes from `encoded` is from the original; of a gradient of a top-k edge, of the elements kept. Done on the
  // host, by way of a copy of the tensor: for samples.
  absl::StatusOr<CompressionError> Compare(Direction direction, std::span<const float> original, std::span<const std::byte> encoded,
                                           const Selection* selection);

  // Error feedback's residual as the checkpoint has it; empty before the first message.
  absl::Status ReadResidual(const SenderState& state, std::vector<float>* out);
  absl::Status WriteResidual(std::span<const float> residual, SenderState* state);

 protected:
  // The host's form of a selection.
  absl::StatusOr<Mask> MaskOf(const Selection& selection);
  absl::StatusOr<std::vector<float>> CopyToHost(std::span<const float> values);
};

// One that is whole already.
std::unique_ptr<PendingMessage> CompletedMessage(std::vector<std::byte> bytes);

// compression::Encode and Decode themselves, for tensors in the host's memory.
std::unique_ptr<TensorCodec> HostTensorCodec();

}  // namespace fusionllm::compression
