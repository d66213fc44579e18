#include "lib/compression/cuda/candidates.h"

#include <algorithm>
#include <cmath>

#include "lib/kernels/cuda/random.h"

namespace fusionllm::compression::cuda {
namespace {

using kernels::cuda::BlocksFor;
using kernels::cuda::ElementStride;
using kernels::cuda::FirstElement;
using kernels::cuda::Launch;
using kernels::cuda::RandomStream;

constexpr int64_t kMaxSampleSize = 32768;
// The sample's histogram has 32 counters for each power of two from 2^-64 to 2^64; what lies below has the first digit, and is not counted.
constexpr uint32_t kMinSampledMagnitude = 63u << 23;
constexpr int kSampleShift = 18;
// And 32 for parts of each digit, which it shares with digits of 2^16 times greater and smaller values: that they have any of the sample
// there worsens the threshold, at worst so that it does not do.
constexpr int kPartShift = kSampleShift - 5;
// The candidates' has counters of 4,096 magnitudes each, from the threshold on: two powers of two.
constexpr int kCandidateShift = 12;

// A place in each of as many equal stretches as there are samples: stride n / samples, from it by chance, so that no period of the data
// meets it.
__global__ void Sample(Elements all, const float* residual, uint32_t samples, RandomStream chance, Workspace work) {
  const int64_t i = FirstElement();
  const uint32_t stretch = all.count / samples;
  const int64_t at = i * all.count / samples + (stretch > 1 ? __umulhi(chance.Uint32(i), stretch) : 0);
  float x = all.values[at];
  if (residual != nullptr) x += residual[at];
  const uint32_t magnitude = MagnitudeOf(x);
  if (magnitude < kMinSampledMagnitude + (1u << kSampleShift)) return;
  constexpr uint32_t kMaxPlace = (static_cast<uint32_t>(kDigits) << kSampleShift) - 1;
  const uint32_t place = magnitude - kMinSampledMagnitude < kMaxPlace ? magnitude - kMinSampledMagnitude : kMaxPlace;
  atomicAdd(&work.sampled[place >> kSampleShift], 1u);
  atomicAdd(&work.parts[(place >> kPartShift) % kParts], 1u);
}

// The magnitude that so many of the sample reach, or a little less; where it is among the least, 1, so that all but 0 is tried. All threads
// of a block must come.
__device__ uint32_t ThresholdOf(const Workspace& work, uint32_t rank) {
  const Kth kth = RefineKth({kMinSampledMagnitude, rank}, work.sampled, kSampleShift);
  if (kth.least == kMinSampledMagnitude) return 1;
  // A part for each lane, from the greatest down.
  const uint32_t lane = threadIdx.x % 32;
  uint32_t through = work.parts[((kth.least - kMinSampledMagnitude) >> kPartShift) % kParts + 31 - lane];
  for (uint32_t distance = 1; distance < 32; distance *= 2) {
    const uint32_t above = __shfl_up_sync(0xffffffffu, through, distance);
    if (lane >= distance) through += above;
  }
  const unsigned enough = __ballot_sync(0xffffffffu, through >= kth.remaining);
  return kth.least + (enough == 0 ? 0u : static_cast<uint32_t>(32 - __ffs(static_cast<int>(enough))) << kPartShift);
}

// Of a multiprocessor: with feedback a thread has two chunks' loads on their way, and the magnitudes of one.
template <bool kFeedback>
constexpr int kBlocksTaking = kFeedback ? 3 : 4;

// Takes candidates aside, and counts them by their digit above the threshold.
template <bool kFeedback>
__global__ void __launch_bounds__(kThreads, kBlocksTaking<kFeedback>)
    TakeCandidates(Elements all, Feedback feedback, uint32_t rank, uint32_t room, Workspace work, uint32_t* max_magnitude) {
  __shared__ uint32_t found[2], first;  // of the chunk; the next one's in turn
  if (threadIdx.x == 0) found[0] = 0;
  uint32_t begin = blockIdx.x * kChunkElements;
  float x[kOwn];
  LoadCorrected<kFeedback>(begin, all, feedback, x);  // arrives while the threshold is found
  const uint32_t threshold = ThresholdOf(work, rank);
  if (FirstElement() == 0) work.progress->threshold = threshold;
  uint32_t own_max = 0;
  for (int turn = 0; begin < all.count; turn ^= 1) {
    uint32_t magnitudes[kOwn], taken = 0;  // a bit for each
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      magnitudes[e] = MagnitudeOf(x[e]);
      own_max = magnitudes[e] > own_max ? magnitudes[e] : own_max;
      taken |= magnitudes[e] >= threshold ? 1u << e : 0;
    }
    const uint32_t here = begin;
    begin += gridDim.x * kChunkElements;
    if (begin < all.count) LoadCorrected<kFeedback>(begin, all, feedback, x);  // the next, which arrives meanwhile
    uint32_t place = taken == 0 ? 0 : atomicAdd(&found[turn], static_cast<uint32_t>(__popc(taken)));
    __syncthreads();
    if (threadIdx.x == 0) {
      const uint32_t count = found[turn];
      found[turn ^ 1] = 0;
      first = count == 0 ? 0 : atomicAdd(&work.progress->candidates, count);
      work.stretches[here / kChunkElements] = {first, count};
    }
    __syncthreads();
    place += first;
#pragma unroll
    for (int e = 0; e < kOwn; ++e) {
      if ((taken >> e & 1) == 0) continue;
      const uint32_t digit = (magnitudes[e] - threshold) >> kCandidateShift;
      if (place < room) work.candidates[place] = {PlaceOf(here, e), magnitudes[e]};
      ++place;
      if (digit < kDigits) atomicAdd(&work.counted[digit], 1u);
    }
  }
  MaxOfGrid(own_max, max_magnitude);
}

// The digits below the one that is known of the candidates' k-th; or, where they are too few, too many or too far above the threshold, the
// first of all magnitudes.
__global__ void __launch_bounds__(kThreads) CountCandidates(Elements all, uint32_t k, uint32_t room, Workspace work) {
  __shared__ BlockCounts counts;
  const uint32_t found = work.progress->candidates;
  Kth kth = {0, 0};
  if (found >= k && found <= room) kth = RefineKth({work.progress->threshold, k}, work.counted, kCandidateShift, found);
  if (kth.remaining == 0) {
    CountDigits<false>(all, {}, 0, kFirstShift, counts, work.digits);
    return;
  }
  if (FirstElement() == 0) {
    work.progress->way = SelectionAlgorithm::kSampledThreshold;
    work.progress->kth[0] = kth;
  }
  counts.Clear();
#pragma unroll 4
  for (int64_t i = FirstElement(); i < found; i += ElementStride()) {
    const uint32_t digit = work.candidates[i].magnitude - kth.least;
    if (digit < 1u << kCandidateShift) atomicAdd(&counts.of[digit], 1u);
  }
  counts.AddTo(work.digits);
}

}  // namespace

SamplePlan PlanSample(int64_t n, int64_t k) {
  SamplePlan plan;
  plan.samples = static_cast<uint32_t>(std::clamp<int64_t>(n / 8 / kThreads * kThreads, kThreads, kMaxSampleSize));
  const double stride = static_cast<double>(n) / static_cast<double>(plan.samples), expected = static_cast<double>(k) / stride;
  // Four standard deviations: of 30,000 thresholds of this rank one lets less than k through. Room is for four more, and a thousandth of
  // the tensor: so much may lie within a part of a digit.
  const double rank = expected + 4 * std::sqrt(expected) + 4, most = rank + 4 * std::sqrt(rank) + static_cast<double>(plan.samples) / 1024;
  plan.rank = static_cast<uint32_t>(std::ceil(rank));
  plan.room = static_cast<uint32_t>(std::min(static_cast<double>(n), std::ceil(most * stride)));
  return plan;
}

cudaError_t FindCandidates(cudaStream_t stream, const Elements& all, uint32_t k, const Feedback& feedback, const Workspace& work,
                           uint32_t* max_magnitude) {
  const SamplePlan plan = PlanSample(all.count, k);
  const bool with_feedback = feedback.corrected != nullptr;
  cudaError_t error = Launch(stream, plan.samples / kThreads, kThreads, 0, Sample, all, with_feedback ? feedback.residual : nullptr,
                             plan.samples, RandomStream::Of(0, "selection"), work);
  if (error != cudaSuccess) return error;
  if (with_feedback) {
    error = Launch(stream, BlocksFor(all.count, kChunk, kMultiprocessors * kBlocksTaking<true>), kThreads, 0, TakeCandidates<true>, all,
                   feedback, plan.rank, plan.room, work, max_magnitude);
  } else {
    error = Launch(stream, BlocksFor(all.count, kChunk, kMultiprocessors * kBlocksTaking<false>), kThreads, 0, TakeCandidates<false>, all,
                   feedback, plan.rank, plan.room, work, max_magnitude);
  }
  if (error != cudaSuccess) return error;
  const Elements selected{with_feedback ? feedback.corrected : all.values, all.count, all.aligned};
  return Launch(stream, BlocksFor(all.count, kChunk, 4 * kMultiprocessors), kThreads, 0, CountCandidates, selected, k, plan.room, work);
}

}  // namespace fusionllm::compression::cuda
