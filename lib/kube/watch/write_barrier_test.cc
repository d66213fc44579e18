#include "lib/kube/watch/write_barrier.h"

#include <gtest/gtest.h>

#include <thread>

#include "lib/kube/testing/fake_clock.h"
#include "lib/kube/watch/testing/objects.h"
#include "lib/kube/watch/testing/scripted_client.h"

namespace fusionllm::kube {
namespace {

using testing::BookmarkJson;
using testing::EventJson;
using testing::ListJson;
using testing::PodJson;

class WriteBarrierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    client_.OnList(ListJson({PodJson("a", "5")}, "10"));
    informer_.Start();
    ASSERT_TRUE(informer_.WaitForSync(absl::InfiniteDuration()));
  }
  void Happen(const std::string& events, const std::string& version) {
    client_.OnWatchOfASecond(events, clock_);
    while (informer_.resource_version() != version) std::this_thread::yield();
  }

  testing::FakeClock clock_;
  testing::ScriptedClient client_;
  Informer informer_{client_, clock_, nullptr, {.scope = {.resource = testing::Pods()}, .decode = DecodePod}};
  WriteBarrier barrier_{informer_, clock_};
};

TEST_F(WriteBarrierTest, AWriteIsUnseenUntilTheCacheHasReachedIt) {
  EXPECT_TRUE(barrier_.Seen({"ns", "new"}));
  barrier_.Wrote({"ns", "new"}, "12");
  EXPECT_FALSE(barrier_.Seen({"ns", "new"}));
  EXPECT_TRUE(barrier_.Seen({"ns", "a"}));
  EXPECT_FALSE(barrier_.AllSeen([](const ObjectKey& key) { return key.ns == "ns"; }));
  EXPECT_TRUE(barrier_.AllSeen([](const ObjectKey& key) { return key.ns == "other"; }));
  Happen(EventJson("ADDED", PodJson("x", "11")), "11");
  EXPECT_FALSE(barrier_.Seen({"ns", "new"}));
  Happen(EventJson("ADDED", PodJson("new", "12")), "12");
  EXPECT_TRUE(barrier_.Seen({"ns", "new"}));
}

TEST_F(WriteBarrierTest, TheNewestOfSeveralWritesCounts) {
  barrier_.Wrote({"ns", "a"}, "100");
  barrier_.Wrote({"ns", "a"}, "99");  // an older answer, noted later
  Happen(BookmarkJson("99"), "99");
  EXPECT_FALSE(barrier_.Seen({"ns", "a"}));
  Happen(BookmarkJson("100"), "100");  // the object itself need not show it: it may be gone again
  EXPECT_TRUE(barrier_.Seen({"ns", "a"}));
}

TEST_F(WriteBarrierTest, ADeleteIsUnseenWhileTheCacheHasTheSameObject) {
  barrier_.Deleted({"ns", "a"}, "uid-a");
  EXPECT_FALSE(barrier_.Seen({"ns", "a"}));
  Happen(EventJson("DELETED", PodJson("a", "11")) + EventJson("ADDED", PodJson("a", "12", "another")), "12");
  EXPECT_TRUE(barrier_.Seen({"ns", "a"}));
}

TEST_F(WriteBarrierTest, WhatNeverComesTrueIsForgotten) {
  barrier_.Wrote({"ns", "a"}, "1000");
  barrier_.Deleted({"ns", "b"}, "uid");
  clock_.Advance(absl::Minutes(5));
  EXPECT_TRUE(barrier_.Seen({"ns", "a"}));
  EXPECT_TRUE(barrier_.Seen({"ns", "b"}));
}

}  // namespace
}  // namespace fusionllm::kube
