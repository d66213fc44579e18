// Blocks of codes in [-127, 127] that share a scale.
#include "lib/compression/codecs/codecs.h"
#include "lib/compression/quantize.h"

namespace fusionllm::compression::codecs {
namespace {

class Int8Codec final : public DenseCodec {
 public:
  // It cost nothing that could be distinguished from chance.
  constexpr Int8Codec()
      : DenseCodec({.kind = CodecKind::kInt8,
                    .name = "int8",
                    .values = ValueKind::kInt8,
                    .bits_per_value = 8,
                    .gradient = CodecKind::kInt8,
                    .level = CodecKind::kInt8,
                    .for_loss_inputs = CodecKind::kFp16,
                    .automatic = true,
                    .tolerated_error = 0.05,
                    .after_divergence = CodecKind::kFp16,
                    .tied_loss_increase = 0},
                   Layout::kInt8, kInt8BlockSize) {}

  size_t ValueBytes(size_t n) const override { return ScaleBytes(n) + n; }

 private:
  uint32_t Write(const float* values, size_t n, std::byte* out) const override { return QuantizeInt8(values, n, out, out + ScaleBytes(n)); }
  bool Read(const std::byte* in, size_t n, int32_t parameter, float* out) const override {
    return DequantizeInt8(in, in + ScaleBytes(n), n, out);
  }
};

}  // namespace

const Codec& Int8() {
  static constexpr Int8Codec codec;
  return codec;
}

}  // namespace fusionllm::compression::codecs
