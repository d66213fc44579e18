// What lib/kernels/cuda/tensor_cores.h asks of a card, carried out by the processor with the same registers in the same lanes.
//
// Stricter than a card where that finds mistakes: a copy arrives when its thread waits for it, and until then its place is NaN; an address
// that is not aligned or not of the block's shared memory, and a call without a whole warp, abort with a sentence. Shared memory is what
// the launch names (DynamicShared); addresses count from its beginning.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fusionllm::kernels::cuda::emulated {

void MultiplyAdd(float (&sums)[4], const uint32_t (&left)[4], uint32_t right_0, uint32_t right_1);

uint32_t SharedAddress(const void* shared);
void LoadMatrices(uint32_t address, bool transposed, uint32_t (&words)[4]);
void CopyToShared(uint32_t to, const void* from, size_t bytes);
void CopyFromShared(void* to, uint32_t from, size_t bytes);

void CopyAsync(uint32_t to, const void* from, size_t bytes, bool there);
void CommitCopies();
void WaitForCopies(size_t groups_left);

// How often two rows of one matrix lay in the same banks since it was last asked: a card loads such a matrix in more than one go.
int64_t TakeBankConflicts();

}  // namespace fusionllm::kernels::cuda::emulated
