// Attention by panels: kBlock queries against all the keys they see at once, so that the [T, T] scores of a head never exist.
//
// A panel's scores stay in cache between the two products; the backward pass recomputes them from the saved log-sum-exp (Dao et al.,
// FlashAttention, arXiv 2205.14135, section 3). Heads are the chunks that threads share.
#include <algorithm>
#include <cmath>

#include "lib/kernels/cpu/cpu.h"
#include "lib/kernels/cpu/gemm.h"
#include "lib/kernels/cpu/vector/rows.h"
#include "lib/kernels/cpu/vector/spans.h"

namespace fusionllm::kernels::cpu {
namespace {

constexpr int64_t kBlock = 64;

struct Extents {
  explicit Extents(const PreparedOp& op)
      : batch(op.in(0).dim(0)),
        length(op.in(0).dim(1)),
        width(op.in(0).dim(2) / 3),
        heads(op.attributes.Int("heads", 1)),
        size(width / heads),
        causal(op.attributes.Bool("causal", true)),
        scale(1 / std::sqrt(static_cast<float>(size))) {}

  int64_t chunks() const { return batch * heads; }
  int64_t blocks() const { return ChunkCount(length, kBlock); }
  int64_t panel() const { return kBlock * length; }   // floats
  int64_t QkvOffset(int64_t chunk, int part) const {  // q, k or v of a head at time 0; rows are 3 width apart
    return chunk / heads * length * 3 * width + part * width + chunk % heads * size;
  }
  int64_t Offset(int64_t chunk) const {
    return chunk / heads * length * width + chunk % heads * size;
  }  // of y and dy; rows are width apart

  int64_t batch, length, width, heads, size;
  bool causal;
  float scale;
};

// Queries [first, first + rows) see keys [0, keys); row r of a causal panel only the first `Seen(r)`.
struct Panel {
  Panel(const Extents& e, int64_t block)
      : first(block * kBlock), rows(std::min(kBlock, e.length - first)), keys(e.causal ? first + rows : e.length), causal(e.causal) {}
  int64_t Seen(int64_t row) const { return causal ? first + row + 1 : keys; }
  int64_t first, rows, keys;
  bool causal;
};

void Scores(const Extents& e, const Panel& panel, const float* q, const float* k, float* scores) {
  Multiply({.transpose_b = true,
            .m = panel.rows,
            .n = panel.keys,
            .k = e.size,
            .alpha = e.scale,
            .a = q + panel.first * 3 * e.width,
            .lda = 3 * e.width,
            .b = k,
            .ldb = 3 * e.width,
            .c = scores,
            .ldc = panel.keys});
}

class Attention : public PooledKernel {
 public:
  Attention(PreparedOp op, std::shared_ptr<WorkerPool> pool) : PooledKernel(std::move(op), std::move(pool)), e_(op_) {}

  size_t workspace_bytes() const override { return sizeof(float) * e_.panel() * pool_->threads(); }

  absl::Status Run(const KernelArguments& arguments) override {
    const float* qkv = arguments.inputs[0].f32();
    float* lse = OutputOrNull(arguments, 1);
    pool_->Run(e_.chunks(), [&](int64_t chunk, int slot) {
      float* scores = reinterpret_cast<float*>(arguments.workspace.data()) + slot * e_.panel();
      float* y = arguments.outputs[0].f32() + e_.Offset(chunk);
      for (int64_t block = 0; block < e_.blocks(); ++block) {
        const Panel panel(e_, block);
        Scores(e_, panel, qkv + e_.QkvOffset(chunk, 0), qkv + e_.QkvOffset(chunk, 1), scores);
        for (int64_t row = 0; row < panel.rows; ++row) {
          const float log_sum = Softmax(scores + row * panel.keys, panel.Seen(row), panel.keys);
          if (lse != nullptr) lse[chunk * e_.length + panel.first + row] = log_sum;
        }
        Multiply({.m = panel.rows,
                  .n = e_.size,
                  .k = panel.keys,
                  .a = scores,
                  .lda = panel.keys,
                  .b = qkv + e_.QkvOffset(chunk, 2),
                  .ldb = 3 * e_.width,
                  .c = y + panel.first * e_.width,
                  .ldc = e_.width});
      }
    });
    return absl::OkStatus();
  }

 private:
  // In place over the first `seen` scores, zeros after; returns the log-sum-exp.
  static float Softmax(float* scores, int64_t seen, int64_t keys) {
    const float top = RowMax(scores, seen);
    const float sum = RowExp(scores, top, scores, seen);
    ScaleShift(scores, 1 / sum, 0, scores, seen);
    std::fill(scores + seen, scores + keys, 0.f);
    return top + std::log(sum);
  }

  const Extents e_;
};

class AttentionGrad : public PooledKernel {
 public:
  AttentionGrad(PreparedOp op, std::shared_ptr<WorkerPool> pool) : PooledKernel(std::move(op), std::move(pool)), e_(op_) {}

  size_t workspace_bytes() const override { return sizeof(float) * 2 * e_.panel() * pool_->threads(); }

  absl::Status Run(const KernelArguments& arguments) override {
    pool_->Run(e_.chunks(), [&](int64_t chunk, int slot) {
      float* p = reinterpret_cast<float*>(arguments.workspace.data()) + slot * 2 * e_.panel();
      // From the last panel, which sees every key and overwrites dk and dv; the others add to them.
      for (int64_t block = e_.blocks() - 1; block >= 0; --block) {
        RunPanel(arguments, chunk, Panel(e_, block), block == e_.blocks() - 1 ? 0.f : 1.f, p, p + e_.panel());
      }
    });
    return absl::OkStatus();
  }

 private:
  void RunPanel(const KernelArguments& arguments, int64_t chunk, const Panel& panel, float beta, float* p, float* ds) const {
    const int64_t stride = 3 * e_.width;
    const int64_t q_offset = e_.QkvOffset(chunk, 0), k_offset = e_.QkvOffset(chunk, 1), v_offset = e_.QkvOffset(chunk, 2);
    const int64_t y_offset = e_.Offset(chunk) + panel.first * e_.width;
    const float* qkv = arguments.inputs[0].f32();
    const float* y = arguments.inputs[1].f32() + y_offset;
    const float* lse = arguments.inputs[2].f32() + chunk * e_.length + panel.first;
    const float* dy = arguments.inputs[3].f32() + y_offset;
    float* dqkv = arguments.outputs[0].f32();

    Scores(e_, panel, qkv + q_offset, qkv + k_offset, p);
    Multiply({.transpose_b = true,
              .m = panel.rows,
              .n = panel.keys,
              .k = e_.size,
              .a = dy,
              .lda = e_.width,
              .b = qkv + v_offset,
              .ldb = stride,
              .c = ds,
              .ldc = panel.keys});
    for (int64_t row = 0; row < panel.rows; ++row) {
      float* p_row = p + row * panel.keys;
      float* ds_row = ds + row * panel.keys;
      const int64_t seen = panel.Seen(row);
      const float delta = RowDot(dy + row * e_.width, y + row * e_.width, e_.size);
      RowExp(p_row, lse[row], p_row, seen);
      SoftmaxRowGrad(p_row, ds_row, delta, e_.scale, ds_row, seen);
      std::fill(p_row + seen, p_row + panel.keys, 0.f);
      std::fill(ds_row + seen, ds_row + panel.keys, 0.f);
    }
    Multiply({.m = panel.rows,
              .n = e_.size,
              .k = panel.keys,
              .a = ds,
              .lda = panel.keys,
              .b = qkv + k_offset,
              .ldb = stride,
              .c = dqkv + q_offset + panel.first * stride,
              .ldc = stride});
    Multiply({.transpose_a = true,
              .m = panel.keys,
              .n = e_.size,
              .k = panel.rows,
              .a = ds,
              .lda = panel.keys,
              .b = qkv + q_offset + panel.first * stride,
              .ldb = stride,
              .beta = beta,
              .c = dqkv + k_offset,
              .ldc = stride});
    Multiply({.transpose_a = true,
              .m = panel.keys,
              .n = e_.size,
              .k = panel.rows,
              .a = p,
              .lda = panel.keys,
              .b = dy,
              .ldb = e_.width,
              .beta = beta,
              .c = dqkv + v_offset,
              .ldc = stride});
  }

  const Extents e_;
};

}  // namespace

std::span<const Entry> AttentionKernels() {
  static constexpr Entry kEntries[] = {{OpKind::kAttention, Make<Attention>}, {OpKind::kAttentionGrad, Make<AttentionGrad>}};
  return kEntries;
}

}  // namespace fusionllm::kernels::cpu
