// lib/compression/select.h on the device: the k elements of greatest magnitude, exactly, ties to the lower index.
//
// By a sample, where n and k make it worth while: 32,768 elements (of values + residual), from places that depend on n alone, give a
// threshold that somewhat more than k elements reach. One pass over the tensor takes these candidates aside, chunk by chunk; two histograms
// of them, 12 bits each from the threshold on, give the k-th magnitude to the last bit; and tiles of chunks put what is kept in the order
// of the indices, each when it knows how much is kept before it. Memory, in bytes: of each value 4 read (with feedback 8, and 4 written),
// of each candidate 8 written and 16 read, of each element kept 8 written, 4 and a sector of 32 read, and the bitmap. A memset and 6
// launches, two of which end at once.
//
// By digits, where it is not, or where the threshold turns out not to do (ties of many, fewer than k that are not 0, a k-th four times the
// threshold): three histograms of all magnitudes' digits, of 12, 12 and 7 bits, and then the tiles read the tensor again. Of each value 16
// read (with feedback 20, and 4 written), of each element kept the same. A memset and 4 launches.
//
// Which way was gone changes no bit of the result, nor does the order in which blocks run. Addresses are the device's; everything is
// asynchronous, in the order of the stream; the host decides by n and k alone. Loads take 16 bytes where the tensors begin at multiples of
// 16, else 4.
//
// Sources: guessing a threshold and checking it, Monroe, Wendelberger and Michalak, "Randomized Selection on the GPU" (HPG 2011);
// histograms that each block reads for itself instead of sorting, after Zhang et al., "Parallel Top-K Algorithms on GPU" (SC 2023), section
// 3; sums over the tiles before, Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" (2016).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace fusionllm::compression::cuda {

// What error feedback adds: the first pass writes values + residual (values alone where residual is null) to `corrected`, of which the
// selection is made. Null: no feedback.
struct Feedback {
  const float* residual = nullptr;
  float* corrected = nullptr;
};

struct SelectionOutput {
  uint32_t* indices = nullptr;  // k of them, ascending
  float* kept = nullptr;        // their values
  uint32_t* bitmap = nullptr;   // (n + 31) / 32 words, or null: bit i % 32 of word i / 32 tells whether i was kept
};

// kRadixSelect is 0: a workspace says so until the sample has done.
enum class SelectionAlgorithm : uint32_t { kRadixSelect = 0, kSampledThreshold = 1 };

// By the sample from 2^20 elements on, where at most an eighth is kept.
SelectionAlgorithm DefaultAlgorithm(int64_t n, int64_t k);

// Some 50 KB; by the sample 150, 2 for each million elements and 8 bytes for each candidate that there is room for: 1.6 k of them at 1 %,
// 3.8 k at 0.1 %.
size_t SelectionWorkspaceBytes(int64_t n, int64_t k, SelectionAlgorithm way);
inline size_t SelectionWorkspaceBytes(int64_t n, int64_t k) { return SelectionWorkspaceBytes(n, k, DefaultAlgorithm(n, k)); }

// 1 <= k <= n <= kMaxElements. The greatest magnitude of all elements is added to *max_magnitude by maximum; where it is beyond
// kMaxMagnitude the outputs mean nothing (but are within their bounds). `workspace`: SelectionWorkspaceBytes(n, k, way), aligned to 256;
// its first word is the SelectionAlgorithm by which it came to its end, when it has.
cudaError_t SelectTopK(cudaStream_t stream, const float* values, int64_t n, int64_t k, const Feedback& feedback, SelectionAlgorithm way,
                       std::byte* workspace, uint32_t* max_magnitude, const SelectionOutput& out);
inline cudaError_t SelectTopK(cudaStream_t stream, const float* values, int64_t n, int64_t k, const Feedback& feedback,
                              std::byte* workspace, uint32_t* max_magnitude, const SelectionOutput& out) {
  return SelectTopK(stream, values, n, k, feedback, DefaultAlgorithm(n, k), workspace, max_magnitude, out);
}

}  // namespace fusionllm::compression::cuda
