// Blocks of codes in [-7, 7] that share a scale. Gradients need more bits than activations: they travel as int8.
#include "lib/compression/codecs/codecs.h"
#include "lib/compression/quantize.h"

namespace fusionllm::compression::codecs {
namespace {

class Int4Codec final : public DenseCodec {
 public:
  constexpr Int4Codec()
      : DenseCodec({.kind = CodecKind::kInt4,
                    .name = "int4",
                    .values = ValueKind::kInt4,
                    .bits_per_value = 4,
                    .gradient = CodecKind::kInt8,
                    .level = CodecKind::kInt4,
                    .for_loss_inputs = CodecKind::kFp16,
                    .automatic = true,
                    .tolerated_error = 0.15,
                    .error_of_normal = 0.12,
                    .after_divergence = CodecKind::kInt8,
                    .tied_loss_increase = 0.004},
                   Layout::kInt4, kInt4BlockSize) {}

  size_t ValueBytes(size_t n) const override { return ScaleBytes(n) + ScaleBytes(n) / 2 * (kInt4BlockSize / 2); }  // whole blocks

  // docs/results/loss-cost.md, "The prior": the most that any model and seed lost at one cut.
  double ExpectedLossIncrease(const CodecSpec& spec, opdag::ActivationKind kind, int64_t steps) const override {
    constexpr double kHidden = 0.12, kElsewhere = 0.03;
    return kind == opdag::ActivationKind::kHidden ? kHidden : kElsewhere;
  }

 private:
  uint32_t Write(const float* values, size_t n, std::byte* out) const override { return QuantizeInt4(values, n, out, out + ScaleBytes(n)); }
  bool Read(const std::byte* in, size_t n, int32_t parameter, float* out) const override {
    return DequantizeInt4(in, in + ScaleBytes(n), n, out);
  }
};

}  // namespace

const Codec& Int4() {
  static constexpr Int4Codec codec;
  return codec;
}

}  // namespace fusionllm::compression::codecs
