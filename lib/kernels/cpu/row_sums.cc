#include "lib/kernels/cpu/row_sums.h"

#include <algorithm>

#include "lib/kernels/cpu/vector/channels.h"
#include "lib/kernels/cpu/vector/spans.h"

namespace fusionllm::kernels::cpu {
namespace {

constexpr int64_t kBlockRows = 128;
constexpr int64_t kMaxBlocks = 256;

// Blocks grow with the matrix, so that the workspace stays small.
int64_t BlockRows(int64_t rows) { return std::max(kBlockRows, ChunkCount(rows, kMaxBlocks)); }

}  // namespace

size_t RowSumsWorkspaceBytes(int64_t rows, int64_t columns) { return sizeof(float) * ChunkCount(rows, BlockRows(rows)) * columns; }

void SumRows(WorkerPool& pool, const float* x, int64_t rows, int64_t columns, bool accumulate, float* workspace, float* out) {
  const int64_t step = BlockRows(rows);
  const int64_t blocks = ChunkCount(rows, step);
  pool.Run(blocks, [&](int64_t block, int) {
    float* partial = workspace + block * columns;
    std::fill_n(partial, columns, 0.f);
    AddRows(x + block * step * columns, std::min(step, rows - block * step), columns, partial);
  });
  for (int64_t block = 1; block < blocks; ++block) AddTo(workspace + block * columns, workspace, columns);
  if (!accumulate) std::fill_n(out, columns, 0.f);
  if (blocks > 0) AddTo(workspace, out, columns);
}

}  // namespace fusionllm::kernels::cpu
