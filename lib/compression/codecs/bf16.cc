// bfloat16, rounded to nearest even.
#include "lib/compression/codecs/codecs.h"
#include "lib/compression/codecs/sixteen_bits.h"
#include "lib/compression/quantize.h"

namespace fusionllm::compression::codecs {
namespace {

class Bf16Codec final : public DenseCodec {
 public:
  constexpr Bf16Codec()
      : DenseCodec({.kind = CodecKind::kBf16,
                    .name = "bf16",
                    .bits_per_value = 16,
                    .gradient = CodecKind::kBf16,
                    .level = CodecKind::kFp16,
                    .for_loss_inputs = CodecKind::kBf16,
                    .after_divergence = CodecKind::kExact,
                    .tied_loss_increase = 0},
                   Layout::kBf16) {}

  size_t ValueBytes(size_t n) const override { return 2 * n; }
  bool AreFinite(std::span<const std::byte> in, size_t n) const override { return MaxWord(in, 0x7fff) <= kMaxScaleBits; }

 private:
  uint32_t Write(const float* values, size_t n, std::byte* out) const override { return FloatToBfloat(values, n, out); }
  bool Read(const std::byte* in, size_t n, int32_t parameter, float* out) const override { return BfloatToFloat(in, n, out); }
};

}  // namespace

const Codec& Bf16() {
  static constexpr Bf16Codec codec;
  return codec;
}

}  // namespace fusionllm::compression::codecs
