#include "lib/kube/client/request_slots.h"

#include <gtest/gtest.h>

#include <future>

namespace fusionllm::kube {
namespace {

TEST(RequestSlots, NoMoreThanThatAtOnce) {
  RequestSlots slots(2);
  auto first = std::make_unique<RequestSlots::Slot>(slots.Take({}));
  const RequestSlots::Slot second = slots.Take({});
  EXPECT_TRUE(*first && second);
  std::stop_source stop;
  std::future<bool> third = std::async(std::launch::async, [&] { return static_cast<bool>(slots.Take(stop.get_token())); });
  stop.request_stop();
  EXPECT_FALSE(third.get()) << "it was stopped, there was no place";
  std::future<bool> fourth = std::async(std::launch::async, [&] { return static_cast<bool>(slots.Take({})); });
  first.reset();
  EXPECT_TRUE(fourth.get());
}

TEST(RequestSlots, ZeroIsAnyNumber) {
  RequestSlots slots(0);
  std::vector<RequestSlots::Slot> taken;
  for (int i = 0; i < 1000; ++i) {
    taken.push_back(slots.Take({}));
    EXPECT_TRUE(taken.back());
  }
}

}  // namespace
}  // namespace fusionllm::kube
