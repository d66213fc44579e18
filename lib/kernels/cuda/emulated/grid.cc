// The threads of a launch, as fibers.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "boost/context/fiber.hpp"
#include "boost/context/protected_fixedsize_stack.hpp"
#include "lib/kernels/cuda/emulated/cuda_runtime.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace fusionllm::kernels::cuda::emulated {
namespace {

constexpr unsigned kMaxThreads = 1024;
constexpr size_t kStackBytes = 64 * 1024;
constexpr size_t kSharedSpare = 16;

// Fibers that wait for each other. One that has ended no longer counts, as on a card.
struct Barrier {
  unsigned members = 0, arrived = 0;
  uint64_t round = 0;
  void OpenIfAllCame() {
    if (arrived < members || members == 0) return;
    arrived = 0;
    ++round;
  }
};

struct Warp {
  Barrier barrier;
  std::array<uint64_t, 32> bits = {};
  uint32_t present = 0;  // lanes that take part in the exchange under way
};

class Block {
 public:
  Block(dim3 shape, const std::function<void()>& thread)
      : shape_(shape), threads_(shape.x * shape.y * shape.z), warps_((threads_ + 31) / 32), ended_(threads_, false), thread_(thread) {
    all_.members = threads_;
    for (unsigned i = 0; i < threads_; ++i) ++warps_[i / 32].barrier.members;
  }

  void Run();
  void Wait(Barrier& barrier) {
    const uint64_t round = barrier.round;
    ++barrier.arrived;
    barrier.OpenIfAllCame();
    while (barrier.round == round) Yield();
  }
  Barrier& all() { return all_; }
  Warp& warp() { return warps_[current_ / 32]; }
  unsigned lane() const { return current_ % 32; }
  ThreadCopies& copies() {
    copies_.resize(threads_);
    return copies_[current_];
  }

 private:
  void Yield() { scheduler_ = std::move(scheduler_).resume(); }
  void SetIndex() const { threadIdx = {current_ % shape_.x, current_ / shape_.x % shape_.y, current_ / (shape_.x * shape_.y)}; }

  const dim3 shape_;
  const unsigned threads_;
  Barrier all_;
  std::vector<Warp> warps_;
  std::vector<ThreadCopies> copies_;  // empty until one copies
  std::vector<bool> ended_;
  const std::function<void()>& thread_;
  boost::context::fiber scheduler_;
  unsigned current_ = 0;
};

Block* running = nullptr;
std::vector<std::byte>* dynamic_shared = nullptr;

// Stacks are made once: their pages stay.
class Stacks {
 public:
  using traits_type = boost::context::protected_fixedsize_stack::traits_type;
  boost::context::stack_context allocate() {
    if (free_.empty()) return make_.allocate();
    boost::context::stack_context stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void deallocate(boost::context::stack_context& stack) { free_.push_back(stack); }

 private:
  boost::context::protected_fixedsize_stack make_{kStackBytes};
  std::vector<boost::context::stack_context> free_;
};

struct SharedStacks {
  Stacks* stacks;
  boost::context::stack_context allocate() { return stacks->allocate(); }
  void deallocate(boost::context::stack_context& stack) { stacks->deallocate(stack); }
};

void Block::Run() {
  static Stacks stacks;
  std::vector<boost::context::fiber> fibers;
  fibers.reserve(threads_);
  for (unsigned i = 0; i < threads_; ++i) {
    fibers.emplace_back(std::allocator_arg, SharedStacks{&stacks}, [this](boost::context::fiber&& scheduler) {
      scheduler_ = std::move(scheduler);
      thread_();
      return std::move(scheduler_);
    });
  }
  running = this;
  for (unsigned left = threads_; left > 0;) {
    for (unsigned i = 0; i < threads_; ++i) {
      if (ended_[i]) continue;
      current_ = i;
      SetIndex();
      fibers[i] = std::move(fibers[i]).resume();
      if (fibers[i]) continue;
      ended_[i] = true;
      --left;
      for (Barrier* barrier : {&all_, &warps_[i / 32].barrier}) {
        --barrier->members;
        barrier->OpenIfAllCame();
      }
    }
  }
  running = nullptr;
}

void RunGrid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread) {
  std::vector<std::byte> shared(shared_bytes + kSharedSpare);
  dynamic_shared = &shared;
  blockDim = block;
  gridDim = grid;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        std::fill(shared.begin(), shared.end(), std::byte{0xFF});  // what was not written is NaN
        Block(block, thread).Run();
      }
    }
  }
  dynamic_shared = nullptr;
}

}  // namespace

uint64_t Exchange(uint64_t bits, int lane) {
  Block& block = *running;
  Warp& warp = block.warp();
  warp.bits[block.lane()] = bits;
  block.Wait(warp.barrier);
  const uint64_t theirs = warp.bits[lane & 31];
  block.Wait(warp.barrier);  // none writes the next before all have read
  return theirs;
}

void ExchangeAll(uint64_t bits, const std::function<void(const std::array<uint64_t, 32>&)>& read) {
  Block& block = *running;
  Warp& warp = block.warp();
  if (warp.barrier.members != 32) {
    std::fprintf(stderr, "emulated card: an instruction of whole warps in one of %u threads\n", warp.barrier.members);
    std::abort();
  }
  warp.bits[block.lane()] = bits;
  block.Wait(warp.barrier);
  read(warp.bits);
  block.Wait(warp.barrier);
}

int Lane() { return static_cast<int>(running->lane()); }
std::byte* DynamicShared() { return dynamic_shared->data(); }
size_t DynamicSharedBytes() { return dynamic_shared->size() - kSharedSpare; }
ThreadCopies& CopiesOfThread() { return running->copies(); }

cudaError_t LaunchGrid(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes, std::function<void()> thread) {
  const unsigned threads = block.x * block.y * block.z;
  if (threads == 0 || threads > kMaxThreads || grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaErrorInvalidValue;
  return RunOnDevice(stream, [=, thread = std::move(thread)] { RunGrid(grid, block, shared_bytes, thread); });
}

}  // namespace fusionllm::kernels::cuda::emulated

void __syncthreads() {
  namespace e = fusionllm::kernels::cuda::emulated;
  e::running->Wait(e::running->all());
}
void __syncwarp(unsigned) {
  namespace e = fusionllm::kernels::cuda::emulated;
  e::running->Wait(e::running->warp().barrier);
}
unsigned __ballot_sync(unsigned, int predicate) {
  namespace e = fusionllm::kernels::cuda::emulated;
  e::Block& block = *e::running;
  e::Warp& warp = block.warp();
  const uint32_t bit = 1u << block.lane();
  warp.present = predicate != 0 ? (warp.present | bit) : (warp.present & ~bit);
  block.Wait(warp.barrier);
  const uint32_t votes = warp.present;
  block.Wait(warp.barrier);
  warp.present &= ~bit;
  block.Wait(warp.barrier);
  return votes;
}
