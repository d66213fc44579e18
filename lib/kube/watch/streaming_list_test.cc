// Lists that come as the beginning of a watch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/kube/api/api_error.h"
#include "lib/kube/watch/testing/objects.h"
#include "lib/kube/watch/testing/reflector_fixture.h"

namespace fusionllm::kube {
namespace {

using ::testing::AnyOf;
using testing::BookmarkJson;
using ::testing::ElementsAre;
using testing::Error;
using testing::EventJson;
using ::testing::HasSubstr;
using testing::ListJson;
using testing::PodJson;
using testing::StatusJson;

class StreamingListTest : public testing::ReflectorTest {
 protected:
  void StartStreaming(ReflectorLimits limits = {}) { Start({.resource = testing::Pods(), .streaming_list = true}, limits); }
};

size_t BytesOfOne() { return DecodePod(PodJson("a", "5")).value()->Bytes(); }

std::string BrokenPod(const std::string& name) {
  return absl::StrCat(R"({"kind":"Pod","metadata":{"name":")", name, R"(","namespace":"ns","resourceVersion":"6"},"status":5})");
}

std::string LastOfAll(const std::string& version) {
  return EventJson("BOOKMARK", absl::StrCat(R"({"kind":"Pod","metadata":{"resourceVersion":")", version,
                                            R"(","annotations":{"k8s.io/initial-events-end":"true"}}})"));
}

TEST_F(StreamingListTest, TheListIsTheBeginningOfTheWatch) {
  client_.OnWatch(EventJson("ADDED", PodJson("a", "7")) + EventJson("ADDED", PodJson("b", "5")) + LastOfAll("10") +
                      EventJson("MODIFIED", PodJson("a", "11")),
                  absl::OkStatus());
  StartStreaming();
  const auto watches = client_.Watches(2);
  EXPECT_TRUE(watches[0].send_initial_events);
  EXPECT_EQ(watches[0].resource_version, "0");
  EXPECT_EQ(watches[0].resource_version_match, "NotOlderThan");
  EXPECT_FALSE(watches[1].send_initial_events);
  EXPECT_EQ(watches[1].resource_version, "11");
  EXPECT_EQ(watches[1].resource_version_match, "");
  const auto lines = sink_.lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], AnyOf("list a b at 10", "list b a at 10"));
  EXPECT_EQ(lines[1], "put a");
  EXPECT_THAT(registry_.Text(), HasSubstr("fusionllm_relists_total{cluster=\"c\",resource=\"pods\"} 1\n"));
}

TEST_F(StreamingListTest, NothingIsShownBeforeAllIsThere) {
  client_.OnWatchThatStays(EventJson("ADDED", PodJson("a", "7")) + BookmarkJson("8") + EventJson("ADDED", PodJson("b", "5")));
  StartStreaming();
  client_.Watches(1);
  Stop();
  EXPECT_THAT(sink_.lines(), ElementsAre());
  EXPECT_FALSE(sink_.watching());
}

TEST_F(StreamingListTest, WithItsEndItIsAWatch) {
  client_.OnWatchThatStays(EventJson("ADDED", PodJson("a", "7")) + LastOfAll("10"));
  StartStreaming();
  client_.Watches(1);
  Stop();
  EXPECT_THAT(sink_.lines(), ElementsAre("list a at 10"));
  EXPECT_TRUE(sink_.watching());
}

TEST_F(StreamingListTest, WhatGoesOrChangesMeanwhileIsAsItIsAtTheEnd) {
  client_.OnWatch(EventJson("ADDED", PodJson("a", "7")) + EventJson("ADDED", PodJson("b", "5")) + EventJson("DELETED", PodJson("b", "8")) +
                      EventJson("MODIFIED", PodJson("a", "9")) + LastOfAll("10"),
                  absl::OkStatus());
  StartStreaming();
  client_.Watches(2);
  EXPECT_THAT(sink_.lines(), ElementsAre("list a at 10"));
}

// However it ends, and though a server that is away before it has begun is asked in the same way again.
TEST_F(StreamingListTest, OneThatBreaksOffIsTheLast) {
  client_.OnWatch(EventJson("ADDED", PodJson("a", "7")), absl::UnavailableError("connection reset"));
  client_.OnList(ListJson({PodJson("a", "7")}, "10"));
  StartStreaming();
  EXPECT_FALSE(client_.Watches(2)[1].send_initial_events);
  EXPECT_THAT(sink_.lines(), ElementsAre("failed", "list a at 10"));
}

// A proxy that drops bookmarks would have a stream begun again for ever.
TEST_F(StreamingListTest, OneThatEndsBeforeItsEndIsTheLast) {
  client_.OnWatch(EventJson("ADDED", PodJson("a", "7")), absl::OkStatus());
  client_.OnList(ListJson({PodJson("a", "7")}, "10"));
  client_.OnWatch(BookmarkJson("11"), Error(410, "Expired"));
  client_.OnList(ListJson({}, "20"));
  StartStreaming();
  Await(2, 3);
  const auto watches = client_.Watches(3);
  EXPECT_TRUE(watches[0].send_initial_events);
  EXPECT_FALSE(watches[1].send_initial_events);
  EXPECT_EQ(client_.Lists(2)[1].resource_version, "11");
  EXPECT_THAT(sink_.lines(), ElementsAre("list a at 10", "at 11", "failed", "list at 20"));
}

TEST_F(StreamingListTest, AServerThatDoesNotKnowItIsAskedForAList) {
  client_.OnWatch([](const WatchOptions&, WatchSink&, const std::stop_token&) { return Error(422, "Invalid"); });
  client_.OnList(ListJson({PodJson("a", "7")}, "10"));
  StartStreaming();
  client_.Watches(2);
  EXPECT_THAT(clock_.waits(), ElementsAre());  // at once
  EXPECT_THAT(sink_.lines(), ElementsAre("failed", "list a at 10"));
}

TEST_F(StreamingListTest, SilenceOfHalfAMinuteEndsItButNotTheWatchThatFollows) {
  std::vector<absl::Duration> idle;
  client_.OnWatch([&](const WatchOptions&, WatchSink& sink, const std::stop_token&) {
    (void)sink.OnOpen();
    idle.push_back(sink.IdleTimeout());
    (void)sink.OnData(EventJson("ADDED", PodJson("a", "7")));
    idle.push_back(sink.IdleTimeout());
    (void)sink.OnData(LastOfAll("10"));
    idle.push_back(sink.IdleTimeout());
    return absl::OkStatus();
  });
  StartStreaming();
  client_.Watches(2);
  EXPECT_THAT(idle, ElementsAre(absl::Seconds(30), absl::Seconds(30), absl::Seconds(150)));
}

TEST_F(StreamingListTest, AServerThatIsAwayOrBusyIsAskedAgainInTheSameWay) {
  for (const absl::Status& why : {absl::UnavailableError("connection refused"), Error(429, "TooManyRequests")}) {
    client_.OnWatch([why](const WatchOptions&, WatchSink&, const std::stop_token&) { return why; });
  }
  client_.OnWatchOfASecond(LastOfAll("10"), clock_);
  StartStreaming();
  const auto watches = client_.Watches(4);
  EXPECT_TRUE(watches[2].send_initial_events);
  EXPECT_EQ(clock_.waits().size(), 2u);
  EXPECT_THAT(sink_.lines(), ElementsAre("failed", "failed", "list at 10"));
}

TEST_F(StreamingListTest, AfterAnExpiredVersionItIsNoOlderThanWhatWasSeen) {
  client_.OnWatch(LastOfAll("10") + EventJson("ERROR", StatusJson(410, "Expired", "too old")), absl::OkStatus());
  client_.OnWatch(EventJson("ADDED", PodJson("a", "15")) + LastOfAll("20"), absl::OkStatus());
  StartStreaming();
  const auto watches = client_.Watches(3);
  EXPECT_TRUE(watches[1].send_initial_events);
  EXPECT_EQ(watches[1].resource_version, "10");
  EXPECT_THAT(sink_.lines(), ElementsAre("list at 10", "failed", "list a at 20"));
}

// Versions in the middle of it say nothing of what is there.
TEST_F(StreamingListTest, TheListAfterOneThatBrokeOffIsAskedForFromWhereThatWas) {
  client_.OnWatch(EventJson("ADDED", PodJson("a", "7")) + BookmarkJson("8"), absl::UnavailableError("connection reset"));
  StartStreaming();
  EXPECT_EQ(client_.Lists(1)[0].resource_version, "0");
  Stop();
  client_.Forget();
  client_.OnWatch(LastOfAll("10") + EventJson("ERROR", StatusJson(410, "Expired", "too old")), absl::OkStatus());
  client_.OnWatch(EventJson("ADDED", PodJson("a", "15")) + BookmarkJson("16"), absl::UnavailableError("connection reset"));
  StartStreaming();
  EXPECT_EQ(client_.Lists(1)[0].resource_version, "10");
}

TEST_F(StreamingListTest, OnceListedAnewItGoesOnFromWhatWasSeen) {
  client_.OnWatchThatStays(LastOfAll("10"));
  StartStreaming();
  client_.Watches(1);
  reflector_->StartOver();
  client_.OnWatch(LastOfAll("20") + EventJson("ERROR", StatusJson(410, "Expired", "too old")), absl::OkStatus());
  const auto watches = client_.Watches(3);
  EXPECT_EQ(watches[1].resource_version, "") << "what the cache has is wrong: only the newest state will do";
  EXPECT_EQ(watches[2].resource_version, "20");
}

TEST_F(StreamingListTest, MoreThanMayBeKeptIsCutOff) {
  client_.OnWatch(EventJson("ADDED", PodJson("a", "5")) + EventJson("ADDED", PodJson("b", "6")) + EventJson("ADDED", PodJson("c", "7")) +
                      LastOfAll("10"),
                  absl::OkStatus());
  StartStreaming({.max_objects = 2});
  client_.Lists(1);
  EXPECT_THAT(sink_.lines(), ElementsAre("failed"));
}

TEST_F(StreamingListTest, MoreBytesThanMayBeKeptAreCutOff) {
  client_.OnWatch(EventJson("ADDED", PodJson("a", "5")) + EventJson("ADDED", PodJson("b", "6")) + EventJson("ADDED", PodJson("c", "7")) +
                      LastOfAll("10"),
                  absl::OkStatus());
  StartStreaming({.max_bytes = 2 * BytesOfOne()});
  client_.Lists(1);
  EXPECT_THAT(sink_.lines(), ElementsAre("failed"));
}

TEST_F(StreamingListTest, WhatGoesOrChangesMeanwhileTakesNoRoom) {
  client_.OnWatch(EventJson("ADDED", PodJson("a", "5")) + EventJson("ADDED", PodJson("b", "6")) + EventJson("MODIFIED", PodJson("b", "7")) +
                      EventJson("DELETED", PodJson("b", "8")) + EventJson("ADDED", PodJson("c", "9")) + LastOfAll("10"),
                  absl::OkStatus());
  StartStreaming({.max_objects = 2, .max_bytes = 2 * BytesOfOne()});
  client_.Watches(2);
  EXPECT_THAT(sink_.lines(), ElementsAre(AnyOf("list a c at 10", "list c a at 10")));
}

TEST_F(StreamingListTest, ObjectsThatCannotBeReadTakeRoom) {
  client_.OnWatch(
      EventJson("ADDED", BrokenPod("x")) + EventJson("ADDED", BrokenPod("y")) + EventJson("ADDED", PodJson("a", "7")) + LastOfAll("10"),
      absl::OkStatus());
  StartStreaming({.max_objects = 2});
  client_.Lists(1);
  EXPECT_THAT(sink_.lines(), ElementsAre("failed"));
}

TEST_F(StreamingListTest, AnObjectIsReadableOrNotAsItIsAtTheEnd) {
  client_.OnWatch(EventJson("ADDED", BrokenPod("x")) + EventJson("MODIFIED", PodJson("x", "7")) + EventJson("ADDED", PodJson("y", "5")) +
                      EventJson("MODIFIED", BrokenPod("y")) + EventJson("ADDED", BrokenPod("z")) + EventJson("DELETED", BrokenPod("z")) +
                      LastOfAll("10"),
                  absl::OkStatus());
  StartStreaming();
  client_.Watches(2);
  EXPECT_THAT(sink_.lines(), ElementsAre("list x, unreadable y at 10"));
}

TEST_F(StreamingListTest, AnObjectThatCannotBeReadIsThereAllTheSame) {
  client_.OnWatch(EventJson("ADDED", BrokenPod("x")) + EventJson("ADDED", PodJson("a", "5")) + LastOfAll("10"), absl::OkStatus());
  StartStreaming();
  client_.Watches(2);
  EXPECT_THAT(sink_.lines(), ElementsAre("list a, unreadable x at 10"));
  EXPECT_THAT(registry_.Text(), HasSubstr("fusionllm_informer_unreadable_total{cluster=\"c\",resource=\"pods\"} 1\n"));
}

}  // namespace
}  // namespace fusionllm::kube
