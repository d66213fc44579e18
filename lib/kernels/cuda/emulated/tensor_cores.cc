#include "lib/kernels/cuda/emulated/tensor_cores.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "lib/kernels/cuda/emulated/cuda_runtime.h"

namespace fusionllm::kernels::cuda::emulated {
namespace {

int64_t bank_conflicts = 0;

[[noreturn]] void Refuse(const char* what) {
  std::fprintf(stderr, "emulated card: %s in thread %u of block (%u, %u, %u)\n", what, threadIdx.x, blockIdx.x, blockIdx.y, blockIdx.z);
  std::abort();
}

std::byte* Shared(uint32_t address, size_t bytes) {
  if (address % bytes != 0) Refuse("an address of shared memory that is not aligned");
  if (address + bytes > DynamicSharedBytes()) Refuse("an address beyond the block's shared memory");
  return DynamicShared() + address;
}

float Bf16At(uint32_t word, int half) { return __uint_as_float(half == 0 ? word << 16 : word & 0xffff0000u); }

}  // namespace

void MultiplyAdd(float (&sums)[4], const uint32_t (&left)[4], uint32_t right_0, uint32_t right_1) {
  struct Factors {
    const uint32_t* left;
    uint32_t right[2];
  };
  const Factors mine = {left, {right_0, right_1}};
  ExchangeAll(reinterpret_cast<uintptr_t>(&mine), [&](const std::array<uint64_t, 32>& lanes) {
    const auto of = [&](int lane) -> const Factors& { return *reinterpret_cast<const Factors*>(lanes[lane]); };
    const int group = Lane() / 4, place = Lane() % 4;
    for (int i = 0; i < 4; ++i) {
      const int row = group + i / 2 * 8, column = 2 * place + i % 2;
      for (int k = 0; k < 16; ++k) {
        const float a = Bf16At(of(row % 8 * 4 + k % 8 / 2).left[row / 8 + k / 8 * 2], k % 2);
        sums[i] += a * Bf16At(of(column * 4 + k % 8 / 2).right[k / 8], k % 2);
      }
    }
  });
}

uint32_t SharedAddress(const void* shared) { return static_cast<uint32_t>(static_cast<const std::byte*>(shared) - DynamicShared()); }

void LoadMatrices(uint32_t address, bool transposed, uint32_t (&words)[4]) {
  ExchangeAll(address, [&](const std::array<uint64_t, 32>& rows) {
    const int group = Lane() / 4, place = Lane() % 4;
    for (int m = 0; m < 4; ++m) {
      uint16_t matrix[8][8];
      uint32_t banks = 0;  // of 16 bytes
      for (int row = 0; row < 8; ++row) {
        const auto at = static_cast<uint32_t>(rows[8 * m + row]);
        std::memcpy(matrix[row], Shared(at, 16), 16);
        banks |= 1u << at / 16 % 8;
      }
      if (Lane() == 0 && banks != 0xff) ++bank_conflicts;
      const uint16_t low = transposed ? matrix[2 * place][group] : matrix[group][2 * place];
      const uint16_t high = transposed ? matrix[2 * place + 1][group] : matrix[group][2 * place + 1];
      words[m] = static_cast<uint32_t>(high) << 16 | low;
    }
  });
}

void CopyToShared(uint32_t to, const void* from, size_t bytes) { std::memcpy(Shared(to, bytes), from, bytes); }
void CopyFromShared(void* to, uint32_t from, size_t bytes) { std::memcpy(to, Shared(from, bytes), bytes); }

void CopyAsync(uint32_t to, const void* from, size_t bytes, bool there) {
  if (reinterpret_cast<uintptr_t>(from) % bytes != 0) Refuse("a copy from an address that is not aligned");
  std::byte* const place = Shared(to, bytes);
  std::memset(place, 0xFF, bytes);
  CopiesOfThread().begun.push_back({place, there ? static_cast<const std::byte*>(from) : nullptr, bytes});
}

void CommitCopies() {
  ThreadCopies& copies = CopiesOfThread();
  copies.groups.push_back(std::move(copies.begun));
  copies.begun.clear();
}

void WaitForCopies(size_t groups_left) {
  ThreadCopies& copies = CopiesOfThread();
  for (; copies.groups.size() > groups_left; copies.groups.pop_front()) {
    for (const LateCopy& copy : copies.groups.front()) {
      if (copy.from == nullptr) {
        std::memset(copy.to, 0, copy.bytes);
      } else {
        std::memcpy(copy.to, copy.from, copy.bytes);
      }
    }
  }
}

int64_t TakeBankConflicts() { return std::exchange(bank_conflicts, 0); }

}  // namespace fusionllm::kernels::cuda::emulated
