// What all codecs have in common that send every value.
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/compression/codecs/sixteen_bits.h"
#include "lib/compression/header.h"
#include "lib/compression/quantize.h"
#include "lib/compression/registry.h"
#include "lib/compression/select.h"

namespace fusionllm::compression {
namespace {

const DenseCodec& CodecInDirection(CodecKind kind, Direction direction) {
  const Codec& codec = CodecOf(kind);
  return direction == Direction::kForward ? *codec.dense() : *CodecOf(codec.traits.gradient).dense();
}

}  // namespace

int64_t DenseCodec::PayloadBytes(const CodecSpec& spec, int64_t n, Direction direction, int64_t bytes_of_element) const {
  return static_cast<int64_t>(CodecInDirection(traits.kind, direction).ValueBytes(static_cast<size_t>(n)));
}

absl::Status DenseCodec::Encode(const CodecSpec& spec, Direction direction, std::span<const float> values, const Mask& mask,
                                EncoderState& state, std::vector<std::byte>* out, Mask* mask_out) const {
  const DenseCodec& codec = CodecInDirection(traits.kind, direction);
  out->resize(kHeaderBytes + codec.ValueBytes(values.size()));
  FUSIONLLM_ASSIGN_OR_RETURN(const int32_t parameter, codec.WriteValues(values, out->data() + kHeaderBytes));
  WriteHeader({.layout = codec.layout, .direction = direction, .elements = static_cast<uint32_t>(values.size()), .parameter = parameter},
              out->data());
  return absl::OkStatus();
}

size_t DenseCodec::ScaleBytes(size_t n) const {
  const auto block = static_cast<size_t>(block_size);
  return block == 0 ? 0 : 2 * ((n + block - 1) / block);
}

absl::Status DenseCodec::CheckParameter(int32_t parameter) const {
  if (parameter == block_size) return absl::OkStatus();
  if (block_size == 0) return absl::InvalidArgumentError(absl::StrCat("compressed tensor: byte 12: must be 0, not ", parameter));
  return absl::InvalidArgumentError(absl::StrCat("compressed tensor: byte 12: blocks of ", block_size, " are known, not of ", parameter));
}

absl::StatusOr<int32_t> DenseCodec::WriteValues(std::span<const float> values, std::byte* out) const {
  const uint32_t greatest = Write(values.data(), values.size(), out);
  if (greatest > kMaxMagnitudeBits) return UnencodableError(values, FindUnencodable(values.data(), values.size()));
  return ParameterOf(greatest);
}

absl::Status DenseCodec::ReadValues(const std::byte* in, int32_t parameter, std::span<float> out) const {
  FUSIONLLM_RETURN_IF_ERROR(CheckParameter(parameter));
  return Read(in, out.size(), parameter, out.data()) ? absl::OkStatus() : ValuesNotFiniteError();
}

bool DenseCodec::AreFinite(std::span<const std::byte> in, size_t n) const {
  // A scale's sign bit counts: no valid one has it set.
  return block_size == 0 || codecs::MaxWord(in.first(ScaleBytes(n)), 0xffff) <= kMaxScaleBits;
}

}  // namespace fusionllm::compression
