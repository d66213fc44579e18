// Scaled dot-product attention on fused qkv rows: q, k and v each D wide, heads contiguous inside each (GPT-2's c_attn). No T x T tensor is
// ever in memory: after Dao et al., FlashAttention (arXiv 2205.14135), algorithm 1 and appendix B.
//
// bf16 heads of usual sizes are multiplied on tensor cores (attention_plan.h). The kernels here take fp32, and bf16 heads of other sizes,
// with fp32 arithmetic on both.
//
// A block takes one head of one sample and a tile of rows; a warp takes rows one by one and meets the other side in tiles of 32 that the
// block has brought to shared memory. In a tile a lane has one of its 32 rows where scores are computed, and every 32nd component where
// vectors are added up. Backward has a kernel for dq and one for dk and dv, so that every sum belongs to one warp and its order is fixed.
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/attention.h"
#include "lib/kernels/cuda/attention_plan.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/element.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr int kTile = 32;
constexpr int kWarps = 4;
constexpr int kRowsOfBlock = 16;
constexpr int kMaxParts = 8;  // components of a head that a lane adds up: heads of at most 256
constexpr unsigned kAllLanes = 0xffffffffu;

struct Extents : AttentionExtents {
  static Extents Of(const PreparedOp& op) { return {AttentionExtents::Of(op)}; }
  // Rows in shared memory have a word to spare, so that lanes that read one component of 32 rows find 32 banks.
  __host__ __device__ int64_t SharedRow() const { return size + 1; }
  size_t TileBytes() const { return sizeof(float) * kTile * static_cast<size_t>(SharedRow()); }
  size_t RowBytes() const { return sizeof(float) * kWarps * static_cast<size_t>(SharedRow()); }
};

// Brings rows first .. first + 31 of a head to shared memory; zeros beyond the end.
template <typename T>
__device__ inline void LoadTile(const Extents& e, const T* from, int64_t row_of_zero, int64_t stride, int64_t first, float* tile) {
  for (int64_t i = threadIdx.x; i < kTile * e.size; i += blockDim.x) {
    const int64_t row = i / e.size, component = i % e.size;
    tile[row * e.SharedRow() + component] =
        first + row < e.length ? static_cast<float>(from[row_of_zero + (first + row) * stride + component]) : 0.0f;
  }
}

template <typename T>
__device__ inline void LoadRow(const Extents& e, const T* from, float* row) {
  for (int64_t i = threadIdx.x % 32; i < e.size; i += 32) row[i] = from[i];
}

__device__ inline float Dot(const float* a, const float* b, int64_t size) {
  float sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += a[i] * b[i];
  return sum;
}

// sums[part] += sum over the 32 rows of the tile of weight(row) * tile[row]; lane l has the weight of row l, and components l, l + 32, ..
__device__ inline void AddWeightedRows(const Extents& e, float weight, const float* tile, float* sums) {
  const int lane = threadIdx.x % 32;
  for (int row = 0; row < kTile; ++row) {
    const float w = __shfl_sync(kAllLanes, weight, row);
#pragma unroll
    for (int part = 0; part < kMaxParts; ++part) {
      const int64_t component = part * 32 + lane;
      if (component < e.size) sums[part] += w * tile[row * e.SharedRow() + component];
    }
  }
}

template <typename T>
__global__ void AttentionForward(const T* qkv, T* y, float* lse, Extents e) {
  FUSIONLLM_DYNAMIC_SHARED(float, shared);
  float* keys = shared;
  float* values = keys + kTile * e.SharedRow();
  float* query = values + kTile * e.SharedRow() + threadIdx.x / 32 * e.SharedRow();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t head = blockIdx.y, b = blockIdx.z, first_row = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock;
  for (int step = 0; step < kRowsOfBlock / kWarps; ++step) {
    const int64_t t = first_row + step * kWarps + warp;
    const bool mine = t < e.length;
    if (mine) LoadRow(e, qkv + e.Row(b, t, 0, head), query);
    __syncwarp();
    float top = -INFINITY, sum = 0, out[kMaxParts] = {};
    // All warps of the block go through the same tiles: those that the last of its rows sees.
    const int64_t last_row = first_row + (step + 1) * kWarps - 1;
    const int64_t end = e.causal && last_row + 1 < e.length ? last_row + 1 : e.length;
    for (int64_t first = 0; first < end; first += kTile) {
      __syncthreads();
      LoadTile(e, qkv, e.Row(b, 0, 1, head), 3 * e.width, first, keys);
      LoadTile(e, qkv, e.Row(b, 0, 2, head), 3 * e.width, first, values);
      __syncthreads();
      if (!mine) continue;
      const bool seen = e.Sees(t, first + lane);
      const float score = seen ? e.scale * Dot(query, keys + lane * e.SharedRow(), e.size) : -INFINITY;
      const float new_top = fmaxf(top, MaxOverWarp(score));
      if (new_top == -INFINITY) continue;  // none of the tile is seen
      const float keep = expf(top - new_top), p = seen ? expf(score - new_top) : 0.0f;
      sum = sum * keep + SumOverWarp(p);
#pragma unroll
      for (int part = 0; part < kMaxParts; ++part) out[part] *= keep;
      AddWeightedRows(e, p, values, out);
      top = new_top;
    }
    if (mine) {
#pragma unroll
      for (int part = 0; part < kMaxParts; ++part) {
        const int64_t component = part * 32 + lane;
        if (component < e.size) y[e.OutRow(b, t, head) + component] = out[part] / sum;
      }
      if (lse != nullptr && lane == 0) lse[(b * e.heads + head) * e.length + t] = top + logf(sum);
    }
    __syncwarp();
  }
}

// delta = rowsum(dy * y), which equals rowsum(dP * P): a warp for each row of each head.
template <typename T>
__global__ void Deltas(const T* y, const T* dy, float* delta, Extents e) {
  const int64_t rows = e.batch * e.heads * e.length;
  for (int64_t row = FirstElement() / 32; row < rows; row += ElementStride() / 32) {
    const int64_t t = row % e.length, head = row / e.length % e.heads, b = row / (e.length * e.heads);
    const int64_t first = e.OutRow(b, t, head);
    float sum = 0;
    for (int64_t i = threadIdx.x % 32; i < e.size; i += 32) sum += dy[first + i] * y[first + i];
    sum = SumOverWarp(sum);
    if (threadIdx.x % 32 == 0) delta[row] = sum;
  }
}

template <typename T>
__global__ void GradientOfQueries(const T* qkv, const float* lse, const T* dy, const float* delta, T* dqkv, Extents e) {
  FUSIONLLM_DYNAMIC_SHARED(float, shared);
  float* keys = shared;
  float* values = keys + kTile * e.SharedRow();
  float* query = values + kTile * e.SharedRow() + threadIdx.x / 32 * 2 * e.SharedRow();
  float* d_out = query + e.SharedRow();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t head = blockIdx.y, b = blockIdx.z, first_row = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock;
  for (int step = 0; step < kRowsOfBlock / kWarps; ++step) {
    const int64_t t = first_row + step * kWarps + warp;
    const bool mine = t < e.length;
    const int64_t statistic = (b * e.heads + head) * e.length + t;
    if (mine) {
      LoadRow(e, qkv + e.Row(b, t, 0, head), query);
      LoadRow(e, dy + e.OutRow(b, t, head), d_out);
    }
    __syncwarp();
    float dq[kMaxParts] = {};
    const int64_t last_row = first_row + (step + 1) * kWarps - 1;
    const int64_t end = e.causal && last_row + 1 < e.length ? last_row + 1 : e.length;
    for (int64_t first = 0; first < end; first += kTile) {
      __syncthreads();
      LoadTile(e, qkv, e.Row(b, 0, 1, head), 3 * e.width, first, keys);
      LoadTile(e, qkv, e.Row(b, 0, 2, head), 3 * e.width, first, values);
      __syncthreads();
      if (!mine) continue;
      float ds = 0;
      if (e.Sees(t, first + lane)) {
        const float p = expf(e.scale * Dot(query, keys + lane * e.SharedRow(), e.size) - lse[statistic]);
        ds = p * (Dot(d_out, values + lane * e.SharedRow(), e.size) - delta[statistic]) * e.scale;
      }
      AddWeightedRows(e, ds, keys, dq);
    }
    if (mine) {
#pragma unroll
      for (int part = 0; part < kMaxParts; ++part) {
        const int64_t component = part * 32 + lane;
        if (component < e.size) dqkv[e.Row(b, t, 0, head) + component] = dq[part];
      }
    }
    __syncwarp();
  }
}

template <typename T>
__global__ void GradientOfKeysAndValues(const T* qkv, const float* lse, const T* dy, const float* delta, T* dqkv, Extents e) {
  FUSIONLLM_DYNAMIC_SHARED(float, shared);
  float* queries = shared;
  float* d_outs = queries + kTile * e.SharedRow();
  float* key = d_outs + kTile * e.SharedRow() + threadIdx.x / 32 * 2 * e.SharedRow();
  float* value = key + e.SharedRow();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t head = blockIdx.y, b = blockIdx.z, first_row = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock;
  for (int step = 0; step < kRowsOfBlock / kWarps; ++step) {
    const int64_t s = first_row + step * kWarps + warp;
    const bool mine = s < e.length;
    if (mine) {
      LoadRow(e, qkv + e.Row(b, s, 1, head), key);
      LoadRow(e, qkv + e.Row(b, s, 2, head), value);
    }
    __syncwarp();
    float dk[kMaxParts] = {}, dv[kMaxParts] = {};
    // Queries before the block's first row of this step see none of its keys.
    const int64_t begin = e.causal ? (first_row + step * kWarps) / kTile * kTile : 0;
    for (int64_t first = begin; first < e.length; first += kTile) {
      __syncthreads();
      LoadTile(e, qkv, e.Row(b, 0, 0, head), 3 * e.width, first, queries);
      LoadTile(e, dy, e.OutRow(b, 0, head), e.width, first, d_outs);
      __syncthreads();
      if (!mine) continue;
      float p = 0, ds = 0;
      if (e.Sees(first + lane, s)) {
        const int64_t statistic = (b * e.heads + head) * e.length + first + lane;
        p = expf(e.scale * Dot(key, queries + lane * e.SharedRow(), e.size) - lse[statistic]);
        ds = p * (Dot(value, d_outs + lane * e.SharedRow(), e.size) - delta[statistic]) * e.scale;
      }
      AddWeightedRows(e, ds, queries, dk);
      AddWeightedRows(e, p, d_outs, dv);
    }
    if (mine) {
#pragma unroll
      for (int part = 0; part < kMaxParts; ++part) {
        const int64_t component = part * 32 + lane;
        if (component >= e.size) continue;
        dqkv[e.Row(b, s, 1, head) + component] = dk[part];
        dqkv[e.Row(b, s, 2, head) + component] = dv[part];
      }
    }
    __syncwarp();
  }
}

class AttentionBase : public DeviceKernel {
 public:
  AttentionBase(PreparedOp op, Device& device) : DeviceKernel(std::move(op), device), e_(Extents::Of(op_)) {}

 protected:
  dim3 Grid() const {
    return {static_cast<unsigned>((e_.length + kRowsOfBlock - 1) / kRowsOfBlock), static_cast<unsigned>(e_.heads),
            static_cast<unsigned>(e_.batch)};
  }
  // Large heads need more shared memory than a kernel gets unasked.
  template <typename Kernel>
  absl::Status Allow(Kernel kernel, size_t bytes) const {
    return LaunchStatus(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  }

  const Extents e_;
};

template <typename T>
class Attention : public AttentionBase {
 public:
  using AttentionBase::AttentionBase;
  absl::Status Run(const KernelArguments& arguments) override {
    const size_t shared = 2 * e_.TileBytes() + e_.RowBytes();
    FUSIONLLM_RETURN_IF_ERROR(Allow(AttentionForward<T>, shared));
    return LaunchStatus(Launch(stream(), Grid(), kWarps * 32, shared, AttentionForward<T>, arguments.inputs[0].as<T>(),
                               arguments.outputs[0].as<T>(), OutputOrNull(arguments, 1), e_));
  }
};

template <typename T>
class AttentionGrad : public AttentionBase {
 public:
  using AttentionBase::AttentionBase;
  size_t workspace_bytes() const override { return sizeof(float) * static_cast<size_t>(e_.batch * e_.heads * e_.length); }
  absl::Status Run(const KernelArguments& arguments) override {
    const T* qkv = arguments.inputs[0].as<T>();
    const float* lse = arguments.inputs[2].f32();
    const T* dy = arguments.inputs[3].as<T>();
    auto* delta = reinterpret_cast<float*>(arguments.workspace.data());
    T* dqkv = arguments.outputs[0].as<T>();
    const size_t shared = 2 * e_.TileBytes() + 2 * e_.RowBytes();
    FUSIONLLM_RETURN_IF_ERROR(Allow(GradientOfQueries<T>, shared));
    FUSIONLLM_RETURN_IF_ERROR(Allow(GradientOfKeysAndValues<T>, shared));
    FUSIONLLM_RETURN_IF_ERROR(LaunchStatus(Launch(stream(), BlocksFor(e_.batch * e_.heads * e_.length * 32), kThreads, 0, Deltas<T>,
                                                  arguments.inputs[1].as<T>(), dy, delta, e_)));
    FUSIONLLM_RETURN_IF_ERROR(LaunchStatus(
        Launch(stream(), Grid(), kWarps * 32, shared, GradientOfQueries<T>, qkv, lse, dy, static_cast<const float*>(delta), dqkv, e_)));
    return LaunchStatus(Launch(stream(), Grid(), kWarps * 32, shared, GradientOfKeysAndValues<T>, qkv, lse, dy,
                               static_cast<const float*>(delta), dqkv, e_));
  }
};

// bf16 heads of usual sizes, either pass.
class PlannedAttention : public DeviceKernel {
 public:
  PlannedAttention(PreparedOp op, Device& device, AttentionPass pass, std::unique_ptr<AttentionPlan> plan)
      : DeviceKernel(std::move(op), device), pass_(pass), plan_(std::move(plan)) {}
  size_t workspace_bytes() const override { return plan_->workspace_bytes(); }
  absl::Status Run(const KernelArguments& arguments) override {
    AttentionTensors tensors = {.qkv = arguments.inputs[0].data};
    if (pass_ == AttentionPass::kForward) {
      tensors.y = arguments.outputs[0].data;
      tensors.lse = OutputOrNull(arguments, 1);
    } else {
      // Read alone (AttentionTensors).
      tensors.y = const_cast<Bf16*>(arguments.inputs[1].as<Bf16>());
      tensors.lse = const_cast<float*>(arguments.inputs[2].f32());
      tensors.dy = arguments.inputs[3].data;
      tensors.dqkv = arguments.outputs[0].data;
    }
    return plan_->Run(tensors, arguments.workspace.data());
  }

 private:
  const AttentionPass pass_;
  const std::unique_ptr<AttentionPlan> plan_;
};

template <typename K>
KernelOrError MakeAttention(PreparedOp op, Device& device) {
  const Extents e = Extents::Of(op);
  if (e.size > 32 * kMaxParts) {
    return absl::UnimplementedError(
        absl::StrFormat("%sback end 'cuda' takes heads of at most %d, not %d", op.Prefix(), 32 * kMaxParts, e.size));
  }
  return Make<K>(std::move(op), device);
}

template <typename K, AttentionPass kPass>
KernelOrError MakeBf16Attention(PreparedOp op, Device& device) {
  const Extents e = Extents::Of(op);
  if (!AttentionFitsTensorCores(e.size)) return MakeAttention<K>(std::move(op), device);
  FUSIONLLM_ASSIGN_OR_RETURN(
      std::unique_ptr<AttentionPlan> plan,
      PrepareAttention(device,
                       {.pass = kPass, .batch = e.batch, .length = e.length, .heads = e.heads, .size = e.size, .causal = e.causal}));
  return MakePlannedAttention(std::move(op), device, kPass, std::move(plan));
}

template <template <typename> class K, AttentionPass kPass>
constexpr Entry EntryOf(opdag::OpKind kind, absl::string_view inputs, absl::string_view outputs) {
  return {kind, MakeAttention<K<float>>, {MakeBf16Attention<K<Bf16>, kPass>, inputs, outputs}};
}

}  // namespace

std::unique_ptr<Kernel> MakePlannedAttention(PreparedOp op, Device& device, AttentionPass pass, std::unique_ptr<AttentionPlan> plan) {
  return std::make_unique<PlannedAttention>(std::move(op), device, pass, std::move(plan));
}

std::span<const Entry> AttentionKernels() {
  static constexpr Entry kEntries[] = {EntryOf<Attention, AttentionPass::kForward>(OpKind::kAttention, "b", "bf"),
                                       EntryOf<AttentionGrad, AttentionPass::kBackward>(OpKind::kAttentionGrad, "bbfb", "b")};
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
