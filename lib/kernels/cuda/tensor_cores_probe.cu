#include "lib/kernels/cuda/tensor_cores_probe.h"

#include "lib/kernels/cuda/attention_tiles.h"
#include "lib/kernels/cuda/launch.h"
#include "lib/kernels/cuda/tensor_cores.h"

namespace fusionllm::kernels::cuda {
namespace {

__global__ void Loads(const Bf16* matrices, Words* plain, Words* transposed) {
  FUSIONLLM_DYNAMIC_SHARED(unsigned char, shared);
  const uint32_t row = SharedAddress(shared) + 16 * threadIdx.x;
  Copy16Async(row, matrices + 8 * threadIdx.x, true);
  CommitCopies();
  WaitForCopies<0>();
  __syncwarp();
  plain[threadIdx.x] = LoadMatrices(row);
  transposed[threadIdx.x] = LoadMatricesTransposed(row);
}

template <int kHead, bool kInRegisters>
__global__ void Tiles(const Bf16* left, int rows, const Bf16* right, int others, int size, float* scores, Bf16* products) {
  FUSIONLLM_DYNAMIC_SHARED(unsigned char, shared);
  constexpr int kDown = 2, kAcross = 8;
  const uint32_t own = SharedAddress(shared), other = own + 128 * Tile<kHead>::kRowBytes;
  const int lane = static_cast<int>(threadIdx.x) % 32, first = static_cast<int>(threadIdx.x) / 32 * 32;
  Tile<kHead>::template CopyAsync<128>(own, left, size, rows, size);
  Tile<kHead>::template CopyAsync<64>(other, right, size, others, size);
  CommitCopies();
  WaitForCopies<0>();
  __syncthreads();
  float sums[kDown][kAcross][4], added[kDown][kHead / 8][4] = {};
  Scores(sums, LeftRows<kHead, kDown, kInRegisters>(own, first), other, 0);
  for (int i = 0; i < kDown; ++i) {
    for (int j = 0; j < kAcross; ++j) {
      for (int c = 0; c < 4; ++c) scores[(first + 16 * i + c / 2 * 8 + lane / 4) * 64 + 8 * j + lane % 4 * 2 + c % 2] = sums[i][j][c];
    }
  }
  AddWeighted<kHead>(added, Weights(sums), other, 0);
  Tile<kHead>::template Store<kDown>(added, own, first, products + first * size, size, rows - first, size);
}

__global__ void Copies(const uint32_t* from, uint32_t* early, uint32_t* late) {
  FUSIONLLM_DYNAMIC_SHARED(uint32_t, shared);
  const uint32_t to = SharedAddress(shared);
  Copy16Async(to, from, true);
  CommitCopies();
  Copy16Async(to + 16, from + 4, false);
  CommitCopies();
  Copy4Async(to + 32, from + 8, true);
  Copy4Async(to + 36, from + 9, false);
  CommitCopies();
  WaitForCopies<2>();
  for (int i = 0; i < 12; ++i) early[i] = shared[i];
  WaitForCopies<0>();
  for (int i = 0; i < 12; ++i) late[i] = shared[i];
}

__global__ void Exponentials(const float* x, float* y) { y[threadIdx.x] = FastExp2(x[threadIdx.x]); }

const Bf16* AsBf16(const uint16_t* bits) { return reinterpret_cast<const Bf16*>(bits); }

template <int kHead>
cudaError_t Probe(cudaStream_t stream, const uint16_t* left, int rows, const uint16_t* right, int others, int size, float* scores,
                  uint16_t* products) {
  constexpr size_t kBytes = (128 + 64) * Tile<kHead>::kRowBytes;
  const cudaError_t error = cudaFuncSetAttribute(Tiles<kHead, kHead == 64>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  return Launch(stream, 1, kTileThreads, kBytes, Tiles<kHead, kHead == 64>, AsBf16(left), rows, AsBf16(right), others, size, scores,
                reinterpret_cast<Bf16*>(products));
}

}  // namespace

cudaError_t ProbeLoads(cudaStream_t stream, const uint16_t* matrices, uint32_t* plain, uint32_t* transposed) {
  return Launch(stream, 1, 32, 512, Loads, AsBf16(matrices), reinterpret_cast<Words*>(plain), reinterpret_cast<Words*>(transposed));
}

cudaError_t ProbeTiles(cudaStream_t stream, int head, const uint16_t* left, int rows, const uint16_t* right, int others, int size,
                       float* scores, uint16_t* products) {
  return head == 64 ? Probe<64>(stream, left, rows, right, others, size, scores, products)
                    : Probe<128>(stream, left, rows, right, others, size, scores, products);
}

cudaError_t ProbeCopies(cudaStream_t stream, const uint32_t* from, uint32_t* early, uint32_t* late) {
  return Launch(stream, 1, 1, 48, Copies, from, early, late);
}

cudaError_t ProbeExponentials(cudaStream_t stream, const float* x, int count, float* y) {
  return Launch(stream, 1, static_cast<unsigned>(count), 0, Exponentials, x, y);
}

}  // namespace fusionllm::kernels::cuda
