#include "lib/kube/watch/informer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <latch>
#include <mutex>

#include "lib/kube/api/api_error.h"
#include "lib/kube/testing/fake_clock.h"
#include "lib/kube/watch/testing/objects.h"
#include "lib/kube/watch/testing/scripted_client.h"

namespace fusionllm::kube {
namespace {

using testing::BookmarkJson;
using ::testing::ElementsAre;
using testing::EventJson;
using ::testing::HasSubstr;
using testing::ListJson;
using testing::PodJson;
using ::testing::UnorderedElementsAre;

// What handlers got, as text.
class EventLines {
 public:
  void Tell(const InformerEvent& event) {
    const std::string kind = event.kind == InformerEvent::Kind::kAdded ? "+" : event.kind == InformerEvent::Kind::kUpdated ? "~" : "-";
    const std::lock_guard lock(mutex_);
    lines_.push_back(absl::StrCat(kind, event.object->meta.name, "@", event.object->meta.resource_version, event.initial ? " initial" : "",
                                  event.resync ? " resync" : "", event.old == nullptr ? "" : " was " + event.old->meta.resource_version));
    changed_.notify_all();
  }
  // Blocks until there are so many, and gives all.
  std::vector<std::string> Lines(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return lines_.size() >= count; });
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

class InformerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Informer> Make() {
    return std::make_unique<Informer>(client_, clock_, &metrics_,
                                      Informer::Options{.cluster = "paris", .scope = {.resource = testing::Pods()}, .decode = DecodePod});
  }
  // Goes on as soon as the informer waits before its next attempt.
  template <class Until>
  void PassTimeUntil(const Until& until) {
    while (!until()) {
      clock_.Advance(absl::Milliseconds(100));
      std::this_thread::yield();
    }
  }

  testing::FakeClock clock_;
  metrics::Registry registry_{"p", "1"};
  InformerMetrics metrics_{registry_};
  testing::ScriptedClient client_;
  EventLines events_;
};

TEST_F(InformerTest, TellsWhatThereIsAndWhatChanges) {
  client_.OnList(ListJson({PodJson("a", "5"), PodJson("b", "6")}, "10"));
  client_.OnWatchThatStays(EventJson("ADDED", PodJson("c", "11")) + EventJson("MODIFIED", PodJson("a", "12")) +
                           EventJson("DELETED", PodJson("b", "13")) + BookmarkJson("20"));
  const auto informer = Make();
  // Everything about one object is delivered as one change while the handler is busy: so it waits for the first list to be delivered.
  std::latch open(1);
  informer->AddHandler([&](const InformerEvent& event) {
    open.wait();
    events_.Tell(event);
  });
  informer->Start();
  while (informer->resource_version() != "20") std::this_thread::yield();
  open.count_down();
  // The first object had been taken for telling before the changes came, or not: either way the end is the same.
  while (events_.Lines(1).size() < 2) std::this_thread::yield();
  EXPECT_TRUE(informer->WaitForSync(absl::InfiniteDuration()));
  EXPECT_EQ(informer->size(), 2u);
  EXPECT_EQ(informer->Get({"ns", "a"})->meta.resource_version, "12");
  EXPECT_EQ(informer->Get({"ns", "b"}), nullptr);
  EXPECT_NE(informer->Get({"ns", "c"}), nullptr);
}

TEST_F(InformerTest, DispatchesChangesInOrder) {
  client_.OnList(ListJson({PodJson("a", "5")}, "10"));
  const auto informer = Make();
  informer->AddHandler([&](const InformerEvent& event) { events_.Tell(event); });
  informer->Start();
  EXPECT_THAT(events_.Lines(1), ElementsAre("+a@5 initial"));
  client_.OnWatch([&](const WatchOptions&, WatchSink& sink, const std::stop_token&) {
    sink.OnOpen().IgnoreError();
    sink.OnData(EventJson("MODIFIED", PodJson("a", "11"))).IgnoreError();
    events_.Lines(2);
    sink.OnData(EventJson("DELETED", PodJson("a", "12"))).IgnoreError();
    events_.Lines(3);
    sink.OnData(EventJson("ADDED", PodJson("a", "13", "another"))).IgnoreError();
    return absl::OkStatus();
  });
  EXPECT_THAT(events_.Lines(4), ElementsAre("+a@5 initial", "~a@11 was 5", "-a@12 was 11", "+a@13"));
}

TEST_F(InformerTest, SlowHandlerGetsCoalescedEvents) {
  client_.OnList(ListJson({PodJson("slow", "1")}, "10"));
  const auto informer = Make();
  std::latch entered(1), leave(1);
  informer->AddHandler([&](const InformerEvent& event) {
    if (event.initial) {
      entered.count_down();
      leave.wait();
    }
    events_.Tell(event);
  });
  informer->Start();
  entered.wait();
  std::string changes = EventJson("ADDED", PodJson("short", "11")) + EventJson("ADDED", PodJson("b", "12"));
  for (int version = 13; version < 500; ++version) changes += EventJson("MODIFIED", PodJson("b", std::to_string(version)));
  changes += EventJson("DELETED", PodJson("short", "500"));  // came and went: not worth telling
  changes += EventJson("DELETED", PodJson("slow", "501"));   // made again under the same name: two changes
  changes += EventJson("ADDED", PodJson("slow", "502", "another uid"));
  client_.OnWatchThatStays(changes + BookmarkJson("503"));
  while (informer->resource_version() != "503") std::this_thread::yield();  // though the handler has not come back
  EXPECT_EQ(informer->size(), 2u);
  EXPECT_THAT(registry_.Text(), HasSubstr("fusionllm_informer_queued_items{cluster=\"paris\",resource=\"pods\"} 3\n"));
  clock_.Advance(absl::Seconds(5));
  leave.count_down();
  EXPECT_THAT(events_.Lines(4), ElementsAre("+slow@1 initial", "+b@499", "-slow@501 was 1", "+slow@502"));
  informer->Stop();  // the last handler has come back
  const std::string text = registry_.Text();
  EXPECT_THAT(text, HasSubstr("fusionllm_informer_queued_items{cluster=\"paris\",resource=\"pods\"} 0\n"));
  // The object that the handler was busy with, and three that waited meanwhile.
  EXPECT_THAT(text, HasSubstr("fusionllm_informer_processing_latency_seconds_count{cluster=\"paris\",resource=\"pods\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("fusionllm_informer_processing_latency_seconds_sum{cluster=\"paris\",resource=\"pods\"} 20\n"));
}

TEST_F(InformerTest, SyncedAfterFirstListIsDispatched) {
  const auto informer = Make();
  std::latch entered(1), leave(1);
  informer->AddHandler([&](const InformerEvent&) {
    entered.count_down();
    leave.wait();
  });
  informer->Start();
  EXPECT_FALSE(informer->WaitForSync(absl::ZeroDuration()));  // a cluster that never answers holds nothing up for ever
  client_.OnList(ListJson({PodJson("a", "5")}, "10"));
  entered.wait();
  EXPECT_EQ(informer->size(), 1u);
  EXPECT_TRUE(informer->State().synced);
  EXPECT_FALSE(informer->HasSynced());
  leave.count_down();
  EXPECT_TRUE(informer->WaitForSync(absl::InfiniteDuration()));
  EXPECT_TRUE(informer->HasSynced());
}

TEST_F(InformerTest, AnEmptyListSyncs) {
  client_.OnList(ListJson({}, "10"));
  const auto informer = Make();
  informer->AddHandler([&](const InformerEvent& event) { events_.Tell(event); });
  informer->Start();
  EXPECT_TRUE(informer->WaitForSync(absl::InfiniteDuration()));
}

TEST_F(InformerTest, LateHandlerGetsAllObjects) {
  client_.OnList(ListJson({PodJson("a", "5"), PodJson("b", "6")}, "10"));
  const auto informer = Make();
  informer->Start();
  ASSERT_TRUE(informer->WaitForSync(absl::InfiniteDuration()));
  informer->AddHandler([&](const InformerEvent& event) { events_.Tell(event); });
  EXPECT_THAT(events_.Lines(2), UnorderedElementsAre("+a@5 initial", "+b@6 initial"));
  EXPECT_TRUE(informer->WaitForSync(absl::InfiniteDuration()));
}

TEST_F(InformerTest, ReportsDeletionsMissedWhileDisconnected) {
  client_.OnList(ListJson({PodJson("gone", "5"), PodJson("same", "6"), PodJson("changed", "7"), PodJson("remade", "8")}, "10"));
  client_.OnWatch("", ToStatus({.code = 410, .reason = "Expired", .message = "too old"}));
  client_.OnList(
      ListJson({PodJson("same", "6"), PodJson("changed", "30"), PodJson("new", "31"), PodJson("remade", "32", "another")}, "40"));
  const auto informer = Make();
  informer->AddHandler([&](const InformerEvent& event) { events_.Tell(event); });
  informer->Start();
  ASSERT_TRUE(informer->WaitForSync(absl::InfiniteDuration()));
  PassTimeUntil([&] { return informer->resource_version() == "40"; });
  const std::vector<std::string> lines = events_.Lines(9);
  EXPECT_THAT(std::vector<std::string>(lines.begin() + 4, lines.end()),
              UnorderedElementsAre("-gone@5 was 5", "~changed@30 was 7", "+new@31", "-remade@8 was 8", "+remade@32"));
}

TEST_F(InformerTest, DeletedEventCarriesLastStateOfSameUid) {
  client_.OnList(ListJson({PodJson("busy", "1"), PodJson("listed", "2"), PodJson("watched", "3"), PodJson("twice", "4")}, "10"));
  const auto informer = Make();
  std::latch entered(1), leave(1);
  informer->AddHandler([&](const InformerEvent& event) {
    if (event.object->meta.resource_version == "11") {
      entered.count_down();
      leave.wait();
    }
    events_.Tell(event);
  });
  informer->Start();
  ASSERT_TRUE(informer->WaitForSync(absl::InfiniteDuration()));
  client_.OnWatch([&](const WatchOptions&, WatchSink& sink, const std::stop_token&) {
    sink.OnOpen().IgnoreError();
    sink.OnData(EventJson("MODIFIED", PodJson("busy", "11"))).IgnoreError();
    entered.wait();  // from here on nothing is delivered
    sink.OnData(EventJson("MODIFIED", PodJson("listed", "12")) + EventJson("MODIFIED", PodJson("watched", "13")) +
                EventJson("DELETED", PodJson("watched", "14")) + EventJson("ADDED", PodJson("watched", "15", "another")) +
                EventJson("MODIFIED", PodJson("watched", "16", "another")) + EventJson("DELETED", PodJson("twice", "17")) +
                EventJson("ADDED", PodJson("twice", "18", "another")) + EventJson("DELETED", PodJson("twice", "19", "another")))
        .IgnoreError();
    return ToStatus({.code = 410, .reason = "Expired", .message = "too old"});
  });
  client_.OnList(ListJson({PodJson("busy", "11"), PodJson("listed", "32", "another"), PodJson("watched", "16", "another")}, "40"));
  PassTimeUntil([&] { return informer->resource_version() == "40"; });
  leave.count_down();
  const std::vector<std::string> lines = events_.Lines(10);
  EXPECT_THAT(std::vector<std::string>(lines.begin() + 4, lines.end()),
              ElementsAre("~busy@11 was 1", "-listed@12 was 2", "+listed@32", "-watched@14 was 3", "+watched@16", "-twice@17 was 4"));
}

TEST_F(InformerTest, AnObjectThatCannotBeReadIsNotTakenForDeleted) {
  const std::string broken = R"({"metadata":{"name":"a","namespace":"ns","resourceVersion":"30"},"status":{"phase":[]}})";
  client_.OnList(ListJson({PodJson("a", "5")}, "10"));
  client_.OnWatch("", ToStatus({.code = 410, .reason = "Expired", .message = "too old"}));
  client_.OnList(ListJson({broken, PodJson("b", "31")}, "40"));
  const auto informer = Make();
  informer->Start();
  ASSERT_TRUE(informer->WaitForSync(absl::InfiniteDuration()));
  PassTimeUntil([&] { return informer->resource_version() == "40"; });
  EXPECT_EQ(informer->size(), 2u);
  EXPECT_EQ(informer->Get({"ns", "a"})->meta.resource_version, "5");
  EXPECT_THAT(registry_.Text(), HasSubstr("fusionllm_informer_unreadable_total{cluster=\"paris\",resource=\"pods\"} 1\n"));
}

TEST_F(InformerTest, TellsAllAgainFromItsCacheNowAndThen) {
  client_.OnList(ListJson({PodJson("a", "5"), PodJson("b", "6")}, "10"));
  const auto informer = Make();
  informer->AddHandler([&](const InformerEvent& event) { events_.Tell(event); }, absl::Minutes(10));
  informer->Start();
  ASSERT_TRUE(informer->WaitForSync(absl::InfiniteDuration()));
  clock_.Advance(absl::Minutes(10));
  const std::vector<std::string> lines = events_.Lines(4);
  EXPECT_THAT(std::vector<std::string>(lines.begin() + 2, lines.end()), UnorderedElementsAre("~a@5 resync was 5", "~b@6 resync was 6"));
  EXPECT_EQ(client_.Lists(1).size(), 1u);  // without asking the server
}

TEST_F(InformerTest, TellsWhereItStands) {
  client_.OnList(ListJson({PodJson("a", "5")}, "10"));
  client_.OnWatchThatStays(EventJson("ADDED", PodJson("b", "11")));
  {
    const auto informer = Make();
    informer->AddHandler([&](const InformerEvent& event) { events_.Tell(event); });
    EXPECT_FALSE(informer->State().watching);
    informer->Start();
    events_.Lines(2);
    EXPECT_TRUE(informer->State().watching);
    const std::string text = registry_.Text();
    EXPECT_THAT(text, HasSubstr("fusionllm_informer_store_objects{cluster=\"paris\",resource=\"pods\"} 2\n"));
    EXPECT_THAT(text, HasSubstr("fusionllm_informer_store_resource_version{cluster=\"paris\",resource=\"pods\"} 11\n"));
    EXPECT_THAT(text, HasSubstr("fusionllm_relists_total{cluster=\"paris\",resource=\"pods\"} 1\n"));
    EXPECT_THAT(text, HasSubstr("fusionllm_cluster_watch_last_event_timestamp_seconds{cluster=\"paris\",resource=\"pods\"} 1700000000\n"));
  }
  EXPECT_THAT(registry_.Text(), ::testing::Not(HasSubstr("fusionllm_informer_store_objects{")));
}

TEST_F(InformerTest, ComparesItselfWithTheServer) {
  client_.OnList(ListJson({PodJson("a", "5"), PodJson("b", "6")}, "10"));
  const auto informer = Make();
  EXPECT_FALSE(informer->IsConsistent().ok());
  informer->Start();
  ASSERT_TRUE(informer->WaitForSync(absl::InfiniteDuration()));
  const auto partial = [](const std::string& version_of_b, const std::string& name) {
    return ListJson({PodJson(name, version_of_b), PodJson("a", "5")}, "10", "", "PartialObjectMetadataList");
  };
  client_.OnList(partial("6", "b"));
  EXPECT_TRUE(informer->IsConsistent().value());
  const ListOptions asked = client_.Lists(2)[1];
  EXPECT_EQ(asked.resource_version, "10");
  EXPECT_EQ(asked.resource_version_match, "Exact");
  EXPECT_TRUE(asked.metadata_only);
  client_.OnList(partial("7", "b"));  // another version of it
  EXPECT_FALSE(informer->IsConsistent().value());
  client_.OnList(partial("6", "c"));  // another object
  EXPECT_FALSE(informer->IsConsistent().value());
  client_.OnListError(ToStatus({.code = 410, .reason = "Expired", .message = "too old"}));  // cannot be said
  EXPECT_FALSE(informer->IsConsistent().ok());
  EXPECT_THAT(registry_.Text(), HasSubstr("fusionllm_informer_divergence_total{cluster=\"paris\",resource=\"pods\"} 2\n"));
}

// What others have made under our label may be anything, and is no reason to list all again every ten minutes.
TEST_F(InformerTest, WhatCannotBeReadIsNotCompared) {
  const auto broken = [](const std::string& name, const std::string& version) {
    return absl::StrCat(R"({"kind":"Pod","metadata":{"name":")", name, R"(","namespace":"ns","resourceVersion":")", version,
                        R"("},"status":5})");
  };
  client_.OnList(ListJson({broken("from-the-list", "5"), PodJson("breaks", "6"), PodJson("heals", "7"), PodJson("good", "8")}, "10"));
  client_.OnWatchThatStays(EventJson("MODIFIED", broken("breaks", "11")) + EventJson("MODIFIED", broken("heals", "12")) +
                           EventJson("ADDED", broken("from-the-watch", "13")) + EventJson("MODIFIED", PodJson("heals", "14")));
  const auto informer = Make();
  informer->Start();
  while (informer->resource_version() != "14") std::this_thread::yield();
  const auto server_has = [&](const std::string& version_of_healed) {
    client_.OnList(ListJson({PodJson("from-the-list", "5"), PodJson("breaks", "11"), PodJson("heals", version_of_healed),
                             PodJson("from-the-watch", "13"), PodJson("good", "8")},
                            "14", "", "PartialObjectMetadataList"));
  };
  server_has("14");
  EXPECT_TRUE(informer->IsConsistent().value());
  server_has("12");
  EXPECT_FALSE(informer->IsConsistent().value()) << "it can be read again, and so is compared";
}

TEST_F(InformerTest, WhereTooMuchCannotBeReadNothingIsCompared) {
  std::string events;
  for (size_t i = 0; i <= Informer::kMaxUnreadable; ++i) {
    events += EventJson("ADDED", absl::StrCat(R"({"kind":"Pod","metadata":{"name":"p)", i, R"(","namespace":"ns","resourceVersion":")",
                                              11 + i, R"("},"status":5})"));
  }
  client_.OnList(ListJson({}, "10"));
  client_.OnWatchThatStays(events);
  const auto informer = Make();
  informer->Start();
  while (informer->resource_version() != std::to_string(11 + Informer::kMaxUnreadable)) std::this_thread::yield();
  client_.OnList(ListJson({}, "2000", "", "PartialObjectMetadataList"));
  EXPECT_EQ(informer->IsConsistent().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(client_.Lists(1).size(), 1u) << "the server was not asked";
}

// Its store was put back: no watch from a version that it has not reached will ever bring anything.
TEST_F(InformerTest, AServerWhoseNewestStateIsOlderIsAnotherThanTheCaches) {
  ApiError too_large = {.code = 504, .reason = "Timeout", .message = "Too large resource version: 10, current: 3"};
  const ApiError future = {.code = 500, .message = "etcdserver: mvcc: required revision is a future revision"};
  client_.OnList(ListJson({PodJson("a", "5")}, "10"));
  const auto informer = Make();
  informer->Start();
  ASSERT_TRUE(informer->WaitForSync(absl::InfiniteDuration()));
  for (const ApiError& error : {too_large, future}) {
    client_.OnListError(ToStatus(error));
    client_.OnList(ListJson({}, "3", "", "PartialObjectMetadataList"));
    EXPECT_FALSE(informer->IsConsistent().value()) << error.message;
    const ListOptions asked = client_.Lists(1).back();
    EXPECT_EQ(asked.resource_version, "") << "not a cache, which may lag behind";
    EXPECT_EQ(asked.limit, 1);
    client_.OnListError(ToStatus(error));
    client_.OnList(ListJson({}, "12", "", "PartialObjectMetadataList"));
    EXPECT_FALSE(informer->IsConsistent().ok()) << "another server had answered, which lags behind: " << error.message;
  }
  EXPECT_THAT(registry_.Text(), HasSubstr("fusionllm_informer_divergence_total{cluster=\"paris\",resource=\"pods\"} 2\n"));
}

TEST_F(InformerTest, StartsOverFromTheNewestStateWhenItIsAsked) {
  client_.OnList(ListJson({PodJson("a", "5")}, "10"));
  client_.OnWatchThatStays("");
  const auto informer = Make();
  informer->AddHandler([this](const InformerEvent& event) { events_.Tell(event); });
  informer->Start();
  ASSERT_TRUE(informer->WaitForSync(absl::InfiniteDuration()));
  client_.OnList(ListJson({PodJson("b", "6")}, "10"));
  informer->Relist();
  EXPECT_THAT(events_.Lines(3), UnorderedElementsAre("+a@5 initial", "+b@6", "-a@5 was 5"));
  EXPECT_EQ(client_.Lists(2)[1].resource_version, "") << "not from a cache, which may be wrong itself";
}

// Else all that watch a server would draw the same, and be back in the same moment after it was away.
TEST_F(InformerTest, NoTwoDrawTheSameTimes) {
  const auto draws = [this] {
    testing::ScriptedClient client;
    client.OnList(ListJson({}, "10"));
    for (int i = 0; i < 4; ++i) client.OnWatchOfASecond(BookmarkJson(std::to_string(11 + i)), clock_);
    Informer informer(client, clock_, &metrics_, {.scope = {.resource = testing::Pods()}, .decode = DecodePod});
    informer.Start();
    std::vector<absl::Duration> times;
    for (const WatchOptions& watch : client.Watches(5)) times.push_back(watch.server_timeout);
    return times;
  };
  EXPECT_NE(draws(), draws());
}

TEST_F(InformerTest, StopsAtOnceWhateverItWaitsFor) {
  const auto never_listed = Make();
  never_listed->Start();
  client_.Lists(1);
  never_listed->Stop();
  client_.OnListError(absl::UnavailableError("no route"));
  const auto backing_off = Make();
  backing_off->Start();
  while (backing_off->State().last_error.ok()) std::this_thread::yield();
  backing_off->Stop();
  client_.OnList(ListJson({}, "10"));
  const auto watching = Make();
  watching->Start();
  client_.Watches(1);
  watching->Stop();
}

}  // namespace
}  // namespace fusionllm::kube
