#include "lib/kube/events/event_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/testing/fake_clock.h"
#include "lib/kube/testing/unimplemented_client.h"

namespace fusionllm::kube {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Takes events in and remembers the requests.
class EventServer : public testing::UnimplementedClient {
 public:
  absl::StatusOr<std::string> Create(const Resource& resource, absl::string_view ns, absl::string_view body, const WriteOptions&,
                                     const CallOptions& call) override {
    EXPECT_EQ(resource.ApiVersion(), "events.k8s.io/v1");
    std::unique_lock lock(mutex_);
    while (held_ && !call.stop.stop_requested()) changed_.wait_for(lock, std::chrono::milliseconds(1));
    ++tries_;
    if (!failure_.ok() && failures_-- > 0) return failure_;
    created_.push_back(json::parse(body.begin(), body.end()));
    EXPECT_EQ(created_.back()["metadata"]["namespace"], std::string(ns));
    return std::string(body);
  }
  absl::StatusOr<std::string> Patch(const Resource&, const ObjectKey& key, PatchType type, absl::string_view body, const WriteOptions&,
                                    const CallOptions&) override {
    EXPECT_EQ(type, PatchType::kMerge);
    const std::lock_guard lock(mutex_);
    json patch = json::parse(body.begin(), body.end());
    patch["name"] = key.name;
    patches_.push_back(std::move(patch));
    return std::string(body);
  }
  void Fail(absl::Status status, int times) {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(status);
    failures_ = times;
  }
  void Hold(bool hold) {
    const std::lock_guard lock(mutex_);
    held_ = hold;
  }
  std::vector<json> created() const {
    const std::lock_guard lock(mutex_);
    return created_;
  }
  std::vector<json> patches() const {
    const std::lock_guard lock(mutex_);
    return patches_;
  }
  int tries() const {
    const std::lock_guard lock(mutex_);
    return tries_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<json> created_, patches_;
  absl::Status failure_;
  int failures_ = 0, tries_ = 0;
  bool held_ = false;
};

class EventRecorderTest : public ::testing::Test {
 protected:
  static Event Note(const std::string& note, const std::string& job = "job") {
    return {.regarding = {"fusionllm.io/v1alpha1", "FusionJob", {"ns", job}, "uid-" + job, "77"},
            .type = EventType::kWarning,
            .reason = "ExecutorLost",
            .action = "Replace",
            .note = note};
  }
  // So that the recorder's thread gets to run.
  static void Moment() {
    std::mutex mutex;
    std::condition_variable never;
    std::unique_lock lock(mutex);
    never.wait_for(lock, std::chrono::milliseconds(1));
  }
  // Until all that was recorded so far is done with, except for counts that are not due: events are taken one after the other. That one is
  // counted is seen before it is kept when that was.
  void Settle() {
    const std::string note = absl::StrCat("the last, ", ++settled_);
    recorder_->Record(Note(note, "another job"));
    while (server_.created().empty() || server_.created().back()["note"] != note) Moment();
  }
  void ExpectOutcome(const std::string& outcome, int count) {
    EXPECT_THAT(registry_.Text(), HasSubstr(absl::StrCat("fusionllm_events_total{outcome=\"", outcome, "\"} ", count, "\n")));
  }

  testing::FakeClock clock_;
  metrics::Registry registry_{"p", "1"};
  EventMetrics metrics_{registry_};
  EventServer server_;
  int settled_ = 0;
  std::unique_ptr<EventRecorder> recorder_ =
      std::make_unique<EventRecorder>(server_, clock_, &metrics_, "fusionllm.io/operator", "operator-0");
};

TEST_F(EventRecorderTest, AnEventIsWhatTheServerTakes) {
  Event event = Note("lost paris-0");
  event.related = {"v1", "Pod", {"ns", "pod-0"}, "uid-pod"};
  recorder_->Record(event);
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  ASSERT_EQ(server_.created().size(), 1u);
  json body = server_.created()[0];
  const std::string name = body["metadata"]["name"];
  EXPECT_THAT(name, ::testing::MatchesRegex("job\\.[0-9a-f]+"));
  body["metadata"].erase("name");
  EXPECT_EQ(body, json::parse(R"({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"namespace": "ns"},
    "eventTime": "2023-11-14T22:13:20.000000Z", "reportingController": "fusionllm.io/operator", "reportingInstance": "operator-0",
    "action": "Replace", "reason": "ExecutorLost", "note": "lost paris-0", "type": "Warning",
    "regarding": {"apiVersion": "fusionllm.io/v1alpha1", "kind": "FusionJob", "name": "job", "namespace": "ns", "uid": "uid-job", "resourceVersion": "77"},
    "related": {"apiVersion": "v1", "kind": "Pod", "name": "pod-0", "namespace": "ns", "uid": "uid-pod"}})"));
}

TEST_F(EventRecorderTest, EventsAboutThingsOfTheWholeClusterAreInDefault) {
  Event event = Note("unreachable");
  event.regarding = {"fusionllm.io/v1alpha1", "FusionCluster", {"", "tokyo"}, "uid"};
  recorder_->Record(event);
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  EXPECT_EQ(server_.created()[0]["metadata"]["namespace"], "default");
  EXPECT_FALSE(server_.created()[0]["regarding"].contains("namespace"));
}

TEST_F(EventRecorderTest, LongNotesAreCutBetweenCharacters) {
  std::string note(1023, 'x');
  recorder_->Record(Note(note + "€ and more"));
  recorder_->Record(Note(note + "y"));
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  EXPECT_EQ(server_.created()[0]["note"], note);
  EXPECT_EQ(server_.created()[1]["note"], note + "y");
}

TEST_F(EventRecorderTest, WhatRepeatsIsOneEventWithACount) {
  for (int i = 0; i < 5; ++i) {
    recorder_->Record(Note("lost"));
    clock_.Advance(absl::Seconds(1));
  }
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  ASSERT_EQ(server_.created().size(), 1u);
  const std::vector<json> patches = server_.patches();
  ASSERT_EQ(patches.size(), 2u);  // the first repetition at once, the others at the end
  EXPECT_EQ(patches[0]["series"]["count"], 2);
  EXPECT_EQ(patches[1]["series"]["count"], 5);
  EXPECT_EQ(patches[1]["name"], server_.created()[0]["metadata"]["name"]);
  EXPECT_EQ(patches[1]["series"]["lastObservedTime"], "2023-11-14T22:13:24.000000Z");
  ExpectOutcome("created", 1);
  ExpectOutcome("counted", 4);
}

TEST_F(EventRecorderTest, WhatDiffersInAnythingIsAnotherEvent) {
  std::vector<Event> events(10, Note("lost"));
  events[1].note = "lost again";
  events[2].type = EventType::kNormal;
  events[3].regarding.uid = "uid-of-another";
  events[4].regarding.key.ns = "elsewhere";
  events[5].regarding.api_version = "fusionllm.io/v1";
  events[6].regarding.kind = "FusionCluster";
  events[7].related = {"v1", "Pod", {"ns", "pod-0"}, "uid-pod"};
  events[8].related = {"v1", "Pod", {"ns", "pod-1"}, "uid-pod"};
  events[9].reason = absl::StrCat(events[0].reason, "R");  // the same letters one after the other
  events[9].action = events[0].action.substr(1);
  for (const Event& event : events) recorder_->Record(event);
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  EXPECT_EQ(server_.created().size(), events.size());
  EXPECT_THAT(server_.patches(), ::testing::IsEmpty());
}

TEST_F(EventRecorderTest, SeriesThatComeInTurnsAreCountedEachByItsOwnName) {
  Event newer = Note("lost");
  newer.regarding.resource_version = "78";  // the same event all the same
  for (const Event& event : {Note("lost"), Note("lost", "another job"), Note("slow"), newer, Note("slow"), Note("lost", "another job"),
                             Note("slow"), Note("slow")}) {
    recorder_->Record(event);
  }
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  const std::vector<json> created = server_.created();
  ASSERT_EQ(created.size(), 3u);
  std::map<std::string, int> counts;
  for (const json& patch : server_.patches()) counts[patch["name"]] = patch["series"]["count"];
  const auto name = [&](size_t i) { return created[i]["metadata"]["name"].get<std::string>(); };
  EXPECT_EQ(counts, (std::map<std::string, int>{{name(0), 2}, {name(1), 2}, {name(2), 4}}));
}

TEST_F(EventRecorderTest, ASeriesThatWentOnIsWrittenWhenItIsOver) {
  for (int i = 0; i < 4; ++i) recorder_->Record(Note("lost"));
  while (registry_.Text().find("outcome=\"counted\"} 3") == std::string::npos) Moment();
  while (server_.patches().empty()) Moment();
  clock_.Advance(absl::Minutes(6));
  while (server_.patches().size() < 2) Moment();
  EXPECT_EQ(server_.patches()[1]["series"]["count"], 4);
  recorder_->Record(Note("lost"));  // later than that it is another event
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  EXPECT_EQ(server_.created().size(), 2u);
}

TEST_F(EventRecorderTest, ASeriesThatGoesOnIsRefreshed) {
  for (int minutes = 0; minutes <= 40; minutes += 5) {
    recorder_->Record(Note("lost"));
    Settle();
    clock_.Advance(absl::Minutes(5));
  }
  ASSERT_EQ(server_.patches().size(), 2u);
  EXPECT_EQ(server_.created().size(), 1u + settled_);
  EXPECT_EQ(server_.patches()[1]["series"]["count"], 8);  // 30 minutes after the second
}

TEST_F(EventRecorderTest, OneObjectCannotFloodTheServer) {
  for (int i = 0; i < 40; ++i) recorder_->Record(Note(absl::StrCat("lost ", i)));
  recorder_->Record(Note("lost", "another job"));
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  EXPECT_EQ(server_.created().size(), 26u);
  EXPECT_EQ(server_.created().back()["regarding"]["name"], "another job");
  ExpectOutcome("filtered", 15);
  clock_.Advance(absl::Minutes(5));  // one more
  recorder_->Record(Note("later"));
  recorder_->Record(Note("even later"));
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  EXPECT_EQ(server_.created().size(), 27u);
}

TEST_F(EventRecorderTest, AnObjectThatHasUsedUpItsBurstIsNotForgottenForManyThatHaveNot) {
  for (int i = 0; i < 25; ++i) recorder_->Record(Note(absl::StrCat("lost ", i)));
  for (int i = 0; i < 5000; ++i) {
    if (i % 500 == 0) {
      ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
    }
    recorder_->Record(Note("lost", absl::StrCat("job-", i)));
  }
  recorder_->Record(Note("one too many"));
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  EXPECT_EQ(server_.created().size(), 25u + 5000u);
  ExpectOutcome("filtered", 1);
}

TEST_F(EventRecorderTest, ExternalEventIsCreatedOnce) {
  Event event = Note("b was lost");
  event.source = {.controller = "fusionllm.io/broker", .id = "7", .when = clock_.Now() - absl::Seconds(20)};
  recorder_->Record(event);
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  const json first = server_.created().at(0);
  EXPECT_EQ(first["reportingController"], "fusionllm.io/broker");
  EXPECT_EQ(first["reportingInstance"], "operator-0");
  EXPECT_EQ(first["eventTime"], "2023-11-14T22:13:00.000000Z");
  recorder_ = std::make_unique<EventRecorder>(server_, clock_, &metrics_, "fusionllm.io/operator", "operator-1");
  clock_.Advance(absl::Seconds(5));
  recorder_->Record(event);
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  EXPECT_EQ(server_.created().at(1)["metadata"]["name"], first["metadata"]["name"]) << "a server refuses it";
  server_.Fail(ToStatus({.code = 409, .reason = "AlreadyExists", .message = "it is there"}), 1);
  recorder_->Record(event);
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  ExpectOutcome("known", 1);
  EXPECT_THAT(server_.patches(), ::testing::IsEmpty());
}

TEST_F(EventRecorderTest, WhatDiffersInWhatSomebodyElseHasSeenIsAnotherEvent) {
  Event event = Note("b was lost");
  event.source = {.controller = "fusionllm.io/broker", .id = "7", .when = clock_.Now()};
  std::vector<Event> events(6, event);
  events[1].source->id = "8";
  events[2].source->controller = "fusionllm.io/another";
  events[3].note = "c was lost";
  events[4].regarding.uid = "uid-of-another";
  events[5].source.reset();
  for (const Event& one : events) recorder_->Record(one);
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  std::set<std::string> names;
  for (const json& created : server_.created()) names.insert(created["metadata"]["name"]);
  EXPECT_EQ(names.size(), events.size());
}

TEST_F(EventRecorderTest, EventNamesSortByTime) {
  for (int i = 0; i < 6; ++i) {
    Event event = Note(absl::StrCat("step ", i));
    if (i % 2 == 1) event.source = {.controller = "fusionllm.io/broker", .id = absl::StrCat(i), .when = clock_.Now()};
    recorder_->Record(event);
    ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
    clock_.Advance(absl::Milliseconds(10));
  }
  std::vector<std::string> names;
  for (const json& created : server_.created()) names.push_back(created["metadata"]["name"]);
  EXPECT_EQ(names.size(), 6u);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
}

TEST_F(EventRecorderTest, WhatSomebodyElseSaysIsNotInTheWayOfTheControllersOwn) {
  Event event = Note("invented");
  for (int i = 0; i < 40; ++i) {
    event.source = {.controller = "fusionllm.io/broker", .id = absl::StrCat(i), .when = clock_.Now()};
    recorder_->Record(event);
  }
  for (int i = 0; i < 25; ++i) recorder_->Record(Note(absl::StrCat("own ", i)));
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  EXPECT_EQ(server_.created().size(), 50u);
  ExpectOutcome("filtered", 15);
}

TEST_F(EventRecorderTest, WhatSomebodyElseSaysLeavesRoomForTheControllersOwnToWait) {
  server_.Hold(true);
  Event event = Note("invented");
  for (size_t i = 0; i < 2 * kMaxWaitingEvents; ++i) {
    event.source = {.controller = "fusionllm.io/broker", .id = absl::StrCat(i), .when = clock_.Now()};
    recorder_->Record(event);
  }
  recorder_->Record(Note("own"));
  server_.Hold(false);
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  EXPECT_EQ(server_.created().back()["note"], "own");
}

TEST_F(EventRecorderTest, RecordNeverWaitsAndDropsWhenTooManyDo) {
  server_.Hold(true);
  for (size_t i = 0; i < 2 * kMaxWaitingEvents; ++i) recorder_->Record(Note("lost", absl::StrCat("job-", i)));
  EXPECT_FALSE(recorder_->Flush(absl::ZeroDuration()));
  server_.Hold(false);
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  // The thread may have taken one out before the queue was full.
  EXPECT_GE(server_.created().size(), kMaxWaitingEvents);
  EXPECT_LE(server_.created().size(), kMaxWaitingEvents + 1);
}

TEST_F(EventRecorderTest, TriesAgainWhileTheServerIsAwayButNotForEver) {
  server_.Fail(absl::UnavailableError("no route"), 5);
  recorder_->Record(Note("kept"));
  while (server_.created().empty()) clock_.Advance(absl::Seconds(1)), Moment();
  EXPECT_EQ(server_.tries(), 6);
  server_.Fail(absl::UnavailableError("no route"), 1000);
  recorder_->Record(Note("given up"));
  while (registry_.Text().find("outcome=\"failed\"") == std::string::npos) clock_.Advance(absl::Seconds(1)), Moment();
  EXPECT_EQ(server_.tries(), 6 + 12);
}

TEST_F(EventRecorderTest, WhatTheServerRefusesIsNotTriedAgain) {
  server_.Fail(ToStatus({.code = 403, .reason = "Forbidden", .message = "namespace is being terminated"}), 1000);
  recorder_->Record(Note("refused"));
  ASSERT_TRUE(recorder_->Flush(absl::InfiniteDuration()));
  EXPECT_EQ(server_.tries(), 1);
  ExpectOutcome("failed", 1);
}

TEST_F(EventRecorderTest, StopsAtOnceThoughTheServerHangs) {
  server_.Hold(true);
  recorder_->Record(Note("never"));
  recorder_.reset();
  EXPECT_THAT(server_.created().size(), ::testing::Le(1u));
}

}  // namespace
}  // namespace fusionllm::kube
