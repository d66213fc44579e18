// Column sums of a tall matrix, split over threads by blocks of rows: the gradient of a bias.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/kernels/cpu/worker_pool.h"

namespace fusionllm::kernels::cpu {

size_t RowSumsWorkspaceBytes(int64_t rows, int64_t columns);

// out[c] = sum over rows of x[r][c] (+ out[c]). Sums of blocks of rows, then of the blocks in order.
void SumRows(WorkerPool& pool, const float* x, int64_t rows, int64_t columns, bool accumulate, float* workspace, float* out);

}  // namespace fusionllm::kernels::cpu
