// What the kernels of a selection (select.h) share: what its workspace holds, loads of chunks, histograms of digits and how they are read.
// For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "lib/compression/cuda/chunks.h"
#include "lib/compression/cuda/device_code.h"
#include "lib/compression/cuda/select.h"
#include "lib/kernels/cuda/launch.h"

namespace fusionllm::compression::cuda {

using kernels::cuda::kThreads;

inline constexpr int kDigits = 4096;            // counters of a histogram
inline constexpr int kOwn = kChunk / kThreads;  // elements of a chunk that are a thread's
inline constexpr uint32_t kChunkElements = kChunk;
inline constexpr uint32_t kChunksOfTile = 8;  // a warp for each
inline constexpr uint32_t kTile = kChunksOfTile * kChunkElements;
inline constexpr int kWordsOfTile = kTile / 32;
inline int64_t TilesOf(int64_t n) { return (n + kTile - 1) / kTile; }

// Digits of whole magnitudes, from the top: 12, 12 and 7 bits.
inline constexpr int kFirstShift = 19, kSecondShift = 7;
inline constexpr uint32_t kLastDigits = 128;

// Of a large card. Passes have a few blocks for each, which go on in strides of all: as many as fit where registers are the limit, and no
// more where each has a histogram to add to the one of all, or often ends at once.
inline constexpr int64_t kMultiprocessors = 132;

// The tensor. With feedback it is `values` until the first pass has made the sums, then these.
struct Elements {
  const float* values;
  uint32_t count;
  bool aligned;  // it and what goes with it, to 16 bytes
};

// The k-th magnitude as far as it is known: the `remaining`-th greatest among those from `least` up to where the digits not yet known end.
// When all are, it is `least`, and so many of those equal to it are kept.
struct Kth {
  uint32_t least;
  uint32_t remaining;
};

struct Progress {
  SelectionAlgorithm way;
  uint32_t tiles;       // that have been taken up
  uint32_t candidates;  // found; more than there is room for are not written
  uint32_t threshold;
  Kth kth[3];  // before each digit
};

struct alignas(8) Candidate {
  uint32_t index;
  uint32_t magnitude;
};
// Where the candidates of a chunk are, in no order.
struct alignas(8) CandidateRange {
  uint32_t first;
  uint32_t count;
};

// What the workspace holds; see select.cu for what is zero at the start.
struct Workspace {
  Progress* progress;
  uint32_t* digits;  // 3 histograms
  unsigned long long* tiles;
  uint32_t* sampled;  // histogram
  uint32_t* parts;    // of its digits, kParts
  uint32_t* counted;  // histogram of candidates
  CandidateRange* stretches;
  Candidate* candidates;  // PlanSample's room
};

// Counters of parts of the sample's digits (candidates.cu).
inline constexpr int kParts = 16384;

struct alignas(16) FourCounts {
  uint32_t of[4];
};

// A thread's elements of a chunk: four times four that lie together.
__device__ inline uint32_t PlaceOf(uint32_t begin, int e) { return begin + e / 4 * (4 * kThreads) + 4 * threadIdx.x + e % 4; }

// Zeros beyond n. All loads are on their way before the first is needed.
__device__ inline void LoadChunk(const float* values, uint32_t begin, const Elements& all, float (&x)[kOwn]) {
  if (all.aligned && begin + kChunkElements <= all.count) {
#pragma unroll
    for (int e = 0; e < kOwn; e += 4) {
      const float4 four = *reinterpret_cast<const float4*>(values + PlaceOf(begin, e));
      x[e] = four.x, x[e + 1] = four.y, x[e + 2] = four.z, x[e + 3] = four.w;
    }
    return;
  }
#pragma unroll
  for (int e = 0; e < kOwn; ++e) x[e] = PlaceOf(begin, e) < all.count ? values[PlaceOf(begin, e)] : 0.0f;
}

// As it is to be selected from: with feedback the sum, which is noted.
template <bool kFeedback>
__device__ inline void LoadCorrected(uint32_t begin, const Elements& all, const Feedback& feedback, float (&x)[kOwn]) {
  LoadChunk(all.values, begin, all, x);
  if (!kFeedback) return;
  if (feedback.residual != nullptr) {
    float residual[kOwn];
    LoadChunk(feedback.residual, begin, all, residual);
#pragma unroll
    for (int e = 0; e < kOwn; ++e) x[e] += residual[e];
  }
  if (all.aligned && begin + kChunkElements <= all.count) {
#pragma unroll
    for (int e = 0; e < kOwn; e += 4) {
      *reinterpret_cast<float4*>(feedback.corrected + PlaceOf(begin, e)) = make_float4(x[e], x[e + 1], x[e + 2], x[e + 3]);
    }
    return;
  }
#pragma unroll
  for (int e = 0; e < kOwn; ++e) {
    if (PlaceOf(begin, e) < all.count) feedback.corrected[PlaceOf(begin, e)] = x[e];
  }
}

// Finds the digit of the k-th magnitude in a histogram; each block for itself, which is quicker than waiting for one that does. What lies
// in the range and is not counted has digit 0, whatever is counted there; but of `candidates`, if any, what is not counted lies above all
// digits, and nothing remains where the k-th does. All threads of a block of kThreads must come, and get the result.
__device__ inline Kth RefineKth(Kth kth, const uint32_t* histogram, int shift, uint32_t candidates = 0) {
  __shared__ Kth narrowed;
  constexpr int kRun = kDigits / kThreads;
  const int top = kDigits - 1 - static_cast<int>(threadIdx.x) * kRun;  // of this thread's digits
  uint32_t own = 0, all = 0;
#pragma unroll
  for (int i = 0; i < kRun; i += 4) {
    const FourCounts four = *reinterpret_cast<const FourCounts*>(histogram + top - i - 3);
    own += four.of[0] + four.of[1] + four.of[2] + four.of[3];
  }
  uint32_t above = SumBefore(own, &all);
  const uint32_t beyond = candidates == 0 ? 0 : candidates - all;
  if (beyond >= kth.remaining) return {0, 0};
  const uint32_t sought = kth.remaining - beyond;
  if (above < sought && (above + own >= sought || top < kRun)) {
    int digit = top;
    for (; digit > 0 && above + histogram[digit] < sought; --digit) above += histogram[digit];
    narrowed = {kth.least + (static_cast<uint32_t>(digit) << shift), sought - above};
  }
  __syncthreads();
  return narrowed;
}

// Counts in shared memory, to be added to a histogram.
struct BlockCounts {
  uint32_t of[kDigits];
  __device__ void Clear() {
    for (int i = threadIdx.x; i < kDigits; i += kThreads) of[i] = 0;
    __syncthreads();
  }
  __device__ void AddTo(uint32_t* histogram) {
    __syncthreads();
    for (int i = threadIdx.x; i < kDigits; i += kThreads) {
      if (of[i] != 0) atomicAdd(&histogram[i], of[i]);
    }
  }
};

// How many magnitudes from `least` on have each next digit, but for digit 0: it is known when all others are, and half of the values
// behind a ReLU would wait for each other at its counter. Returns the greatest magnitude that the thread saw.
template <bool kFeedback>
__device__ uint32_t CountDigits(const Elements& all, const Feedback& feedback, uint32_t least, int shift, BlockCounts& counts,
                                uint32_t* histogram) {
  counts.Clear();
  const uint32_t digits = shift == 0 ? kLastDigits : kDigits;
  uint32_t max_magnitude = 0;
  for (uint32_t begin = blockIdx.x * kChunkElements; begin < all.count; begin += gridDim.x * kChunkElements) {
    float x[kOwn];
    LoadCorrected<kFeedback>(begin, all, feedback, x);
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      const uint32_t magnitude = MagnitudeOf(x[e]);
      max_magnitude = magnitude > max_magnitude ? magnitude : max_magnitude;
      const uint32_t digit = (magnitude - least) >> shift;
      if (digit != 0 && digit < digits) atomicAdd(&counts.of[digit], 1u);
    }
  }
  counts.AddTo(histogram);
  return max_magnitude;
}

}  // namespace fusionllm::compression::cuda
