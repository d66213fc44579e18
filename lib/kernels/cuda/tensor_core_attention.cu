// Attention of bf16 tensors on tensor cores, after Dao, FlashAttention-2 (arXiv 2307.08691), sections 3.1 to 3.3: forward. Backward is in
// tensor_core_attention_grad.cu.
//
// Factors of products are bf16, probabilities and their gradients among them (rounded once, to nearest even); sums, scores, statistics
// and everything between are fp32; a result is rounded once. A sum belongs to one warp and goes in the order of the tiles, so its bits
// depend on its own row, its head and the shape of the op alone, whatever else is in the batch.
#include "absl/strings/str_cat.h"
#include "lib/kernels/cuda/attention.h"
#include "lib/kernels/cuda/attention_plan.h"
#include "lib/kernels/cuda/attention_tiles.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr int kQueries = 128;  // of a block: 32 of each warp, so that what comes of keys and values serves two products
constexpr int kKeys = 64;      // of a tile
constexpr int kDown = 2, kAcross = kKeys / 8;

// Tiles of keys and values come in turns to a ring of kSlots in shared memory, all but one of them ahead of time. Two blocks fit a
// multiprocessor of 164 KiB (A100).
template <int kHead>
struct ForwardShape {
  static constexpr int kSlots = kHead == 64 ? 4 : 3;
  static constexpr bool kQueriesInRegisters = kHead == 64;
  static constexpr uint32_t kTileBytes = kKeys * Tile<kHead>::kRowBytes, kQueryBytes = kQueries * Tile<kHead>::kRowBytes;
  static constexpr size_t kBytes = kQueryBytes + kSlots * kTileBytes;
};

// Where the keys and values of a block's queries are, from the last tile that one of them sees to the first.
template <int kHead>
class KeysAndValues {
 public:
  __device__ KeysAndValues(const Bf16* qkv, const AttentionExtents& e, int tiles, uint32_t ring)
      : e_(e), keys_(qkv + e.Row(blockIdx.z, 0, 1, blockIdx.y)), items_(2 * tiles), ring_(ring) {}

  // The first items, on their way; what was begun before comes with the first.
  __device__ void BeginAll() const {
#pragma unroll
    for (int i = 0; i < ForwardShape<kHead>::kSlots - 1; ++i) Begin(i);
  }
  // The tile of the next item, once it is there for all; then no warp needs the one before, and another takes its place.
  __device__ uint32_t Next() {
    WaitForCopies<ForwardShape<kHead>::kSlots - 2>();
    __syncthreads();
    Begin(taken_ + ForwardShape<kHead>::kSlots - 1);
    return Slot(taken_++);
  }

 private:
  // A group for each item, though there be none.
  __device__ void Begin(int item) const {
    if (item < items_) {
      const int first = (items_ - 1 - item) / 2 * kKeys;
      Tile<kHead>::template CopyAsync<kKeys>(Slot(item), keys_ + 3 * e_.width * first + item % 2 * e_.width, 3 * e_.width,
                                             static_cast<int>(e_.length) - first, static_cast<int>(e_.size));
    }
    CommitCopies();
  }
  __device__ uint32_t Slot(int item) const { return ring_ + item % ForwardShape<kHead>::kSlots * ForwardShape<kHead>::kTileBytes; }

  const AttentionExtents& e_;
  const Bf16* const keys_;
  const int items_;
  const uint32_t ring_;
  int taken_ = 0;
};

// What a lane keeps of its rows 16 i + 8 half + group: the largest score, the sum of exponentials of this lane's columns.
struct RowStatistics {
  float top[kDown][2], sum[kDown][2];
};

// Turns scores into exponentials against the largest so far, and brings what was added up before to the same measure. Every row sees
// a column of every tile that its warp meets, so the largest is a number.
template <int kHead>
__device__ inline void Exponentials(float (&scores)[kDown][kAcross][4], float (&sums)[kDown][kHead / 8][4], RowStatistics& rows,
                                    float scale_of_2) {
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = rows.top[i][half];
#pragma unroll
      for (int j = 0; j < kAcross; ++j) top = fmaxf(top, fmaxf(scores[i][j][2 * half], scores[i][j][2 * half + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const float keep = FastExp2((rows.top[i][half] - top) * scale_of_2), from = -top * scale_of_2;
      rows.top[i][half] = top;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
#pragma unroll
        for (int c = 2 * half; c < 2 * half + 2; ++c) sum += scores[i][j][c] = FastExp2(fmaf(scores[i][j][c], scale_of_2, from));
      }
      rows.sum[i][half] = rows.sum[i][half] * keep + sum;
#pragma unroll
      for (int j = 0; j < kHead / 8; ++j) {
        sums[i][j][2 * half] *= keep;
        sums[i][j][2 * half + 1] *= keep;
      }
    }
  }
}

template <int kHead>
__global__ __launch_bounds__(kTileThreads, 2) void TensorCoreAttention(const Bf16* qkv, Bf16* y, float* lse, AttentionExtents e) {
  FUSIONLLM_DYNAMIC_SHARED(unsigned char, shared);
  using Shape = ForwardShape<kHead>;
  const uint32_t queries = SharedAddress(shared);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * kDown;
  const int length = static_cast<int>(e.length), size = static_cast<int>(e.size);
  // Blocks with most to do begin first.
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kQueries, warp_first = first + warp_row;
  const int64_t head = blockIdx.y, b = blockIdx.z;
  const int end = e.causal ? min(length, first + kQueries) : length, tiles = (end + kKeys - 1) / kKeys;

  KeysAndValues<kHead> others(qkv, e, tiles, queries + Shape::kQueryBytes);
  Tile<kHead>::template CopyAsync<kQueries>(queries, qkv + e.Row(b, first, 0, head), 3 * e.width, length - first, size);
  others.BeginAll();
  uint32_t keys = others.Next();
  const LeftRows<kHead, kDown, Shape::kQueriesInRegisters> left(queries, warp_row);

  const float scale_of_2 = e.scale * kLog2OfE;
  float sums[kDown][kHead / 8][4] = {};
  RowStatistics rows = {};
#pragma unroll
  for (int i = 0; i < kDown; ++i) rows.top[i][0] = rows.top[i][1] = -INFINITY;
  for (int tile = tiles - 1; tile >= 0; --tile) {
    const int first_key = tile * kKeys;
    const bool met = warp_first < length && (!e.causal || first_key < warp_first + 16 * kDown);
    Weights<kDown, kAcross> weights;
    if (met) {
      float scores[kDown][kAcross][4];
      Scores(scores, left, keys, 0);
      if (first_key + kKeys > length || (e.causal && first_key + kKeys - 1 > warp_first)) {
        const int seen = length - first_key, diagonal = e.causal ? warp_first - first_key : seen;
        Hide(scores, [&](int row, int column) { return column < seen && column <= diagonal + row; });
      }
      Exponentials<kHead>(scores, sums, rows, scale_of_2);
      weights = Weights(scores);
    }
    const uint32_t values = others.Next();
    if (met) AddWeighted<kHead>(sums, weights, values, 0);
    if (tile > 0) keys = others.Next();
  }

#pragma unroll
  for (int i = 0; i < kDown; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = rows.sum[i][half];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const float share = 1 / sum;
#pragma unroll
      for (int j = 0; j < kHead / 8; ++j) {
        sums[i][j][2 * half] *= share;
        sums[i][j][2 * half + 1] *= share;
      }
      const int query = warp_first + 16 * i + 8 * half + lane / 4;
      if (lse != nullptr && lane % 4 == 0 && query < length) lse[e.Statistic(b, query, head)] = rows.top[i][half] * e.scale + logf(sum);
    }
  }
  Tile<kHead>::template Store<kDown>(sums, queries, warp_row, y + e.OutRow(b, warp_first, head), e.width, length - warp_first, size);
}

template <int kHead>
cudaError_t Forward(cudaStream_t stream, const AttentionExtents& e, const Bf16* qkv, Bf16* y, float* lse) {
  constexpr size_t kBytes = ForwardShape<kHead>::kBytes;
  const cudaError_t error = cudaFuncSetAttribute(TensorCoreAttention<kHead>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>((e.length + kQueries - 1) / kQueries), static_cast<unsigned>(e.heads),
                  static_cast<unsigned>(e.batch));
  return Launch(stream, grid, kTileThreads, kBytes, TensorCoreAttention<kHead>, qkv, y, lse, e);
}

class TensorCoreAttentionPlan final : public AttentionPlan {
 public:
  TensorCoreAttentionPlan(Device& device, const AttentionSpec& spec)
      : stream_(device.stream()), spec_(spec), e_(AttentionExtents::Of(spec.batch, spec.length, spec.heads, spec.size, spec.causal)) {}

  size_t workspace_bytes() const override {
    return spec_.pass == AttentionPass::kForward ? 0 : sizeof(float) * static_cast<size_t>(spec_.rows());
  }

  absl::Status Run(const AttentionTensors& t, void* workspace) const override {
    const auto* const qkv = static_cast<const Bf16*>(t.qkv);
    auto* const y = static_cast<Bf16*>(t.y);
    return ToStatus(spec_.pass == AttentionPass::kForward
                        ? (e_.size <= 64 ? Forward<64>(stream_, e_, qkv, y, t.lse) : Forward<128>(stream_, e_, qkv, y, t.lse))
                        : AttentionGradOnTensorCores(stream_, e_, qkv, y, t.lse, static_cast<const Bf16*>(t.dy),
                                                     static_cast<float*>(workspace), static_cast<Bf16*>(t.dqkv)),
                    absl::StrCat("starting ", spec_.ToString()));
  }

 private:
  const cudaStream_t stream_;
  const AttentionSpec spec_;
  const AttentionExtents e_;
};

}  // namespace

std::unique_ptr<AttentionPlan> PrepareTensorCoreAttention(Device& device, const AttentionSpec& spec) {
  return std::make_unique<TensorCoreAttentionPlan>(device, spec);
}

}  // namespace fusionllm::kernels::cuda
