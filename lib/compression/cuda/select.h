// lib/compression/select.h on the device: the k elements of greatest magnitude, exactly, ties to the lower index.
//
// A radix selection: three histograms of the magnitudes' digits (11, 10 and 10 bits) give the k-th magnitude, a count for each chunk of
// 4,096 elements how many of it are kept, and a last pass puts them in place in the order of their indices. So each value is read five
// times: 20 bytes, and 8 written for each element kept. (A threshold from a sample, as on the host, would do with one or two readings; not
// yet.) Addresses are the device's; everything is asynchronous, in the order of the stream.
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

size_t SelectionWorkspaceBytes(int64_t n);

// 1 <= k <= n < 2^31. The greatest magnitude of all elements is added to *greatest by maximum; where it is beyond kMaxMagnitude the outputs
// mean nothing (but are within their bounds). `workspace`: SelectionWorkspaceBytes(n), aligned to 256.
cudaError_t SelectGreatest(cudaStream_t stream, const float* values, int64_t n, int64_t k, const Feedback& feedback, std::byte* workspace,
                           uint32_t* greatest, const SelectionOutput& out);

}  // namespace fusionllm::compression::cuda
