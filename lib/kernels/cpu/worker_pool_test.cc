#include "lib/kernels/cpu/worker_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <system_error>
#include <utility>

namespace fusionllm::kernels::cpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(WorkerPoolTest, RunsEveryChunkOnce) {
  const auto pool = WorkerPool::Create(4);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ((*pool)->threads(), 4);
  std::vector<std::atomic<int>> runs(1000);
  (*pool)->Run(1000, [&](int64_t chunk, int) { ++runs[static_cast<size_t>(chunk)]; });
  for (const auto& count : runs) EXPECT_EQ(count, 1);
}

TEST(WorkerPoolTest, SaysWhenTheSystemHasNoMoreThreads) {
  std::atomic<int> started = 0, ended = 0;
  const auto pool = WorkerPool::Create(8, [&](std::function<void()> work) {
    if (started == 3) throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    ++started;
    return std::thread([&, work = std::move(work)] {
      work();
      ++ended;
    });
  });
  EXPECT_EQ(pool.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(pool.status().message()),
              AllOf(HasSubstr("8 threads"), HasSubstr("executors.threads"), HasSubstr("only 4"), HasSubstr("Resource temporarily")));
  EXPECT_EQ(ended, 3) << "those that were started are gone";
}

}  // namespace
}  // namespace fusionllm::kernels::cpu
