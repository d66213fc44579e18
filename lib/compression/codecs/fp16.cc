// IEEE halves of x·2^-e, one e for each message.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "lib/compression/codecs/codecs.h"
#include "lib/compression/codecs/sixteen_bits.h"
#include "lib/compression/quantize.h"

namespace fusionllm::compression::codecs {
namespace {

class Fp16Codec final : public DenseCodec {
 public:
  constexpr Fp16Codec()
      : DenseCodec({.kind = CodecKind::kFp16,
                    .name = "fp16",
                    .values = ValueKind::kFp16,
                    .bits_per_value = 16,
                    .gradient = CodecKind::kFp16,
                    .level = CodecKind::kFp16,
                    .for_loss_inputs = CodecKind::kFp16,
                    .automatic = true,
                    .after_divergence = CodecKind::kExact},
                   Layout::kFp16) {}

  size_t ValueBytes(size_t n) const override { return 2 * n; }
  bool has_parameter() const override { return true; }
  int32_t ParameterOf(uint32_t max_magnitude) const override { return HalfExponent(max_magnitude); }
  absl::Status CheckParameter(int32_t parameter) const override {
    if (parameter >= kMinHalfExponent && parameter <= kMaxHalfExponent) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("compressed tensor: byte 12: exponent ", parameter, " is out of range"));
  }
  bool AreFinite(std::span<const std::byte> in, size_t n) const override { return MaxWord(in, 0x7c00) < 0x7c00; }

 private:
  uint32_t Write(const float* values, size_t n, std::byte* out) const override {
    const uint32_t greatest = MaxMagnitude(values, n);
    if (greatest <= kMaxMagnitudeBits) FloatToHalf(values, n, std::ldexp(1.0f, -HalfExponent(greatest)), out);
    return greatest;
  }
  bool Read(const std::byte* in, size_t n, int32_t parameter, float* out) const override {
    return HalfToFloat(in, n, std::ldexp(1.0f, parameter), out);
  }
};

}  // namespace

const Codec& Fp16() {
  static constexpr Fp16Codec codec;
  return codec;
}

}  // namespace fusionllm::compression::codecs
