// Backward of attention on tensor cores, after Dao, FlashAttention-2 (arXiv 2307.08691), section 3.1.2: probabilities come back from
// lse, and rowsum(dP * P) equals rowsum(dy * y). What is rounded, and when, is said in tensor_core_attention.cu; scale comes last, in fp32.
//
// Two kernels, for dq and for dk with dv, each with its rows in blocks and the other side passing by. One kernel would multiply 5 tiles
// where these multiply 7; but its dq would be added up in memory, in fp32 and across blocks: by atomics, whose order is not fixed, or by
// blocks that wait for their turn. So every sum belongs to one warp, and nothing but its result goes to memory.
#include "lib/kernels/cuda/attention.h"
#include "lib/kernels/cuda/attention_tiles.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr int kStep = 32;  // rows of the other side that are multiplied at once
constexpr int kAcross = kStep / 8;

// A block has two tiles of its own rows (queries and dy, or keys and values); pairs of the other side's come to two places in turns. What a
// warp adds up must fit its registers: heads of 128 have half the rows. Two blocks fit a multiprocessor of 164 KiB (A100).
template <int kHead>
struct GradShape {
  static constexpr int kDown = kHead == 64 ? 2 : 1;
  static constexpr int kRows = 4 * 16 * kDown, kTileRows = kHead == 64 ? 64 : 32;
  static constexpr uint32_t kOwnBytes = kRows * Tile<kHead>::kRowBytes, kTileBytes = kTileRows * Tile<kHead>::kRowBytes;
  static constexpr uint32_t kStatistics = 2 * kOwnBytes + 4 * kTileBytes;  // where they begin: of own rows, or of each pair's
  static constexpr size_t kQueriesBytes = kStatistics + 2 * sizeof(float) * kRows;
  static constexpr size_t kKeysBytes = kStatistics + 4 * sizeof(float) * kTileRows;
};

template <int kHead>
struct GradArguments {
  const Bf16 *qkv, *y;
  const float* lse;
  const Bf16* dy;
  float* delta;
  Bf16* dqkv;
  AttentionExtents e;
};

// delta = rowsum(dy * y) of the block's queries, to memory for the other kernel and, behind -lse / ln 2, to shared memory. In queries
// beyond the end exponentials are to be 0.
template <int kHead>
__device__ inline void Deltas(const GradArguments<kHead>& a, int64_t b, int64_t head, int first, uint32_t statistics) {
  constexpr int kPieces = Tile<kHead>::kPieces;
  const int piece = static_cast<int>(threadIdx.x) % kPieces;
#pragma unroll
  for (int i = 0; i < GradShape<kHead>::kRows * kPieces / kTileThreads; ++i) {  // all loads at once
    const int row = static_cast<int>(threadIdx.x) / kPieces + i * (kTileThreads / kPieces);
    const bool there = first + row < a.e.length;
    float sum = 0;
    if (there && piece * 8 < a.e.size) {
      const int64_t at = a.e.OutRow(b, first + row, head) + piece * 8;
      const Words y = *reinterpret_cast<const Words*>(a.y + at), dy = *reinterpret_cast<const Words*>(a.dy + at);
      for (int w = 0; w < 4; ++w) sum += LowOf(y.words[w]) * LowOf(dy.words[w]) + HighOf(y.words[w]) * HighOf(dy.words[w]);
    }
    for (int mask = kPieces / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    if (piece != 0) continue;
    const int64_t statistic = a.e.Statistic(b, first + row, head);
    StoreShared(statistics + 8 * row, __float_as_uint(there ? -a.lse[statistic] * kLog2OfE : -INFINITY));
    StoreShared(statistics + 8 * row + 4, __float_as_uint(sum));
    if (there) a.delta[statistic] = sum;
  }
}

template <int kHead>
__global__ __launch_bounds__(kTileThreads, 2) void GradientOfQueries(GradArguments<kHead> a) {
  FUSIONLLM_DYNAMIC_SHARED(unsigned char, shared);
  using Shape = GradShape<kHead>;
  constexpr int kDown = Shape::kDown;
  const AttentionExtents& e = a.e;
  const uint32_t queries = SharedAddress(shared), d_outs = queries + Shape::kOwnBytes, pairs = d_outs + Shape::kOwnBytes;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * kDown;
  const int length = static_cast<int>(e.length), size = static_cast<int>(e.size);
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Shape::kRows, warp_first = first + warp_row;  // the longest begin first
  const int64_t head = blockIdx.y, b = blockIdx.z;
  const int end = e.causal ? min(length, first + Shape::kRows) : length, tiles = (end + Shape::kTileRows - 1) / Shape::kTileRows;

  const auto begin = [&](int tile) {
    const uint32_t to = pairs + tile % 2 * 2 * Shape::kTileBytes;
    const Bf16* const keys = a.qkv + e.Row(b, tile * Shape::kTileRows, 1, head);
    const int there = length - tile * Shape::kTileRows;
    Tile<kHead>::template CopyAsync<Shape::kTileRows>(to, keys, 3 * e.width, there, size);
    Tile<kHead>::template CopyAsync<Shape::kTileRows>(to + Shape::kTileBytes, keys + e.width, 3 * e.width, there, size);
    CommitCopies();
  };
  Tile<kHead>::template CopyAsync<Shape::kRows>(queries, a.qkv + e.Row(b, first, 0, head), 3 * e.width, length - first, size);
  Tile<kHead>::template CopyAsync<Shape::kRows>(d_outs, a.dy + e.OutRow(b, first, head), e.width, length - first, size);
  begin(0);
  Deltas(a, b, head, first, queries + Shape::kStatistics);
  WaitForCopies<0>();
  __syncthreads();
  const LeftRows<kHead, kDown, true> left_q(queries, warp_row), left_dy(d_outs, warp_row);
  float2 statistics[kDown][2];  // -lse / ln 2 and delta
#pragma unroll
  for (int i = 0; i < 2 * kDown; ++i) {
    statistics[i / 2][i % 2] = LoadShared2(queries + Shape::kStatistics + 8 * (warp_row + 8 * i + lane / 4));
  }

  const float scale_of_2 = e.scale * kLog2OfE;
  float sums[kDown][kHead / 8][4] = {};
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile > 0) {
      WaitForCopies<0>();
      __syncthreads();
    }
    if (tile + 1 < tiles) begin(tile + 1);  // to where no warp reads since the barrier
    const uint32_t keys = pairs + tile % 2 * 2 * Shape::kTileBytes, values = keys + Shape::kTileBytes;
#pragma unroll 1
    for (int row = 0; row < Shape::kTileRows; row += kStep) {
      const int first_key = tile * Shape::kTileRows + row;
      if (warp_first >= length || first_key >= length || (e.causal && first_key >= warp_first + 16 * kDown)) break;
      float p[kDown][kAcross][4], dp[kDown][kAcross][4];
      Scores(p, left_q, keys, row);
      if (first_key + kStep > length || (e.causal && first_key + kStep - 1 > warp_first)) {
        const int seen = length - first_key, diagonal = e.causal ? warp_first - first_key : seen;
        Hide(p, [&](int query, int key) { return key < seen && key <= diagonal + query; });
      }
      Scores(dp, left_dy, values, row);
#pragma unroll
      for (int i = 0; i < kDown; ++i) {
#pragma unroll
        for (int j = 0; j < kAcross; ++j) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const float2 of_row = statistics[i][c / 2];
            p[i][j][c] = FastExp2(fmaf(p[i][j][c], scale_of_2, of_row.x)) * (dp[i][j][c] - of_row.y);
          }
        }
      }
      AddWeighted<kHead>(sums, Weights(p), keys, row);
    }
  }
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
#pragma unroll
    for (int j = 0; j < kHead / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) sums[i][j][c] *= e.scale;
    }
  }
  Tile<kHead>::template Store<kDown>(sums, queries, warp_row, a.dqkv + e.Row(b, warp_first, 0, head), 3 * e.width, length - warp_first,
                                     size);
}

// Scores are transposed here: a warp's rows are keys, so that its probabilities are left factors of what dv and dk add up. Queries beyond
// the end have zeros for q, dy and statistics, and add none.
template <int kHead>
__global__ __launch_bounds__(kTileThreads, 2) void GradientOfKeysAndValues(GradArguments<kHead> a) {
  FUSIONLLM_DYNAMIC_SHARED(unsigned char, shared);
  using Shape = GradShape<kHead>;
  constexpr int kDown = Shape::kDown;
  const AttentionExtents& e = a.e;
  const uint32_t keys = SharedAddress(shared), values = keys + Shape::kOwnBytes, pairs = values + Shape::kOwnBytes;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp_row = static_cast<int>(threadIdx.x) / 32 * 16 * kDown;
  const int length = static_cast<int>(e.length), size = static_cast<int>(e.size);
  const int first = static_cast<int>(blockIdx.x) * Shape::kRows, warp_first = first + warp_row;  // the longest begin first
  const int64_t head = blockIdx.y, b = blockIdx.z;
  const int tiles = (length + Shape::kTileRows - 1) / Shape::kTileRows, first_tile = e.causal ? first / Shape::kTileRows : 0;

  const auto pair_of = [&](int tile) { return pairs + tile % 2 * 2 * Shape::kTileBytes; };
  const auto statistics_of = [&](int tile) {
    return keys + Shape::kStatistics + static_cast<uint32_t>(tile % 2 * 2 * sizeof(float) * Shape::kTileRows);
  };
  const auto begin = [&](int tile) {
    const int first_query = tile * Shape::kTileRows, there = length - first_query;
    Tile<kHead>::template CopyAsync<Shape::kTileRows>(pair_of(tile), a.qkv + e.Row(b, first_query, 0, head), 3 * e.width, there, size);
    Tile<kHead>::template CopyAsync<Shape::kTileRows>(pair_of(tile) + Shape::kTileBytes, a.dy + e.OutRow(b, first_query, head), e.width,
                                                      there, size);
    const int i = static_cast<int>(ThreadHere()), row = static_cast<int>(ThreadHere() % Shape::kTileRows);
    if (i < 2 * Shape::kTileRows) {  // lse of each query, then delta
      const float* const from = (i < Shape::kTileRows ? a.lse : a.delta) + e.Statistic(b, first_query, head);
      Copy4Async(statistics_of(tile) + 4 * i, row < there ? from + row : from, row < there);
    }
    CommitCopies();
  };
  const Bf16* const own = a.qkv + e.Row(b, first, 1, head);
  Tile<kHead>::template CopyAsync<Shape::kRows>(keys, own, 3 * e.width, length - first, size);
  Tile<kHead>::template CopyAsync<Shape::kRows>(values, own + e.width, 3 * e.width, length - first, size);
  begin(first_tile);

  const LeftRows<kHead, kDown, false> left_k(keys, warp_row), left_v(values, warp_row);
  const float scale_of_2 = e.scale * kLog2OfE;
  float dk[kDown][kHead / 8][4] = {}, dv[kDown][kHead / 8][4] = {};
  for (int tile = first_tile; tile < tiles; ++tile) {
    WaitForCopies<0>();
    __syncthreads();
    if (tile + 1 < tiles) begin(tile + 1);  // to where no warp reads since the barrier
    const uint32_t queries = pair_of(tile), d_outs = queries + Shape::kTileBytes;
#pragma unroll 1
    for (int row = 0; row < Shape::kTileRows; row += kStep) {
      const int first_query = tile * Shape::kTileRows + row;
      if (warp_first >= length || first_query >= length) break;
      if (e.causal && first_query + kStep <= warp_first) continue;
      float p[kDown][kAcross][4], dp[kDown][kAcross][4];
      Scores(p, left_k, queries, row);
      if (e.causal && first_query < warp_first + 16 * kDown - 1) {
        Hide(p, [&](int key, int query) { return key <= first_query - warp_first + query; });
      }
      const uint32_t statistics = statistics_of(tile) + 4 * (row + lane % 4 * 2);
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        const float2 lse = LoadShared2(statistics + 32 * j);
#pragma unroll
        for (int i = 0; i < kDown; ++i) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            p[i][j][c] = FastExp2(fmaf(p[i][j][c], scale_of_2, (c % 2 == 0 ? lse.x : lse.y) * -kLog2OfE));
          }
        }
      }
      AddWeighted<kHead>(dv, Weights(p), d_outs, row);
      Scores(dp, left_v, d_outs, row);
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        const float2 delta = LoadShared2(statistics + 4 * Shape::kTileRows + 32 * j);
#pragma unroll
        for (int i = 0; i < kDown; ++i) {
#pragma unroll
          for (int c = 0; c < 4; ++c) p[i][j][c] *= dp[i][j][c] - (c % 2 == 0 ? delta.x : delta.y);
        }
      }
      AddWeighted<kHead>(dk, Weights(p), queries, row);
    }
  }
#pragma unroll
  for (int i = 0; i < kDown; ++i) {
#pragma unroll
    for (int j = 0; j < kHead / 8; ++j) {
#pragma unroll
      for (int c = 0; c < 4; ++c) dk[i][j][c] *= e.scale;
    }
  }
  Bf16* const to = a.dqkv + e.Row(b, warp_first, 1, head);
  Tile<kHead>::template Store<kDown>(dk, keys, warp_row, to, 3 * e.width, length - warp_first, size);
  Tile<kHead>::template Store<kDown>(dv, values, warp_row, to + e.width, 3 * e.width, length - warp_first, size);
}

template <int kHead>
cudaError_t Backward(cudaStream_t stream, const GradArguments<kHead>& a) {
  using Shape = GradShape<kHead>;
  constexpr size_t kQueriesBytes = Shape::kQueriesBytes, kKeysBytes = Shape::kKeysBytes;
  cudaError_t error = cudaFuncSetAttribute(GradientOfQueries<kHead>, cudaFuncAttributeMaxDynamicSharedMemorySize, kQueriesBytes);
  if (error != cudaSuccess) return error;
  error = cudaFuncSetAttribute(GradientOfKeysAndValues<kHead>, cudaFuncAttributeMaxDynamicSharedMemorySize, kKeysBytes);
  if (error != cudaSuccess) return error;
  const dim3 grid(static_cast<unsigned>((a.e.length + Shape::kRows - 1) / Shape::kRows), static_cast<unsigned>(a.e.heads),
                  static_cast<unsigned>(a.e.batch));
  error = Launch(stream, grid, kTileThreads, kQueriesBytes, GradientOfQueries<kHead>, a);  // leaves delta for the other
  if (error != cudaSuccess) return error;
  return Launch(stream, grid, kTileThreads, kKeysBytes, GradientOfKeysAndValues<kHead>, a);
}

}  // namespace

cudaError_t AttentionGradOnTensorCores(cudaStream_t stream, const AttentionExtents& e, const Bf16* qkv, const Bf16* y, const float* lse,
                                       const Bf16* dy, float* delta, Bf16* dqkv) {
  return e.size <= 64 ? Backward<64>(stream, {qkv, y, lse, dy, delta, dqkv, e}) : Backward<128>(stream, {qkv, y, lse, dy, delta, dqkv, e});
}

}  // namespace fusionllm::kernels::cuda
