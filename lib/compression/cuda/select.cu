#include "lib/compression/cuda/select.h"

#include "lib/compression/cuda/chunks.h"
#include "lib/compression/cuda/device_code.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::compression::cuda {
namespace {

using kernels::cuda::BlocksFor;
using kernels::cuda::ElementStride;
using kernels::cuda::FirstElement;
using kernels::cuda::kThreads;
using kernels::cuda::Launch;
using kernels::cuda::SumOverBlock;

constexpr int kMostDigits = 2048;
constexpr size_t kHistogramOffset = 256;
constexpr size_t kCountsOffset = kHistogramOffset + kMostDigits * sizeof(uint32_t);

// The k-th magnitude as far as it is known.
struct Kth {
  uint32_t prefix;     // its upper digits; after the last pass, all of it
  uint32_t remaining;  // how many of the k have this prefix; after the last pass, how many of the elements equal to it are kept
};

__global__ void Begin(Kth* kth, uint32_t k) { *kth = {0, k}; }

// How many magnitudes that begin with the prefix have each next digit, but for digit 0: it is looked at last, when all others are known,
// and half of the values behind a ReLU would wait for each other at its counter.
template <bool kFirst>
__global__ void CountDigits(const float* values, int64_t n, Feedback feedback, int shift, int width, const Kth* kth, uint32_t* histogram,
                            uint32_t* greatest) {
  __shared__ uint32_t counts[kMostDigits];
  const uint32_t digits = 1u << width, prefix = kFirst ? 0 : kth->prefix;
  for (uint32_t i = threadIdx.x; i < digits; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  uint32_t own = 0;
  for (int64_t i = FirstElement(); i < n; i += ElementStride()) {
    float x = values[i];
    if (kFirst && feedback.corrected != nullptr) {
      if (feedback.residual != nullptr) x += feedback.residual[i];
      feedback.corrected[i] = x;
    }
    const uint32_t magnitude = MagnitudeOf(x);
    if (kFirst) own = magnitude > own ? magnitude : own;
    const uint32_t digit = (magnitude >> shift) & (digits - 1);
    if (digit != 0 && magnitude >> shift >> width == prefix) atomicAdd(&counts[digit], 1u);
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < digits; i += blockDim.x) {
    if (counts[i] != 0) atomicAdd(&histogram[i], counts[i]);
  }
  if (kFirst) MaxOfGrid(own, greatest);
}

// One block: finds the digit of the k-th magnitude, from the greatest down, and leaves the histogram empty for the next pass.
__global__ void FindDigit(int width, Kth* kth, uint32_t* histogram) {
  const int digits = 1 << width, run = digits / static_cast<int>(blockDim.x);
  const int top = digits - 1 - static_cast<int>(threadIdx.x) * run;  // of this thread's digits
  const Kth before = *kth;
  if (threadIdx.x == blockDim.x - 1) histogram[0] = before.remaining;  // enough
  uint32_t own = 0, all = 0;
  for (int digit = top; digit > top - run; --digit) own += histogram[digit];
  uint32_t above = SumBefore(own, &all);
  if (above < before.remaining && above + own >= before.remaining) {
    int digit = top;
    for (; above + histogram[digit] < before.remaining; --digit) above += histogram[digit];
    *kth = {(before.prefix << width) | static_cast<uint32_t>(digit), before.remaining - above};
  }
  for (int digit = top; digit > top - run; --digit) histogram[digit] = 0;
}

// Two counts in one number: elements above the k-th magnitude in the upper half, elements equal to it in the lower.
__device__ inline unsigned long long Compared(float x, uint32_t kth) {
  const uint32_t magnitude = MagnitudeOf(x);
  if (magnitude > kth) return 1ull << 32;
  return magnitude == kth ? 1 : 0;
}

__global__ void CountChunk(const float* values, int64_t n, const Kth* kth, unsigned long long* counts) {
  const uint32_t magnitude = kth->prefix;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kChunk, end = begin + kChunk < n ? begin + kChunk : n;
  unsigned long long own = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) own += Compared(values[i], magnitude);
  own = SumOverBlock(own);
  if (threadIdx.x == 0) counts[blockIdx.x] = own;
}

__global__ void KeepChunk(const float* values, int64_t n, const Kth* kth, const unsigned long long* counts, SelectionOutput out) {
  const Kth last = *kth;
  unsigned long long before = counts[blockIdx.x];
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kChunk, end = begin + kChunk < n ? begin + kChunk : n;
  for (int64_t stretch = begin; stretch < end; stretch += blockDim.x) {  // the same for all threads of the block
    const int64_t i = stretch + threadIdx.x;
    const float x = i < end ? values[i] : 0.0f;
    const unsigned long long own = i < end ? Compared(x, last.prefix) : 0;
    unsigned long long all = 0;
    const unsigned long long mine = before + SumBefore(own, &all);
    const auto above = static_cast<uint32_t>(mine >> 32), equal = static_cast<uint32_t>(mine);
    const bool keep = own > 1 || (own == 1 && equal < last.remaining);
    if (keep) {
      const uint32_t place = above + (equal < last.remaining ? equal : last.remaining);
      out.indices[place] = static_cast<uint32_t>(i);
      out.kept[place] = x;
    }
    if (out.bitmap != nullptr) {
      const unsigned word = __ballot_sync(0xffffffffu, keep);
      if (threadIdx.x % 32 == 0 && i < end) out.bitmap[i / 32] = word;
    }
    before += all;
  }
}

}  // namespace

size_t SelectionWorkspaceBytes(int64_t n) { return kCountsOffset + sizeof(unsigned long long) * static_cast<size_t>(ChunksOf(n)); }

cudaError_t SelectGreatest(cudaStream_t stream, const float* values, int64_t n, int64_t k, const Feedback& feedback, std::byte* workspace,
                           uint32_t* greatest, const SelectionOutput& out) {
  auto* const kth = reinterpret_cast<Kth*>(workspace);
  auto* const histogram = reinterpret_cast<uint32_t*>(workspace + kHistogramOffset);
  auto* const counts = reinterpret_cast<unsigned long long*>(workspace + kCountsOffset);
  cudaError_t error = cudaMemsetAsync(workspace, 0, kCountsOffset, stream);
  const auto then = [&error](auto&& launch) {
    if (error == cudaSuccess) error = launch();
  };
  then([&] { return Launch(stream, 1, 1, 0, Begin, kth, static_cast<uint32_t>(k)); });
  const unsigned blocks = BlocksFor(n, kThreads, 132 * 8);
  then([&] { return Launch(stream, blocks, kThreads, 0, CountDigits<true>, values, n, feedback, 20, 11, kth, histogram, greatest); });
  then([&] { return Launch(stream, 1, kThreads, 0, FindDigit, 11, kth, histogram); });
  if (feedback.corrected != nullptr) values = feedback.corrected;
  for (const int shift : {10, 0}) {
    then([&] {
      return Launch(stream, blocks, kThreads, 0, CountDigits<false>, values, n, Feedback(), shift, 10, kth, histogram, greatest);
    });
    then([&] { return Launch(stream, 1, kThreads, 0, FindDigit, 10, kth, histogram); });
  }
  const auto chunks = static_cast<unsigned>(ChunksOf(n));
  then([&] { return Launch(stream, chunks, kThreads, 0, CountChunk, values, n, kth, counts); });
  then([&] { return SumChunksBefore(stream, counts, chunks); });
  then([&] { return Launch(stream, chunks, kThreads, 0, KeepChunk, values, n, kth, counts, out); });
  return error;
}

}  // namespace fusionllm::compression::cuda
