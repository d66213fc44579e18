#include "lib/kube/lease/leader_elector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>

#include "lib/kube/api/api_error.h"
#include "lib/kube/testing/fake_clock.h"
#include "lib/kube/testing/lockstep_clock.h"
#include "lib/kube/testing/unimplemented_client.h"

namespace fusionllm::kube {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

absl::Status Error(int code, const std::string& reason) { return ToStatus({.code = code, .reason = reason, .message = reason}); }

// A server with one lease, as far as an elector asks. Thread-safe.
class LeaseServer : public testing::UnimplementedClient {
 public:
  absl::StatusOr<std::string> Get(const Resource&, const ObjectKey&, const CallOptions& call) override {
    const std::lock_guard lock(mutex_);
    ++gets_;
    if (!failure_.ok()) return failure_;
    if (lease_.is_null()) return Error(404, "NotFound");
    return lease_.dump();
  }
  absl::StatusOr<std::string> Create(const Resource&, absl::string_view, absl::string_view body, const WriteOptions&,
                                     const CallOptions&) override {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_;
    if (!lease_.is_null()) return Error(409, "AlreadyExists");
    return Store(json::parse(body.begin(), body.end()));
  }
  absl::StatusOr<std::string> Update(const Resource&, const ObjectKey&, absl::string_view body, const WriteOptions&,
                                     const CallOptions& call) override {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_;
    if (lease_.is_null()) return Error(404, "NotFound");
    json object = json::parse(body.begin(), body.end());
    if (object["metadata"]["resourceVersion"] != lease_["metadata"]["resourceVersion"]) return Error(409, "Conflict");
    absl::StatusOr<std::string> answer = Store(std::move(object));
    if (!lose_answers_) return answer;
    return absl::DeadlineExceededError("the answer was lost");
  }

  // As somebody else would.
  void Edit(const std::function<void(json& spec)>& edit) {
    const std::lock_guard lock(mutex_);
    json object = lease_.is_null() ? json{{"kind", "Lease"}, {"metadata", json::object()}, {"spec", json::object()}} : lease_;
    edit(object["spec"]);
    Store(std::move(object)).status().IgnoreError();
  }
  void DeleteLease() {
    const std::lock_guard lock(mutex_);
    lease_ = nullptr;
  }
  json Spec() const {
    const std::lock_guard lock(mutex_);
    return lease_.is_null() ? json() : lease_["spec"];
  }
  void Fail(absl::Status status) {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(status);
  }
  void LoseAnswers(bool lose) {
    const std::lock_guard lock(mutex_);
    lose_answers_ = lose;
  }
  int gets() const {
    const std::lock_guard lock(mutex_);
    return gets_;
  }
  int64_t writes() const {
    const std::lock_guard lock(mutex_);
    return version_;
  }

 private:
  absl::StatusOr<std::string> Store(json object) {
    object["metadata"]["resourceVersion"] = std::to_string(++version_);
    lease_ = std::move(object);
    return lease_.dump();
  }

  mutable std::mutex mutex_;
  json lease_;
  int64_t version_ = 0;
  int gets_ = 0;
  absl::Status failure_;
  bool lose_answers_ = false;
};

class LeaderElectorTest : public ::testing::Test {
 protected:
  struct Candidate {
    std::unique_ptr<LeaderElector> elector;
    std::shared_ptr<std::string> lost = std::make_shared<std::string>();
    std::shared_ptr<std::latch> lost_latch = std::make_shared<std::latch>(1);
  };
  Candidate Make(const std::string& identity, const LeaderMetrics* metrics = nullptr) {
    Candidate candidate;
    candidate.elector = std::make_unique<LeaderElector>(
        server_, clock_, metrics,
        LeaderElector::Options{.lease = {"ns", "operator"},
                               .identity = identity,
                               .on_lost = [lost = candidate.lost, latch = candidate.lost_latch](const std::string& why) {
                                 *lost = why;
                                 latch->count_down();
                               }});
    return candidate;
  }
  // Lets time pass until `done`, for `waiters` threads of electors: one that waits for the lease, two of a leader. How much that was.
  absl::Duration PassUntil(size_t waiters, const std::function<bool()>& done) {
    const absl::Duration start = clock_.Monotonic();
    while (!done()) clock_.Step(absl::Milliseconds(500), waiters);
    return clock_.Monotonic() - start;
  }
  std::jthread AcquireAside(LeaderElector& elector) {
    return std::jthread([&elector](std::stop_token stop) { elector.Acquire(std::move(stop)).IgnoreError(); });
  }

  testing::LockstepClock clock_;
  LeaseServer server_;
};

TEST(LeaseTimesTest, TimesThatWouldAllowTwoLeadersAreRefused) {
  EXPECT_TRUE(CheckLeaseTimes({}).ok());
  const auto seconds = [](double lease, double renew, double retry) {
    return CheckLeaseTimes({absl::Seconds(lease), absl::Seconds(renew), absl::Seconds(retry)}).ok();
  };
  EXPECT_FALSE(seconds(10, 10, 2));
  EXPECT_FALSE(seconds(15, 2.4, 2));  // not more than the longest pause between two tries
  EXPECT_TRUE(seconds(15, 2.5, 2));
  EXPECT_FALSE(seconds(15, 10, 0));
  EXPECT_FALSE(seconds(15.5, 10, 2));  // the field holds whole seconds
}

TEST(LeaderIdentityTest, DiffersBetweenProcessesOfOneHost) {
  EXPECT_NE(NewLeaderIdentity(), NewLeaderIdentity());
  EXPECT_THAT(NewLeaderIdentity(), ::testing::ContainsRegex("_[0-9a-f]{8}-"));
}

TEST_F(LeaderElectorTest, WhoHoldsTheLeaseIsAskedOfTheServer) {
  Candidate a = Make("a");
  EXPECT_EQ(a.elector->Confirm({}).code(), absl::StatusCode::kFailedPrecondition) << "nobody does";
  ASSERT_TRUE(a.elector->Acquire({}).ok());
  EXPECT_TRUE(a.elector->Confirm({}).ok());
  server_.Edit([](json& spec) { spec["holderIdentity"] = "b"; });
  const absl::Status status = a.elector->Confirm({});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("held by b"));
  server_.Fail(absl::UnavailableError("no answer"));
  EXPECT_TRUE(absl::IsUnavailable(a.elector->Confirm({})));
}

// Whose threads do not wake up, whatever the time is.
class DeafClock : public testing::FakeClock {
 public:
  void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, absl::Duration) override {
    ++waits_;
    waits_.notify_all();
    changed.wait(lock);
  }
  // Blocks until so many waits have begun.
  void Await(int waits) const {
    for (int begun = waits_; begun < waits; begun = waits_) waits_.wait(begun);
  }

 private:
  std::atomic<int> waits_ = 0;
};

// Nothing else would end such a process, and it would keep its metrics and watches for ever.
TEST(StuckLeaderTest, OneThatNeitherRenewsNorGivesUpIsNotAlive) {
  DeafClock clock;
  LeaseServer server;
  LeaderElector elector(server, clock, nullptr, {.lease = {"ns", "operator"}, .identity = "a", .on_lost = [](const std::string&) {}});
  EXPECT_TRUE(elector.Check().ok()) << "a standby renews nothing";
  ASSERT_TRUE(elector.Acquire({}).ok());
  clock.Await(2);  // a watchdog that begins later would find the time over, and give up
  clock.Advance(absl::Seconds(15 + 20));
  EXPECT_TRUE(elector.Check().ok());
  clock.Advance(absl::Seconds(1));
  EXPECT_THAT(std::string(elector.Check().message()), HasSubstr("has not renewed the lease ns/operator for 36s"));
  EXPECT_FALSE(elector.IsLeader());
}

TEST_F(LeaderElectorTest, TheFirstLeadsAndRenewsWithoutReading) {
  metrics::Registry registry("p", "1");
  const LeaderMetrics metrics(registry);
  Candidate a = Make("a", &metrics);
  EXPECT_THAT(registry.Text(), HasSubstr("leader_election_master_status{name=\"operator\"} 0\n"));
  ASSERT_TRUE(a.elector->Acquire({}).ok());
  EXPECT_TRUE(a.elector->IsLeader());
  EXPECT_EQ(a.elector->epoch(), 0);
  EXPECT_THAT(registry.Text(), HasSubstr("leader_election_master_status{name=\"operator\"} 1\n"));
  PassUntil(2, [&] { return server_.writes() >= 20; });  // 40 s, far beyond the lease
  EXPECT_TRUE(a.elector->IsLeader());
  EXPECT_EQ(server_.gets(), 1);
  EXPECT_EQ(server_.Spec()["leaseTransitions"], 0);
  EXPECT_NE(server_.Spec()["renewTime"], server_.Spec()["acquireTime"]);
}

TEST_F(LeaderElectorTest, ALeaseIsTakenOverOnlyAfterASilenceSeenByOneself) {
  // The holder's clock is an hour behind: by its times the lease has expired long ago.
  server_.Edit([](json& spec) {
    spec = {{"holderIdentity", "old"}, {"leaseDurationSeconds", 15}, {"leaseTransitions", 4}, {"renewTime", "2023-11-14T21:13:20.000000Z"}};
  });
  Candidate b = Make("b");
  const std::jthread aside = AcquireAside(*b.elector);
  PassUntil(1, [&] { return server_.gets() >= 1; });
  // It renews after ten seconds, by the same wrong clock. Ours is set a day ahead, to no effect.
  const absl::Duration start = clock_.Monotonic();
  PassUntil(1, [&] { return clock_.Monotonic() - start >= absl::Seconds(10); });
  EXPECT_FALSE(b.elector->IsLeader());
  server_.Edit([](json& spec) { spec["renewTime"] = "2023-11-14T21:13:30.000000Z"; });
  clock_.SetNow(clock_.Now() + absl::Hours(24));
  const absl::Duration passed = PassUntil(1, [&] { return b.elector->IsLeader(); });
  EXPECT_GE(passed, absl::Seconds(15));
  EXPECT_LE(passed, absl::Seconds(17));
  EXPECT_EQ(b.elector->epoch(), 5);
  EXPECT_EQ(server_.Spec()["holderIdentity"], "b");
}

// Waits are over at once; how long each was is kept, and something happens at its end.
class CountingClock : public testing::SelfAdvancingClock {
 public:
  explicit CountingClock(std::function<void(size_t waits)> then) : then_(std::move(then)) {}
  void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, absl::Duration deadline) override {
    waits.push_back(deadline - Monotonic());
    SelfAdvancingClock::WaitUntil(lock, changed, deadline);
    lock.unlock();  // a stop wakes what waits, under that lock
    then_(waits.size());
    lock.lock();
  }
  std::vector<absl::Duration> waits;

 private:
  const std::function<void(size_t waits)> then_;
};

// Else all standbys would ask in the same moment, and go on doing so.
TEST(WaitingForTheLeaseTest, StandbysAskAtTimesOfTheirOwn) {
  const auto waits = [](const std::string& identity) {
    LeaseServer server;
    const auto renew = [&](size_t times) {
      server.Edit([&](json& spec) { spec = {{"holderIdentity", "old"}, {"leaseDurationSeconds", 15}, {"leaseTransitions", times}}; });
    };
    renew(0);
    std::stop_source stop;
    CountingClock clock([&](size_t times) {
      renew(times);
      if (times == 20) stop.request_stop();
    });
    LeaderElector elector(server, clock, nullptr, {.lease = {"ns", "operator"}, .identity = identity, .on_lost = [](const auto&) {}});
    EXPECT_TRUE(absl::IsCancelled(elector.Acquire(stop.get_token())));
    return clock.waits;
  };
  const std::vector<absl::Duration> a = waits("a"), b = waits("b");
  ASSERT_EQ(a.size(), 20u);
  absl::Duration sum;
  for (const absl::Duration wait : a) {
    EXPECT_GE(wait, absl::Seconds(1));
    EXPECT_LE(wait, absl::Seconds(1.5));
    sum += wait;
  }
  EXPECT_GT(sum / 20, absl::Seconds(1.1)) << "the random part is really there";
  EXPECT_LT(sum / 20, absl::Seconds(1.4));
  EXPECT_NE(a, b);
}

TEST_F(LeaderElectorTest, AReleasedLeaseIsTakenAtOnce) {
  Candidate a = Make("a"), b = Make("b");
  ASSERT_TRUE(a.elector->Acquire({}).ok());
  const std::jthread aside = AcquireAside(*b.elector);
  PassUntil(3, [&] { return server_.gets() >= 2; });
  ASSERT_TRUE(a.elector->Release().ok());
  EXPECT_FALSE(a.elector->IsLeader());
  EXPECT_LE(PassUntil(1, [&] { return b.elector->IsLeader(); }), absl::Seconds(2.5));
  EXPECT_EQ(b.elector->epoch(), 1);
  EXPECT_EQ(*a.lost, "");  // it was not lost, it was given up
}

TEST_F(LeaderElectorTest, ReleasingTriesAgainWithTheNewestVersion) {
  Candidate a = Make("a");
  ASSERT_TRUE(a.elector->Acquire({}).ok());
  server_.Edit([](json& spec) { spec["strategy"] = "somebody wrote"; });
  ASSERT_TRUE(a.elector->Release().ok());
  EXPECT_EQ(server_.Spec()["holderIdentity"], "");
  EXPECT_EQ(server_.Spec()["strategy"], "somebody wrote");
}

TEST_F(LeaderElectorTest, ALeaseThatIsAnothersByNowIsNotReleased) {
  Candidate a = Make("a");
  ASSERT_TRUE(a.elector->Acquire({}).ok());
  server_.Edit([](json& spec) { spec["holderIdentity"] = "b"; });
  EXPECT_TRUE(a.elector->Release().ok());
  EXPECT_EQ(server_.Spec()["holderIdentity"], "b");
}

TEST_F(LeaderElectorTest, ALeaderThatCannotRenewStopsBeforeOthersMayBegin) {
  Candidate a = Make("a");
  ASSERT_TRUE(a.elector->Acquire({}).ok());
  server_.Fail(absl::UnavailableError("no route"));
  const absl::Duration passed = PassUntil(2, [&] { return a.lost_latch->try_wait(); });
  EXPECT_GE(passed, absl::Seconds(9));
  EXPECT_LT(passed, absl::Seconds(15));
  EXPECT_FALSE(a.elector->IsLeader());
  EXPECT_THAT(*a.lost, HasSubstr("could not be renewed within 10s"));
  server_.Fail(absl::OkStatus());
  clock_.Advance(absl::Minutes(1));
  EXPECT_FALSE(a.elector->IsLeader());  // once lost, lost
}

TEST_F(LeaderElectorTest, LeadershipEndsByTheClockEvenIfNoThreadRuns) {
  Candidate a = Make("a");
  ASSERT_TRUE(a.elector->Acquire({}).ok());
  server_.Fail(absl::UnavailableError("no route"));
  clock_.Advance(absl::Seconds(10));  // as after a suspended process: the very next question must be answered right
  EXPECT_FALSE(a.elector->IsLeader());
}

TEST_F(LeaderElectorTest, AShortOutageIsSurvived) {
  Candidate a = Make("a");
  ASSERT_TRUE(a.elector->Acquire({}).ok());
  server_.Fail(absl::UnavailableError("no route"));
  const absl::Duration start = clock_.Monotonic();
  PassUntil(2, [&] { return clock_.Monotonic() - start >= absl::Seconds(5); });
  server_.Fail(absl::OkStatus());
  const int64_t writes = server_.writes();
  PassUntil(2, [&] { return server_.writes() >= writes + 5; });
  EXPECT_TRUE(a.elector->IsLeader());
  EXPECT_EQ(*a.lost, "");
}

TEST_F(LeaderElectorTest, ARenewalWhoseAnswerWasLostIsNoLoss) {
  metrics::Registry registry("p", "1");
  const LeaderMetrics metrics(registry);
  Candidate a = Make("a", &metrics);
  ASSERT_TRUE(a.elector->Acquire({}).ok());
  server_.LoseAnswers(true);
  PassUntil(2, [&] { return server_.writes() >= 2; });
  server_.LoseAnswers(false);
  PassUntil(2, [&] { return server_.writes() >= 5; });
  EXPECT_TRUE(a.elector->IsLeader());
  EXPECT_EQ(a.elector->epoch(), 0);
  EXPECT_THAT(registry.Text(), HasSubstr("leader_election_slowpath_total{name=\"operator\"} 1\n"));
}

TEST_F(LeaderElectorTest, WhoSeesAnotherHolderHasLost) {
  Candidate a = Make("a");
  ASSERT_TRUE(a.elector->Acquire({}).ok());
  server_.Edit([](json& spec) { spec["holderIdentity"] = "b"; });
  EXPECT_LT(PassUntil(2, [&] { return a.lost_latch->try_wait(); }), absl::Seconds(5));
  EXPECT_THAT(*a.lost, HasSubstr("is held by b"));
  EXPECT_EQ(server_.Spec()["holderIdentity"], "b");
}

TEST_F(LeaderElectorTest, ADeletedLeaseDoesNotCountFromTheBeginning) {
  server_.Edit([](json& spec) { spec = {{"holderIdentity", ""}, {"leaseTransitions", 6}}; });
  Candidate a = Make("a");
  ASSERT_TRUE(a.elector->Acquire({}).ok());
  EXPECT_EQ(a.elector->epoch(), 7);
  server_.DeleteLease();
  PassUntil(2, [&] { return !server_.Spec().is_null(); });
  EXPECT_EQ(server_.Spec()["leaseTransitions"], 7);
  EXPECT_TRUE(a.elector->IsLeader());
}

TEST_F(LeaderElectorTest, TwoAtOnceGiveOneLeader) {
  Candidate a = Make("a"), b = Make("b");
  const std::jthread aside_a = AcquireAside(*a.elector), aside_b = AcquireAside(*b.elector);
  PassUntil(2, [&] { return a.elector->IsLeader() || b.elector->IsLeader(); });
  const absl::Duration start = clock_.Monotonic();
  PassUntil(3, [&] {
    EXPECT_FALSE(a.elector->IsLeader() && b.elector->IsLeader());
    return clock_.Monotonic() - start > absl::Seconds(40);
  });
  EXPECT_EQ(server_.Spec()["leaseTransitions"], 0);
}

TEST_F(LeaderElectorTest, StopsWaitingWhenAsked) {
  server_.Edit([](json& spec) { spec = {{"holderIdentity", "other"}, {"leaseDurationSeconds", 15}}; });
  Candidate a = Make("a");
  std::stop_source stop;
  std::thread aside([&] { EXPECT_EQ(a.elector->Acquire(stop.get_token()).code(), absl::StatusCode::kCancelled); });
  stop.request_stop();
  aside.join();
}

}  // namespace
}  // namespace fusionllm::kube
