// Scaled dot-product attention on fused qkv rows: q, k and v each D wide, heads contiguous inside each (GPT-2's c_attn).
// Backward after Dao et al., FlashAttention (arXiv 2205.14135), section 3 and appendix B: probabilities come back from lse, and
// rowsum(dP * P) equals rowsum(dy * y).
#include <cmath>
#include <vector>

#include "lib/kernels/ref/reference.h"

namespace fusionllm::kernels::ref {
namespace {

struct Extents {
  explicit Extents(const PreparedOp& op)
      : batch(op.in(0).dim(0)),
        length(op.in(0).dim(1)),
        width(op.in(0).dim(2) / 3),
        heads(op.attributes.Int("heads", 1)),
        size(width / heads) {
    causal = op.attributes.Bool("causal", true);
    scale = 1 / std::sqrt(static_cast<double>(size));
  }
  // Keys that query t sees.
  int64_t Seen(int64_t t) const { return causal ? t + 1 : length; }
  // Row of part 0 (q), 1 (k) or 2 (v).
  int64_t Row(int64_t b, int64_t t, int part, int64_t head) const { return ((b * length + t) * 3 + part) * width + head * size; }

  int64_t batch, length, width, heads, size;
  bool causal;
  double scale;
};

double Dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

absl::Status Attention(const PreparedOp& op, const KernelArguments& arguments) {
  const Extents e(op);
  const float* qkv = arguments.inputs[0].f32();
  float* y = arguments.outputs[0].f32();
  float* lse = OutputOrNull(arguments, 1);
  std::vector<double> score(e.length);
  for (int64_t b = 0; b < e.batch; ++b) {
    for (int64_t h = 0; h < e.heads; ++h) {
      for (int64_t t = 0; t < e.length; ++t) {
        double top = -INFINITY;
        for (int64_t s = 0; s < e.Seen(t); ++s) {
          score[s] = e.scale * Dot(qkv + e.Row(b, t, 0, h), qkv + e.Row(b, s, 1, h), e.size);
          top = std::max(top, score[s]);
        }
        double sum = 0;
        for (int64_t s = 0; s < e.Seen(t); ++s) sum += score[s] = std::exp(score[s] - top);
        for (int64_t i = 0; i < e.size; ++i) {
          double value = 0;
          for (int64_t s = 0; s < e.Seen(t); ++s) value += score[s] / sum * qkv[e.Row(b, s, 2, h) + i];
          y[(b * e.length + t) * e.width + h * e.size + i] = static_cast<float>(value);
        }
        if (lse != nullptr) lse[(b * e.heads + h) * e.length + t] = static_cast<float>(top + std::log(sum));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status AttentionGrad(const PreparedOp& op, const KernelArguments& arguments) {
  const Extents e(op);
  const float* qkv = arguments.inputs[0].f32();
  const float* y = arguments.inputs[1].f32();
  const float* lse = arguments.inputs[2].f32();
  const float* dy = arguments.inputs[3].f32();
  std::vector<double> dqkv(op.out(0).elements(), 0);
  for (int64_t b = 0; b < e.batch; ++b) {
    for (int64_t h = 0; h < e.heads; ++h) {
      for (int64_t t = 0; t < e.length; ++t) {
        const int64_t q = e.Row(b, t, 0, h);
        const int64_t out = (b * e.length + t) * e.width + h * e.size;
        const double delta = Dot(dy + out, y + out, e.size);
        for (int64_t s = 0; s < e.Seen(t); ++s) {
          const int64_t k = e.Row(b, s, 1, h);
          const int64_t v = e.Row(b, s, 2, h);
          const double p = std::exp(e.scale * Dot(qkv + q, qkv + k, e.size) - lse[(b * e.heads + h) * e.length + t]);
          const double ds = p * (Dot(dy + out, qkv + v, e.size) - delta) * e.scale;
          for (int64_t i = 0; i < e.size; ++i) {
            dqkv[q + i] += ds * qkv[k + i];
            dqkv[k + i] += ds * qkv[q + i];
            dqkv[v + i] += p * dy[out + i];
          }
        }
      }
    }
  }
  for (size_t i = 0; i < dqkv.size(); ++i) arguments.outputs[0].f32()[i] = static_cast<float>(dqkv[i]);
  return absl::OkStatus();
}

}  // namespace

std::span<const Entry> AttentionKernels() {
  static constexpr Entry kEntries[] = {{OpKind::kAttention, Attention}, {OpKind::kAttentionGrad, AttentionGrad}};
  return kEntries;
}

}  // namespace fusionllm::kernels::ref
