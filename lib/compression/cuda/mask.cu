#include "lib/compression/cuda/mask.h"

#include "lib/compression/cuda/chunks.h"
#include "lib/compression/cuda/device_code.h"
#include "lib/compression/mask.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::compression::cuda {
namespace {

using kernels::cuda::BlocksFor;
using kernels::cuda::ElementStride;
using kernels::cuda::FirstElement;
using kernels::cuda::kThreads;
using kernels::cuda::Launch;
using kernels::cuda::SumOverBlock;

constexpr int64_t kBlock = 65536;  // elements that share a count in the offset form
constexpr int64_t kWordsOfChunk = kChunk / 32;

int64_t Blocks(int64_t n) { return (n + kBlock - 1) / kBlock; }

// The number of indices below `bound`.
__device__ inline int64_t Below(const uint32_t* indices, int64_t k, int64_t bound) {
  int64_t low = 0, high = k;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (indices[middle] < bound) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

__global__ void CountOfBlocks(const uint32_t* indices, int64_t k, int64_t blocks, uint32_t* counts) {
  for (int64_t b = FirstElement(); b < blocks; b += ElementStride()) {
    counts[b] = static_cast<uint32_t>(Below(indices, k, (b + 1) * kBlock) - Below(indices, k, b * kBlock));
  }
}

__global__ void OffsetsOf(const uint32_t* indices, int64_t k, uint16_t* offsets) {
  for (int64_t i = FirstElement(); i < k; i += ElementStride()) offsets[i] = static_cast<uint16_t>(indices[i] % kBlock);
}

// A block of threads for each of the mask's; each adds up the counts before it, of which there are at most 16,384.
__global__ void IndicesOfOffsets(const uint32_t* counts, const uint16_t* offsets, uint32_t* indices) {
  unsigned long long before = 0;
  for (unsigned b = threadIdx.x; b < blockIdx.x; b += blockDim.x) before += counts[b];
  before = SumOverBlock(before);
  const unsigned long long end = before + counts[blockIdx.x];
  for (unsigned long long i = before + threadIdx.x; i < end; i += blockDim.x) {
    indices[i] = blockIdx.x * static_cast<uint32_t>(kBlock) + offsets[i];
  }
}

// The bits of a word that stand for elements.
__device__ inline uint32_t WordOf(const uint32_t* bitmap, int64_t word, int64_t n) {
  const int64_t left = n - 32 * word;
  if (left <= 0) return 0;
  return left < 32 ? bitmap[word] & ((1u << left) - 1) : bitmap[word];
}

__global__ void CountBits(const uint32_t* bitmap, int64_t n, unsigned long long* counts) {
  const int64_t word = static_cast<int64_t>(blockIdx.x) * kWordsOfChunk + threadIdx.x;
  const unsigned long long bits = SumOverBlock(static_cast<unsigned long long>(__popc(WordOf(bitmap, word, n))));
  if (threadIdx.x == 0) counts[blockIdx.x] = bits;
}

__global__ void IndicesOfBits(const uint32_t* bitmap, int64_t n, const unsigned long long* counts, uint32_t* indices) {
  const int64_t word = static_cast<int64_t>(blockIdx.x) * kWordsOfChunk + threadIdx.x;
  uint32_t bits = WordOf(bitmap, word, n), all = 0;
  unsigned long long place = counts[blockIdx.x] + SumBefore(static_cast<uint32_t>(__popc(bits)), &all);
  for (; bits != 0; bits &= bits - 1)
    indices[place++] = static_cast<uint32_t>(32 * word) + static_cast<uint32_t>(__ffs(static_cast<int>(bits)) - 1);
}

__global__ void GatherKept(const float* dense, const uint32_t* indices, int64_t k, float* kept) {
  for (int64_t i = FirstElement(); i < k; i += ElementStride()) kept[i] = dense[indices[i]];
}

__global__ void ScatterKept(const float* kept, const uint32_t* indices, int64_t k, float* dense) {
  for (int64_t i = FirstElement(); i < k; i += ElementStride()) dense[indices[i]] = kept[i];
}

__global__ void SubtractAt(const float* kept, const uint32_t* indices, int64_t k, float* dense) {
  for (int64_t i = FirstElement(); i < k; i += ElementStride()) dense[indices[i]] -= kept[i];
}

}  // namespace

cudaError_t WriteOffsets(cudaStream_t stream, const uint32_t* indices, int64_t n, int64_t k, std::byte* out) {
  const int64_t blocks = Blocks(n);
  auto* const counts = reinterpret_cast<uint32_t*>(out);
  const cudaError_t error = Launch(stream, BlocksFor(blocks), kThreads, 0, CountOfBlocks, indices, k, blocks, counts);
  if (error != cudaSuccess) return error;
  return Launch(stream, BlocksFor(k), kThreads, 0, OffsetsOf, indices, k, reinterpret_cast<uint16_t*>(counts + blocks));
}

size_t MaskWorkspaceBytes(int64_t n) { return sizeof(unsigned long long) * static_cast<size_t>(ChunksOf(n)); }

cudaError_t ReadMask(cudaStream_t stream, const std::byte* mask, int64_t n, int64_t k, std::byte* workspace, uint32_t* indices) {
  const auto* const words = reinterpret_cast<const uint32_t*>(mask);
  if (!Mask::UsesBitmap(n, k)) {
    const int64_t blocks = Blocks(n);
    return Launch(stream, static_cast<unsigned>(blocks), kThreads, 0, IndicesOfOffsets, words,
                  reinterpret_cast<const uint16_t*>(words + blocks), indices);
  }
  auto* const counts = reinterpret_cast<unsigned long long*>(workspace);
  const auto chunks = static_cast<unsigned>(ChunksOf(n));
  cudaError_t error = Launch(stream, chunks, static_cast<unsigned>(kWordsOfChunk), 0, CountBits, words, n, counts);
  if (error == cudaSuccess) error = SumChunksBefore(stream, counts, chunks);
  if (error != cudaSuccess) return error;
  return Launch(stream, chunks, static_cast<unsigned>(kWordsOfChunk), 0, IndicesOfBits, words, n, counts, indices);
}

cudaError_t Gather(cudaStream_t stream, const float* dense, const uint32_t* indices, int64_t k, float* kept) {
  return Launch(stream, BlocksFor(k), kThreads, 0, GatherKept, dense, indices, k, kept);
}
cudaError_t Scatter(cudaStream_t stream, const float* kept, const uint32_t* indices, int64_t k, int64_t n, float* dense) {
  const cudaError_t error = cudaMemsetAsync(dense, 0, sizeof(float) * static_cast<size_t>(n), stream);
  if (error != cudaSuccess) return error;
  return Launch(stream, BlocksFor(k), kThreads, 0, ScatterKept, kept, indices, k, dense);
}
cudaError_t SubtractKept(cudaStream_t stream, const float* kept, const uint32_t* indices, int64_t k, float* dense) {
  return Launch(stream, BlocksFor(k), kThreads, 0, SubtractAt, kept, indices, k, dense);
}

}  // namespace fusionllm::compression::cuda
