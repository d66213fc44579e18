// Every bit as it is, NaN included.
#include <cstring>

#include "lib/compression/codecs/codecs.h"

namespace fusionllm::compression::codecs {
namespace {

class Fp32Codec final : public DenseCodec {
 public:
  constexpr Fp32Codec()
      : DenseCodec({.kind = CodecKind::kExact,
                    .name = "fp32",
                    .gradient = CodecKind::kExact,
                    .level = CodecKind::kExact,
                    .for_loss_inputs = CodecKind::kExact,
                    .after_divergence = CodecKind::kExact,
                    .tied_loss_increase = 0},
                   Layout::kExact) {}

  // A bf16 tensor is sent as it is, too (EncodeBf16).
  int64_t PayloadBytes(const CodecSpec& spec, int64_t n, Direction direction, int64_t bytes_of_element) const override {
    return bytes_of_element * n;
  }
  size_t ValueBytes(size_t n) const override { return 4 * n; }

 private:
  uint32_t Write(const float* values, size_t n, std::byte* out) const override {
    if (n > 0) std::memcpy(out, values, 4 * n);
    return 0;
  }
  bool Read(const std::byte* in, size_t n, int32_t parameter, float* out) const override {
    if (n > 0) std::memcpy(out, in, 4 * n);
    return true;
  }
};

}  // namespace

const Codec& Fp32() {
  static constexpr Fp32Codec codec;
  return codec;
}

}  // namespace fusionllm::compression::codecs
