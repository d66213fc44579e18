// Sums of 100 MB between ranks of one process, each a thread: what copies and additions cost where chunks travel in no time.
// bytes_per_second counts the bytes of the row, once.
#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "benchmark/benchmark.h"
#include "lib/collective/chain_communicator.h"
#include "lib/collective/testing/in_memory_network.h"

namespace fusionllm::collective {
namespace {

void AllReduce(benchmark::State& state, tensor::DType dtype) {
  constexpr int64_t kBytes = 100'000'000;
  const int size = static_cast<int>(state.range(0));
  testing::InMemoryNetwork network(size);
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::vector<std::byte>> rows(static_cast<size_t>(size), std::vector<std::byte>(kBytes));
  for (int rank = 0; rank < size; ++rank) {
    communicators.push_back(*MakeChain({.group = "g", .rank = rank, .size = size}, tensor::HostMemory(), network.channel(rank),
                                       {.chunk_bytes = static_cast<size_t>(state.range(1)) << 10}));
  }
  const auto sum = [&](int rank) {
    const tensor::TensorView views[] = {
        {{dtype, {kBytes / static_cast<int64_t>(tensor::SizeOf(dtype))}}, rows[static_cast<size_t>(rank)].data()}};
    return communicators[static_cast<size_t>(rank)]->AllReduce(views);
  };
  for (auto _ : state) {
    std::vector<std::thread> others;
    for (int rank = 1; rank < size; ++rank) others.emplace_back([&, rank] { sum(rank).IgnoreError(); });
    if (const absl::Status status = sum(0); !status.ok()) state.SkipWithError(std::string(status.message()).c_str());
    for (std::thread& other : others) other.join();
  }
  state.SetBytesProcessed(state.iterations() * kBytes);
}
// Ranks, and KiB of a chunk.
void Cases(benchmark::internal::Benchmark* benchmark) {
  for (const int kib : {64, 256, 1024, 4096}) benchmark->Args({2, kib});
  benchmark->Args({4, 256});
}
BENCHMARK_CAPTURE(AllReduce, f32, tensor::DType::kF32)->Apply(Cases)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(AllReduce, bf16, tensor::DType::kBF16)->Apply(Cases)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fusionllm::collective
