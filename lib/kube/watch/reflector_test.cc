#include "lib/kube/watch/reflector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "lib/kube/api/api_error.h"
#include "lib/kube/watch/testing/objects.h"
#include "lib/kube/watch/testing/reflector_fixture.h"

namespace fusionllm::kube {
namespace {

using testing::BookmarkJson;
using ::testing::ElementsAre;
using testing::Error;
using testing::EventJson;
using ::testing::HasSubstr;
using testing::ListJson;
using testing::PodJson;
using testing::ReflectorTest;
using testing::StatusJson;

TEST_F(ReflectorTest, ListsFromTheServersCacheAndWatchesFromThere) {
  client_.OnList(ListJson({PodJson("a", "5")}, "10"));
  Start({.resource = testing::Pods(), .ns = "ns", .label_selector = "origin=hub", .field_selector = "spec.nodeName=n"});
  const ListOptions list = client_.Lists(1)[0];
  EXPECT_EQ(list.resource_version, "0");
  EXPECT_EQ(list.limit, 0);  // a page of it would be read from the store behind the server
  EXPECT_EQ(list.label_selector, "origin=hub");
  EXPECT_EQ(list.field_selector, "spec.nodeName=n");
  const WatchOptions watch = client_.Watches(1)[0];
  EXPECT_EQ(watch.resource_version, "10");
  EXPECT_EQ(watch.label_selector, "origin=hub");
  EXPECT_EQ(watch.field_selector, "spec.nodeName=n");
  EXPECT_GE(watch.server_timeout, absl::Seconds(300));
  EXPECT_LE(watch.server_timeout, absl::Seconds(600));
}

TEST_F(ReflectorTest, GoesOnFromTheLastEventOrBookmark) {
  client_.OnList(ListJson({}, "10"));
  client_.OnWatch(EventJson("ADDED", PodJson("a", "11")), absl::OkStatus());
  client_.OnWatch(BookmarkJson("99"), absl::OkStatus());
  client_.OnWatch(BookmarkJson("100") + BookmarkJson("98") + EventJson("MODIFIED", PodJson("a", "9")), absl::OkStatus());
  Start();
  std::vector<std::string> versions;
  for (const WatchOptions& watch : client_.Watches(4)) versions.push_back(watch.resource_version);
  EXPECT_THAT(versions, ElementsAre("10", "11", "99", "100"));  // and never back; as text 99 would be beyond 100
}

TEST_F(ReflectorTest, WatchTimesDifferSoThatNotAllEndAtOnce) {
  client_.OnList(ListJson({}, "10"));
  for (int i = 0; i < 3; ++i) client_.OnWatch(BookmarkJson("11"), absl::OkStatus());
  Start();
  const auto watches = client_.Watches(3);
  EXPECT_NE(watches[0].server_timeout, watches[1].server_timeout);
  EXPECT_NE(watches[1].server_timeout, watches[2].server_timeout);
}

// 410 comes as an answer to the watch, or inside its stream.
TEST_F(ReflectorTest, AnExpiredVersionLeadsToAListThatIsNoOlder) {
  client_.OnList(ListJson({}, "10"));
  client_.OnWatch([](const WatchOptions&, WatchSink&, const std::stop_token&) { return Error(410, "Expired"); });
  client_.OnList(ListJson({}, "20"));
  client_.OnWatch(EventJson("ADDED", PodJson("a", "21")) + EventJson("ERROR", StatusJson(410, "Expired", "too old")), absl::OkStatus());
  client_.OnList(ListJson({}, "30"));
  Start();
  Await(3, 3);
  const auto lists = client_.Lists(3);
  EXPECT_EQ(lists[1].resource_version, "10");
  EXPECT_EQ(lists[2].resource_version, "21");
  EXPECT_THAT(sink_.lines(), ElementsAre("list at 10", "failed", "list at 20", "put a", "failed", "list at 30"));
}

TEST_F(ReflectorTest, AListWhoseVersionIsGoneOrUnknownAsksForTheNewestAtOnce) {
  ApiError too_large = {.code = 504, .reason = "Timeout", .message = "Too large resource version: 10, current: 3"};
  too_large.causes = {{.reason = "ResourceVersionTooLarge", .message = "Too large resource version"}};
  for (const absl::Status& refusal : {Error(410, "Expired"), Error(410, "Gone"), ToStatus(too_large)}) {
    client_.OnList(ListJson({}, "10"));
    client_.OnWatch(BookmarkJson("11"), Error(410, "Expired"));
    client_.OnListError(refusal);
    client_.OnList(ListJson({}, "40"));
    Start();
    client_.Watches(2);  // without time passing
    const auto lists = client_.Lists(3);
    EXPECT_EQ(lists[lists.size() - 2].resource_version, "11") << refusal;
    EXPECT_EQ(lists.back().resource_version, "") << refusal;
    EXPECT_EQ(lists.back().limit, 500) << refusal;
    Stop();
    client_.Forget();
  }
}

TEST_F(ReflectorTest, PagesAreFollowedAndAnExpiredTokenStartsTheListOver) {
  client_.OnListError(Error(410, "Expired"));  // of version 0: straight to the newest state, by pages
  client_.OnList(ListJson({PodJson("a", "5")}, "40", "token-1"));
  client_.OnList(ListJson({PodJson("b", "6")}, "40", "token-2"));
  client_.OnListError(Error(410, "Expired"));
  client_.OnList(ListJson({PodJson("a", "5"), PodJson("b", "6"), PodJson("c", "41")}, "50"));
  Start();
  client_.Watches(1);
  const auto lists = client_.Lists(5);
  EXPECT_EQ(lists[1].continue_token, "");
  EXPECT_EQ(lists[2].continue_token, "token-1");
  EXPECT_EQ(lists[3].continue_token, "token-2");
  EXPECT_EQ(lists[4].continue_token, "");
  EXPECT_EQ(lists[4].limit, 0);
  EXPECT_THAT(sink_.lines(), ElementsAre("list a b c at 50"));  // each once, none left out
}

TEST_F(ReflectorTest, PagesWithoutEndAreAFailure) {
  for (int i = 0; i < 10; ++i) client_.OnList(ListJson({}, "40", "token"));
  client_.OnList(ListJson({}, "50"));
  Start({.resource = testing::Pods()}, {.max_sparse_pages = 10});
  client_.Watches(1);
  EXPECT_EQ(client_.Lists(11).size(), 11u);
  EXPECT_THAT(sink_.lines(), ElementsAre("failed", "list at 50"));
}

TEST_F(ReflectorTest, PagesThatHoldSomethingMayBeMany) {
  std::vector<std::string> ten;
  for (int i = 0; i < 10; ++i) ten.push_back(PodJson(absl::StrCat("p", i), "5"));
  for (int i = 0; i < 20; ++i) client_.OnList(ListJson(ten, "40", "token"));
  client_.OnList(ListJson({}, "40"));
  Start({.resource = testing::Pods()}, {.max_sparse_pages = 2});
  client_.Watches(1);
  EXPECT_EQ(client_.Lists(21).size(), 21u);
}

TEST_F(ReflectorTest, AListThatExpiresAgainAndAgainIsAFailure) {
  for (int i = 0; i < 2; ++i) {
    client_.OnList(ListJson({PodJson("a", "5")}, "40", "token"));
    client_.OnListError(Error(410, "Expired"));
  }
  client_.OnListError(Error(410, "Expired"));  // it is asked for the newest then, which is none of the pages either
  client_.OnList(ListJson({}, "50"));
  Start();
  client_.Watches(1);
  EXPECT_THAT(sink_.lines(), ElementsAre("failed", "list at 50"));
}

TEST_F(ReflectorTest, ObjectsThatHaveNoNameCountToo) {
  client_.OnList(ListJson({"7", "[]", "null"}, "40"));
  client_.OnList(ListJson({}, "50"));
  Start({.resource = testing::Pods()}, {.max_objects = 2});
  client_.Watches(1);
  EXPECT_THAT(sink_.lines(), ElementsAre("failed", "list at 50"));
}

TEST_F(ReflectorTest, ABrokenConnectionIsNoReasonToListAgain) {
  client_.OnList(ListJson({}, "10"));
  ApiError throttled = {.code = 429, .reason = "TooManyRequests", .message = "busy"};
  for (const absl::Status& status : {absl::UnavailableError("connection refused"), absl::DeadlineExceededError("silence"),
                                     ToStatus(throttled), Error(500, "InternalError")}) {
    client_.OnWatch([status](const WatchOptions&, WatchSink&, const std::stop_token&) { return status; });
  }
  Start();
  Await(1, 5);
  EXPECT_EQ(client_.Lists(1).size(), 1u);
}

TEST_F(ReflectorTest, WaitsLongerWithEachFailureAndByChance) {
  client_.OnList(ListJson({}, "10"));
  for (int i = 0; i < 20; ++i) {
    client_.OnWatch([](const WatchOptions&, WatchSink&, const std::stop_token&) { return absl::UnavailableError("refused"); });
  }
  Start();
  Await(1, 21);
  absl::Duration least = absl::Milliseconds(800);
  double shares = 0;
  ASSERT_EQ(clock_.waits().size(), 20u);
  for (const absl::Duration wait : clock_.waits()) {
    EXPECT_GE(wait, least);
    EXPECT_LE(wait, 2 * least);
    shares += absl::FDivDuration(wait, least) - 1;
    least = std::min(2 * least, absl::Seconds(30));
  }
  EXPECT_GT(shares / 20, 0.2);  // the random part is really there
  EXPECT_LT(shares / 20, 0.8);
}

TEST_F(ReflectorTest, FailuresAreForgottenAfterAHealthyWatch) {
  client_.OnList(ListJson({}, "10"));
  for (int i = 0; i < 6; ++i) {
    client_.OnWatch([](const WatchOptions&, WatchSink&, const std::stop_token&) { return absl::UnavailableError("refused"); });
  }
  client_.OnWatch([this](const WatchOptions&, WatchSink& sink, const std::stop_token&) {
    clock_.Advance(absl::Minutes(2));
    sink.OnData(BookmarkJson("50")).IgnoreError();
    return absl::UnavailableError("broken");
  });
  Start();
  Await(1, 8);
  ASSERT_EQ(clock_.waits().size(), 7u);
  EXPECT_GE(clock_.waits()[5], absl::Seconds(25));
  EXPECT_LE(clock_.waits()[6], absl::Milliseconds(1600));
}

TEST_F(ReflectorTest, AnEmptyWatchThatEndsAtOnceIsAFailure) {
  client_.OnList(ListJson({}, "10"));
  for (int i = 0; i < 3; ++i) client_.OnWatch("", absl::OkStatus());
  client_.OnWatch(BookmarkJson("11"), absl::OkStatus());  // this one is none
  Start();
  Await(1, 5);
  ASSERT_EQ(clock_.waits().size(), 4u);  // instead of as many requests as the network takes
  EXPECT_GE(clock_.waits()[2], absl::Milliseconds(3200));
  EXPECT_EQ(clock_.waits()[3], absl::Seconds(1)) << "no failure, and no more than one in a second";
  EXPECT_THAT(registry_.Text(), HasSubstr("fusionllm_watch_restarts_total{cluster=\"c\",reason=\"short\",resource=\"pods\"} 3\n"));
  EXPECT_THAT(registry_.Text(), HasSubstr("fusionllm_watch_restarts_total{cluster=\"c\",reason=\"timeout\",resource=\"pods\"} 1\n"));
}

// Else a server whose lists are always too old to be watched would be asked as often as the network takes.
TEST_F(ReflectorTest, VersionsThatAreGoneAsSoonAsTheyAreListedAreFailures) {
  for (int i = 0; i < 6; ++i) {
    client_.OnList(ListJson({}, "1"));
    client_.OnWatch((i % 2 == 0 ? "" : BookmarkJson("2")) + EventJson("ERROR", StatusJson(410, "Expired", "too old")), absl::OkStatus());
  }
  Start();
  Await(7, 6);
  absl::Duration min = absl::Milliseconds(800);
  ASSERT_EQ(clock_.waits().size(), 6u);
  for (const absl::Duration wait : clock_.waits()) {
    EXPECT_GE(wait, min);
    min = std::min(2 * min, absl::Seconds(30));
  }
}

TEST_F(ReflectorTest, AVersionThatExpiredUnderALongWatchIsListedAgainAtOnce) {
  client_.OnList(ListJson({}, "1"));
  client_.OnWatch([this](const WatchOptions&, WatchSink& sink, const std::stop_token&) {
    clock_.Advance(absl::Minutes(1));
    return sink.OnData(EventJson("ERROR", StatusJson(410, "Expired", "too old")));
  });
  client_.OnList(ListJson({}, "20"));
  Start();
  Await(2, 2);
  EXPECT_TRUE(clock_.waits().empty());
}

TEST_F(ReflectorTest, WaitsAsLongAsTheServerAsks) {
  client_.OnList(ListJson({}, "10"));
  ApiError error = {.code = 429, .reason = "TooManyRequests", .message = "busy", .retry_after = absl::Seconds(60)};
  client_.OnWatch([error](const WatchOptions&, WatchSink&, const std::stop_token&) { return ToStatus(error); });
  Start();
  Await(1, 2);
  EXPECT_THAT(clock_.waits(), ElementsAre(absl::Seconds(60)));
}

TEST_F(ReflectorTest, SilenceCountsAsDeathOnlyWhereBookmarksWereSeen) {
  std::vector<absl::Duration> idle_timeouts;
  client_.OnList(ListJson({}, "10"));
  client_.OnWatch([&](const WatchOptions&, WatchSink& sink, const std::stop_token&) {
    idle_timeouts.push_back(sink.IdleTimeout());
    sink.OnData(EventJson("ADDED", PodJson("a", "11"))).IgnoreError();
    idle_timeouts.push_back(sink.IdleTimeout());
    sink.OnData(BookmarkJson("12")).IgnoreError();
    idle_timeouts.push_back(sink.IdleTimeout());
    return absl::OkStatus();
  });
  client_.OnWatch([&](const WatchOptions&, WatchSink& sink, const std::stop_token&) {
    idle_timeouts.push_back(sink.IdleTimeout());
    return absl::OkStatus();
  });
  Start();
  Await(1, 3);
  EXPECT_THAT(idle_timeouts, ElementsAre(absl::InfiniteDuration(), absl::InfiniteDuration(), absl::Seconds(150), absl::Seconds(150)));
}

TEST_F(ReflectorTest, IsMorePatientWithServersThatAreSlowToOpenAWatch) {
  client_.OnList(ListJson({}, "10"));
  for (int i = 0; i < 5; ++i) {
    client_.OnWatch([](const WatchOptions&, WatchSink&, const std::stop_token&) { return absl::DeadlineExceededError("no head"); });
  }
  client_.OnWatch(BookmarkJson("11"), absl::OkStatus());
  Start();
  Await(1, 7);
  std::vector<absl::Duration> timeouts;
  for (const WatchOptions& watch : client_.Watches(7)) timeouts.push_back(watch.header_timeout);
  EXPECT_THAT(timeouts, ElementsAre(absl::Minutes(1), absl::Minutes(2), absl::Minutes(4), absl::Minutes(8), absl::Minutes(10),
                                    absl::Minutes(10), absl::Minutes(1)));
}

TEST_F(ReflectorTest, OtherKindsAndGarbageAreRefused) {
  client_.OnList(ListJson({}, "10", "", "Table"));
  client_.OnList("<html>gateway</html>");
  client_.OnList(ListJson({}, "0"));
  client_.OnList(ListJson({}, "10"));
  client_.OnWatch(EventJson("ADDED", R"({"kind":"Table","metadata":{"name":"x","resourceVersion":"11"}})"), absl::OkStatus());
  client_.OnList(ListJson({}, "10"));
  client_.OnWatch("garbage\n", absl::OkStatus());
  client_.OnList(ListJson({}, "10"));
  Start();
  Await(6, 3);
  EXPECT_THAT(sink_.lines(), ElementsAre("failed", "failed", "failed", "list at 10", "failed", "list at 10", "failed", "list at 10"));
}

TEST_F(ReflectorTest, OneObjectThatCannotBeReadDoesNotStopTheOthers) {
  const std::string broken = R"({"kind":"Pod","metadata":{"name":"x","namespace":"ns","resourceVersion":"11"},"status":5})";
  client_.OnList(ListJson({broken, PodJson("a", "5")}, "10"));
  client_.OnWatch(
      EventJson("ADDED", broken) + EventJson("SOMETHING", broken) + EventJson("ADDED", PodJson("b", "12")) + EventJson("DELETED", broken),
      absl::OkStatus());
  Start();
  Await(1, 2);
  EXPECT_THAT(sink_.lines(), ElementsAre("list a, unreadable x at 10", "unreadable x@11", "put b", "delete x"));
  EXPECT_THAT(registry_.Text(), HasSubstr("fusionllm_informer_unreadable_total{cluster=\"c\",resource=\"pods\"} 4\n"));
}

TEST_F(ReflectorTest, AnEventOfAnUnknownTypeIsLoggedOnceForEachType) {
  const auto event = [](const std::string& type) { return EventJson(type, PodJson("a", "11")); };
  std::string many;
  for (int i = 0; i < 100; ++i) many += event(absl::StrCat("NUMBER-", i));
  client_.OnList(ListJson({}, "10"));
  client_.OnWatch(event("SOMETHING") + event("OTHER") + event("SOMETHING"), absl::OkStatus());
  client_.OnWatch(event("SOMETHING") + many, absl::OkStatus());
  ::testing::internal::CaptureStderr();
  Start();
  Await(1, 3);
  Stop();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("watch of pods: events of type \"SOMETHING\" are left out"));
  EXPECT_EQ(log.find("SOMETHING"), log.rfind("SOMETHING"));
  EXPECT_THAT(log, HasSubstr("\"OTHER\""));
  EXPECT_THAT(log, ::testing::Not(HasSubstr("NUMBER-99"))) << "a hostile server has names without end";
}

TEST_F(ReflectorTest, HugeAnswersAreCutOff) {
  client_.OnList(ListJson({PodJson("a", "5"), PodJson("b", "6"), PodJson("c", "7")}, "10"));
  client_.OnList(ListJson({PodJson(std::string(2000, 'x'), "5")}, "10"));
  client_.OnList(ListJson({}, "10"));
  client_.OnWatch(std::string(2000, 'x'), absl::OkStatus());
  Start({.resource = testing::Pods()}, {.max_object_bytes = 1000, .max_objects = 2});
  Await(3, 2);
  EXPECT_THAT(sink_.lines(), ElementsAre("failed", "failed", "list at 10", "failed"));
}

TEST_F(ReflectorTest, MetadataAloneCanBeAskedFor) {
  client_.OnList(ListJson({R"({"metadata":{"name":"a","resourceVersion":"5"}})"}, "10", "", "PartialObjectMetadataList"));
  client_.OnWatch(EventJson("ADDED", R"({"kind":"PartialObjectMetadata","metadata":{"name":"b","resourceVersion":"11"}})"),
                  absl::OkStatus());
  Start({.resource = testing::Pods(), .metadata_only = true});
  Await(1, 2);
  EXPECT_TRUE(client_.Lists(1)[0].metadata_only);
  EXPECT_TRUE(client_.Watches(1)[0].metadata_only);
  EXPECT_THAT(sink_.lines(), ElementsAre("list a at 10", "put b"));
}

}  // namespace
}  // namespace fusionllm::kube
