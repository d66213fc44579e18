// What a broker's page says has happened becomes events of its job: of an operator that is followed by another, too.
#include "operator/controller/job_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_clock.h"
#include "operator/cache/progress_poller.h"

namespace fusionllm::op::controller {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const kube::Resource kEventResource{"events.k8s.io", "v1", "events", "Event", true};

class JobEventsTest : public ::testing::Test {
 protected:
  // A process of the operator: what it remembers goes with it.
  struct Operator {
    explicit Operator(JobEventsTest& test)
        : events(*test.client_, test.clock_, nullptr, "operator-0"),
          watch(
              test.clock_, [&test](const std::string&) { return test.Fetched(); }, [&test](const kube::WorkKey&) { ++test.changes_; }, {},
              [this](const kube::WorkKey& job, const std::string& uid, const lifecycle::RunEvent& event) {
                events.RecordOfRun({job.ns, job.name}, uid, event);
              }) {
      Follow("10.0.0.1:9");
    }
    void Follow(const std::string& address) { watch.Follow({"", "default", "train"}, "a-uid", address); }

    JobEvents events;
    cache::ProgressPoller watch;
  };

  JobEventsTest() {
    client_ = std::make_unique<kube::RestClient>(
        kube::ClusterAccess{.transport = server_.NewTransport(), .credentials = kube::StaticCredentials({}), .server = "test"},
        kube::RestClientOptions{.max_retries = 0}, clock_);
    RestartWatch();
  }

  void RestartWatch() {
    operator_.reset();
    operator_.emplace(*this);
  }

  absl::StatusOr<std::string> Fetched() {
    const std::lock_guard lock(mutex_);
    ++fetches_;
    changed_.notify_all();
    return page_.dump();
  }

  // Until the page has been asked for once more, and what came of it is written.
  void LetItLook() {
    for (int i = 0; i < 2; ++i) {  // the second begins when the first is done with
      std::unique_lock lock(mutex_);
      const int before = fetches_;
      // Once more only if the thread slept past it: what has happened is not to grow old because a machine is busy.
      while (fetches_ == before) {
        clock_.Advance(cache::ProgressPoller::kEvery);
        changed_.wait_for(lock, std::chrono::milliseconds(50));
      }
    }
    operator_->events.Flush(absl::InfiniteDuration());
  }

  void Happens(const std::string& reason, const std::string& message, bool warning = false) {
    const std::lock_guard lock(mutex_);
    const absl::Time now = clock_.Now();
    page_["events"].push_back({{"number", absl::ToUnixMillis(now) + ++happened_},
                               {"time", absl::FormatTime(absl::RFC3339_full, now, absl::UTCTimeZone())},
                               {"type", warning ? "warning" : "normal"},
                               {"reason", reason},
                               {"message", message}});
  }

  json Events() const { return json::parse(client_->List(kEventResource, "default").value())["items"]; }
  std::vector<std::string> EventsNamed() const {
    std::vector<std::string> events;
    for (const json& event : Events()) {
      events.push_back(
          absl::StrCat(event["type"].get<std::string>(), " ", event["reason"].get<std::string>(), ": ", event["note"].get<std::string>()));
    }
    return events;
  }
  int Writes() const {
    int writes = 0;
    for (const kube::testing::RecordedRequest& request : server_.requests()) writes += request.method == "GET" ? 0 : 1;
    return writes;
  }

  kube::testing::FakeClock clock_;
  kube::testing::FakeApiServer server_{clock_};
  std::unique_ptr<kube::ApiClient> client_;
  std::mutex mutex_;
  std::condition_variable changed_;
  json page_ = {{"step", 1}, {"events", json::array()}};
  int fetches_ = 0, happened_ = 0;
  std::atomic<int> changes_ = 0;
  std::optional<Operator> operator_;
};

TEST_F(JobEventsTest, WhatHappensInARunIsAnEventOfTheJobInTheNameOfItsBroker) {
  LetItLook();
  Happens("ExecutorLost", "b (stage 1) was lost", /*warning=*/true);
  const absl::Time then = clock_.Now();
  Happens("SpareActivated", "c takes stage 1 from b");
  LetItLook();
  EXPECT_THAT(EventsNamed(),
              UnorderedElementsAre("Warning ExecutorLost: b (stage 1) was lost", "Normal SpareActivated: c takes stage 1 from b"));
  const json event = Events()[0];
  EXPECT_EQ(event["regarding"],
            json::parse(R"({"apiVersion":"fusionllm.io/v1alpha1","kind":"FusionJob","namespace":"default","name":"train","uid":"a-uid"})"));
  EXPECT_EQ(event["reportingController"], "fusionllm.io/broker");
  EXPECT_EQ(event["action"], "Train");
  EXPECT_EQ(event["eventTime"], absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", then, absl::UTCTimeZone()));
}

TEST_F(JobEventsTest, AtRestNothingIsWritten) {
  Happens("SpareActivated", "c takes stage 1 from b");
  LetItLook();
  ASSERT_EQ(Writes(), 1);
  const int changes = changes_;
  for (int i = 0; i < 20; ++i) LetItLook();
  EXPECT_EQ(Writes(), 1);
  EXPECT_EQ(changes_, changes) << "nor is the job looked at";
}

TEST_F(JobEventsTest, AnOperatorThatStartsAgainTellsWhatHappenedMeanwhileAndNothingTwice) {
  Happens("ExecutorLost", "b (stage 1) was lost", /*warning=*/true);
  LetItLook();
  operator_.reset();
  clock_.Advance(absl::Minutes(1));
  Happens("SpareActivated", "c takes stage 1 from b");
  RestartWatch();
  LetItLook();
  EXPECT_THAT(EventsNamed(),
              UnorderedElementsAre("Warning ExecutorLost: b (stage 1) was lost", "Normal SpareActivated: c takes stage 1 from b"));
  RestartWatch();
  LetItLook();
  EXPECT_EQ(EventsNamed().size(), 2u);
}

// A new leader takes over a thousand jobs: what they have reported long ago it does not even try.
TEST_F(JobEventsTest, AnOperatorThatStartsAgainLeavesOldEventsAlone) {
  for (int i = 0; i < 16; ++i) Happens("Replanned", absl::StrCat("plan ", i));
  LetItLook();
  EXPECT_EQ(EventsNamed().size(), 16u);
  operator_.reset();
  clock_.Advance(lifecycle::kReplayWindow);
  server_.ForgetRequests();
  RestartWatch();
  LetItLook();
  EXPECT_EQ(Writes(), 0);
}

TEST_F(JobEventsTest, ABrokerThatInventsEventsIsNotInTheWayOfTheOperatorsOwn) {
  const absl::Duration began = clock_.Monotonic();
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 100; ++i) Happens("Straggler", absl::StrCat("invented ", round, " ", i));
    LetItLook();
  }
  EXPECT_LE(EventsNamed().size(), 26 + (clock_.Monotonic() - began) / absl::Minutes(5)) << "a burst, and what has come with time";
  const size_t before = EventsNamed().size();
  operator_->events.Record({.name = "train", .ns = "default", .uid = "a-uid"}, {false, "Completed", "The job has made all its steps."});
  operator_->events.Flush(absl::InfiniteDuration());
  EXPECT_EQ(EventsNamed().size(), before + 1);
}

// The next attempt's broker, at another address.
TEST_F(JobEventsTest, RecordsEventsOfNewBrokerFromAnyNumber) {
  Happens("Restored", "restoring step 1");
  LetItLook();
  {
    const std::lock_guard lock(mutex_);
    page_["events"] = json::array();
    happened_ = -1'000'000;
  }
  operator_->Follow("10.0.0.2:9");
  LetItLook();
  Happens("Restored", "restoring step 20");
  LetItLook();
  EXPECT_EQ(EventsNamed().size(), 2u);
}

}  // namespace
}  // namespace fusionllm::op::controller
