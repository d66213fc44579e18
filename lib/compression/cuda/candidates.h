// Selection by a sample (select.h): a threshold, the elements that reach it, and most of what there is to know of the k-th of them. For .cu
// files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "lib/compression/cuda/radix_select.h"
#include "lib/compression/cuda/select.h"

namespace fusionllm::compression::cuda {

struct SamplePlan {
  uint32_t samples = 0;  // a multiple of kThreads
  uint32_t rank = 0;     // of the threshold in the sample
  uint32_t room = 0;     // for candidates
};
SamplePlan PlanSample(int64_t n, int64_t k);

// Leaves the greatest magnitude and, with feedback, the corrected values. If the candidates have the k-th among them: the way, kth[0], and
// in the first histogram the candidates' last 12 bits from kth[0].least on. Else, in the same histogram, the first digits of all elements.
cudaError_t FindCandidates(cudaStream_t stream, const Elements& all, uint32_t k, const Feedback& feedback, const Workspace& work,
                           uint32_t* max_magnitude);

}  // namespace fusionllm::compression::cuda
