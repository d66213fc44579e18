#include "lib/kube/client/concurrency_limiter.h"

#include <gtest/gtest.h>

#include <future>

namespace fusionllm::kube {
namespace {

TEST(ConcurrencyLimiter, NoMoreThanThatAtOnce) {
  ConcurrencyLimiter limiter(2);
  auto first = std::make_unique<ConcurrencyLimiter::Permit>(limiter.Acquire({}));
  const ConcurrencyLimiter::Permit second = limiter.Acquire({});
  EXPECT_TRUE(*first && second);
  std::stop_source stop;
  std::future<bool> third = std::async(std::launch::async, [&] { return static_cast<bool>(limiter.Acquire(stop.get_token())); });
  stop.request_stop();
  EXPECT_FALSE(third.get()) << "it was stopped, there was no place";
  std::future<bool> fourth = std::async(std::launch::async, [&] { return static_cast<bool>(limiter.Acquire({})); });
  first.reset();
  EXPECT_TRUE(fourth.get());
}

TEST(ConcurrencyLimiter, ZeroIsAnyNumber) {
  ConcurrencyLimiter limiter(0);
  std::vector<ConcurrencyLimiter::Permit> taken;
  for (int i = 0; i < 1000; ++i) {
    taken.push_back(limiter.Acquire({}));
    EXPECT_TRUE(taken.back());
  }
}

}  // namespace
}  // namespace fusionllm::kube
