#include "lib/compression/cuda/select.h"

#include "lib/compression/cuda/candidates.h"
#include "lib/compression/cuda/radix_select.h"
#include "lib/compression/cuda/tiles.h"

namespace fusionllm::compression::cuda {
namespace {

using kernels::cuda::BlocksFor;
using kernels::cuda::FirstElement;
using kernels::cuda::Launch;

template <bool kFeedback>
__global__ void __launch_bounds__(kThreads) CountFirstDigits(Elements all, Feedback feedback, Workspace work, uint32_t* max_magnitude) {
  __shared__ BlockCounts counts;
  MaxOfGrid(CountDigits<kFeedback>(all, feedback, 0, kFirstShift, counts, work.digits), max_magnitude);
}

__global__ void __launch_bounds__(kThreads) CountSecondDigits(Elements all, uint32_t k, Workspace work) {
  __shared__ BlockCounts counts;
  if (work.progress->way == SelectionAlgorithm::kSampledThreshold) return;
  const Kth kth = RefineKth({0, k}, work.digits, kFirstShift);
  if (FirstElement() == 0) work.progress->kth[1] = kth;
  CountDigits<false>(all, {}, kth.least, kSecondShift, counts, work.digits + kDigits);
}

__global__ void __launch_bounds__(kThreads) CountLastDigits(Elements all, Workspace work) {
  __shared__ BlockCounts counts;
  if (work.progress->way == SelectionAlgorithm::kSampledThreshold) return;
  const Kth kth = RefineKth(work.progress->kth[1], work.digits + kDigits, kSecondShift);
  if (FirstElement() == 0) work.progress->kth[2] = kth;
  CountDigits<false>(all, {}, kth.least, 0, counts, work.digits + 2 * kDigits);
}

// The lowest `count` of the bits that are set.
__device__ inline uint32_t Lowest(uint32_t bits, uint32_t count) {
  uint32_t rest = bits;
  for (; count > 0 && rest != 0; --count) rest &= rest - 1;
  return bits ^ rest;
}

__global__ void __launch_bounds__(kThreads) Keep(Elements all, uint32_t tiles, Workspace work, SelectionOutput out) {
  __shared__ uint32_t above[kWordsOfTile], equal[kWordsOfTile], taken;  // a bit for each element of the tile
  constexpr int kWords = kWordsOfTile / kThreads;                       // of a thread
  const bool sampled = work.progress->way == SelectionAlgorithm::kSampledThreshold;
  const Kth kth = RefineKth(work.progress->kth[sampled ? 0 : 2], work.digits + (sampled ? 0 : 2) * kDigits, 0);
  // How many are kept of so many above and equal.
  const auto kept_of = [&](unsigned long long sums) {
    const auto equals = static_cast<uint32_t>(sums & kEqualMask);
    return static_cast<uint32_t>(sums >> kAboveShift) + (equals < kth.remaining ? equals : kth.remaining);
  };
  while (true) {
    __syncthreads();  // threads that are still at the tile before
    if (threadIdx.x == 0) taken = atomicAdd(&work.progress->tiles, 1u);
    for (int i = threadIdx.x; i < kWordsOfTile; i += kThreads) above[i] = equal[i] = 0;
    __syncthreads();
    const uint32_t tile = taken;
    if (tile >= tiles) return;
    const uint32_t begin = tile * kTile;
    const auto mark = [&](uint32_t i, uint32_t magnitude) {
      const uint32_t bit = i - begin;
      if (magnitude >= kth.least) atomicOr(magnitude > kth.least ? &above[bit / 32] : &equal[bit / 32], 1u << bit % 32);
    };
    if (sampled) {
      const uint32_t chunk = tile * kChunksOfTile + threadIdx.x / 32;
      const CandidateRange stretch = chunk * kChunkElements < all.count ? work.stretches[chunk] : CandidateRange{0, 0};
      for (uint32_t i = threadIdx.x % 32; i < stretch.count; i += 32) {
        const Candidate candidate = work.candidates[stretch.first + i];
        mark(candidate.index, candidate.magnitude);
      }
    } else {
      for (uint32_t chunk = begin; chunk < begin + kTile && chunk < all.count; chunk += kChunkElements) {
        float x[kOwn];
        LoadChunk(all.values, chunk, all, x);
#pragma unroll
        for (int e = 0; e < kOwn; ++e) {
          mark(PlaceOf(chunk, e), MagnitudeOf(x[e]));  // zeros beyond the end come behind all that are kept
        }
      }
    }
    __syncthreads();
    unsigned long long own = 0, of_tile = 0;
    for (int w = 0; w < kWords; ++w) {
      const int word = threadIdx.x * kWords + w;
      own += (static_cast<unsigned long long>(__popc(above[word])) << kAboveShift) + __popc(equal[word]);
    }
    unsigned long long sums = SumBefore(own, &of_tile);
    const unsigned long long before = SumOfTilesBefore(work.tiles, tile, of_tile);
    sums += before;
    uint32_t place = kept_of(sums);
    auto equals = static_cast<uint32_t>(sums & kEqualMask);
    for (int w = 0; w < kWords; ++w) {
      const int word = threadIdx.x * kWords + w;
      uint32_t bits = above[word] | Lowest(equal[word], equals < kth.remaining ? kth.remaining - equals : 0);
      equals += __popc(equal[word]);
      if (out.bitmap != nullptr && begin + 32 * word < all.count) out.bitmap[begin / 32 + word] = bits;
      for (; bits != 0; bits &= bits - 1) {
        out.indices[place++] = begin + 32 * word + static_cast<uint32_t>(__ffs(static_cast<int>(bits)) - 1);
      }
    }
    __syncthreads();
    const uint32_t end = kept_of(before + of_tile);
    for (uint32_t i = kept_of(before) + threadIdx.x; i < end; i += kThreads) out.kept[i] = all.values[out.indices[i]];
  }
}

constexpr int64_t kMinElementsForSampling = int64_t{1} << 20;

// Where things lie in the workspace, in bytes; what lies before `zero` is 0 at the start.
struct Places {
  size_t digits, tiles, sampled, parts, counted, zero, stretches, candidates, end;
};

Places PlacesFor(int64_t n, int64_t k, SelectionAlgorithm way) {
  constexpr size_t kHistogram = kDigits * sizeof(uint32_t);
  const bool sampled = way == SelectionAlgorithm::kSampledThreshold;
  size_t end = 0;
  const auto take = [&end](size_t bytes) {
    const size_t begin = end;
    end += (bytes + 255) / 256 * 256;
    return begin;
  };
  Places at;
  take(sizeof(Progress));
  at.digits = take(3 * kHistogram);
  at.tiles = take(sizeof(unsigned long long) * static_cast<size_t>(TilesOf(n)));
  at.sampled = take(sampled ? kHistogram : 0);
  at.parts = take(sampled ? kParts * sizeof(uint32_t) : 0);
  at.counted = take(sampled ? kHistogram : 0);
  at.zero = end;
  at.stretches = take(sampled ? sizeof(CandidateRange) * static_cast<size_t>(ChunksOf(n)) : 0);
  at.candidates = take(sampled ? sizeof(Candidate) * PlanSample(n, k).room : 0);
  at.end = end;
  return at;
}

bool IsAligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

}  // namespace

SelectionAlgorithm DefaultAlgorithm(int64_t n, int64_t k) {
  return n >= kMinElementsForSampling && k <= n / 8 ? SelectionAlgorithm::kSampledThreshold : SelectionAlgorithm::kRadixSelect;
}

size_t SelectionWorkspaceBytes(int64_t n, int64_t k, SelectionAlgorithm way) { return PlacesFor(n, k, way).end; }

cudaError_t SelectTopK(cudaStream_t stream, const float* values, int64_t n, int64_t k, const Feedback& feedback, SelectionAlgorithm way,
                       std::byte* workspace, uint32_t* max_magnitude, const SelectionOutput& out) {
  const Places at = PlacesFor(n, k, way);
  const Workspace work{.progress = reinterpret_cast<Progress*>(workspace),
                       .digits = reinterpret_cast<uint32_t*>(workspace + at.digits),
                       .tiles = reinterpret_cast<unsigned long long*>(workspace + at.tiles),
                       .sampled = reinterpret_cast<uint32_t*>(workspace + at.sampled),
                       .parts = reinterpret_cast<uint32_t*>(workspace + at.parts),
                       .counted = reinterpret_cast<uint32_t*>(workspace + at.counted),
                       .stretches = reinterpret_cast<CandidateRange*>(workspace + at.stretches),
                       .candidates = reinterpret_cast<Candidate*>(workspace + at.candidates)};
  const bool with_feedback = feedback.corrected != nullptr;
  Elements all{.values = values,
               .count = static_cast<uint32_t>(n),
               .aligned = IsAligned(values) && IsAligned(feedback.residual) && IsAligned(feedback.corrected)};
  const auto kept = static_cast<uint32_t>(k);
  const unsigned blocks = BlocksFor(n, kChunk, 4 * kMultiprocessors), blocks_of_tiles = BlocksFor(n, kTile, 5 * kMultiprocessors);
  cudaError_t error = cudaMemsetAsync(workspace, 0, at.zero, stream);
  const auto then = [&error](auto&& launch) {
    if (error == cudaSuccess) error = launch();
  };
  then([&] {
    if (way == SelectionAlgorithm::kSampledThreshold) return FindCandidates(stream, all, kept, feedback, work, max_magnitude);
    return Launch(stream, blocks, kThreads, 0, with_feedback ? CountFirstDigits<true> : CountFirstDigits<false>, all, feedback, work,
                  max_magnitude);
  });
  if (with_feedback) all.values = feedback.corrected;
  then([&] { return Launch(stream, blocks, kThreads, 0, CountSecondDigits, all, kept, work); });
  then([&] { return Launch(stream, blocks, kThreads, 0, CountLastDigits, all, work); });
  then([&] { return Launch(stream, blocks_of_tiles, kThreads, 0, Keep, all, static_cast<uint32_t>(TilesOf(n)), work, out); });
  return error;
}

}  // namespace fusionllm::compression::cuda
