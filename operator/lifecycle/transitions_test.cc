// Every state of a job against everything that may happen to it: what it is next, and what holds whatever that is.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "operator/lifecycle/testing/decide_fixture.h"

namespace fusionllm::op::lifecycle {
namespace {

using testing::kStart;

class TransitionsTest : public testing::DecideTest {
 protected:
  using Change = std::function<void()>;

  TransitionsTest() {
    spec().active_deadline_seconds = 3600;
    seen_.wanted = 2;
  }

  // Pods of the attempt that the status tells of.
  void Run(bool ready) {
    pods().clear();
    AddRunning();
    for (PodView& pod : pods()) {
      pod.attempt = seen_.persisted.attempt;
      pod.ready = pod.ready && ready;
    }
    seen_.placed = true;
    seen_.persisted.was_ready = ready;
    if (!ready) pods()[1].phase = PodPhase::kPending;
  }
  // The attempt before has left one Pod.
  void Restart() {
    Run(/*ready=*/true);
    pods().erase(pods().begin(), pods().begin() + 2);
    seen_.persisted.attempt = seen_.persisted.restarts = seen_.persisted.counted_restarts = 1;
    seen_.persisted.was_ready = false;
    seen_.persisted.restarting_since = kStart;
  }
  void Suspend(bool gone) {
    Run(/*ready=*/true);
    spec().suspend = seen_.persisted.was_suspended = true;
    seen_.persisted.suspending = !gone;
    seen_.persisted.was_ready = false;
    if (!gone) return;
    pods().clear();
    seen_.persisted.started_at.reset();
    seen_.persisted.attempt = 1;
  }
  void End(bool well) {
    Run(/*ready=*/true);
    (well ? seen_.persisted.complete : seen_.persisted.failed) = true;
    seen_.persisted.completed_at = kStart;
  }
  void Delete() {
    seen_.deleted_at = kStart;
    seen_.clusters[0].owner_config_map_terminating = seen_.clusters[0].owner_config_map;
  }
  void FindRoom() { seen_.slots = {{"paris", 0, false}, {"paris", 1, false}}; }
  void NoRoom() {
    seen_.slots.clear();
    seen_.placed = false;
    seen_.placement_problem = "paris: 2 executors wanted, 1 fits";
  }
  void EndBroker(PodPhase phase, std::optional<int> code) {
    for (PodView& pod : pods()) {
      if (pod.role != manifests::kBrokerRole) continue;
      pod.phase = phase;
      pod.exit_code = code;
    }
  }

  // As Kueue says.
  void Hold() { seen_.queue = QueueStatus{.holds = true, .reason = kQueued, .message = "Queued."}; }
  void Admit() { seen_.queue = QueueStatus{.holds = false, .admitted = true, .reason = kAdmittedByKueue, .message = "Admitted."}; }

  const std::map<std::string, Change> states_ = {{"Pending", [this] { NoRoom(); }},
                                                 {"Queued",
                                                  [this] {
                                                    Suspend(true);
                                                    spec().suspend = false;
                                                    Hold();
                                                  }},
                                                 {"Starting", [this] { Run(false); }},
                                                 {"Running", [this] { Run(true); }},
                                                 {"Restarting", [this] { Restart(); }},
                                                 {"Suspending", [this] { Suspend(false); }},
                                                 {"Suspended", [this] { Suspend(true); }},
                                                 {"Complete", [this] { End(true); }},
                                                 {"Failed", [this] { End(false); }},
                                                 {"Deleting", [this] {
                                                    Run(true);
                                                    Delete();
                                                  }}};
  const std::map<std::string, Change> events_ = {
      {"nothing", [] {}},
      {"there is room", [this] { FindRoom(); }},
      {"all are ready",
       [this] {
         FindRoom();
         Run(true);
       }},
      {"the broker is done", [this] { EndBroker(PodPhase::kSucceeded, 0); }},
      {"the broker fails", [this] { EndBroker(PodPhase::kFailed, 1); }},
      {"the broker fails for good", [this] { EndBroker(PodPhase::kFailed, 2); }},
      {"the broker fails once too often",
       [this] {
         EndBroker(PodPhase::kFailed, 1);
         seen_.persisted.counted_restarts = spec().failure_policy.max_restarts;
       }},
      {"the broker is gone", [this] { std::erase_if(pods(), [](const PodView& pod) { return pod.role == manifests::kBrokerRole; }); }},
      {"an executor fails",
       [this] {
         for (PodView& pod : pods()) {
           if (pod.role == manifests::kExecutorRole && pod.index == 1) pod.phase = PodPhase::kFailed;
         }
       }},
      {"all Pods are gone", [this] { pods().clear(); }},
      {"all is gone",
       [this] {
         pods().clear();
         seen_.clusters[0].owner_config_map = false;
       }},
      {"it is late", [this] { seen_.now = kStart + absl::Seconds(3600); }},
      {"it is suspended", [this] { spec().suspend = true; }},
      {"it is resumed", [this] { spec().suspend = false; }},
      {"its queue holds it", [this] { Hold(); }},
      {"its queue lets it go", [this] { Admit(); }},
      {"its cluster is away", [this] { seen_.clusters[0].reachable = false; }},
      {"its cluster is lost", [this] { seen_.clusters[0].reachable = !(seen_.clusters[0].lost = true); }},
      {"it is deleted", [this] { Delete(); }}};
};

// The states in the order of the columns.
constexpr char kColumns[] = "Pending Queued Starting Running Restarting Suspending Suspended Complete Failed Deleting";
// "." for: as it was.
const std::map<std::string, const char*> kNext = {
    {"nothing", ". . . . . . . . . ."},
    {"there is room", "Starting . . . . . . . . ."},
    {"all are ready", "Running Suspending Running . Running . Suspending . . ."},
    {"the broker is done", ". . Complete Complete . . . . . ."},
    {"the broker fails", ". . Restarting Restarting . . . . . ."},
    {"the broker fails for good", ". . Failed Failed . . . . . ."},
    {"the broker fails once too often", ". . Failed Failed . . . . . ."},
    {"the broker is gone", ". . . Restarting . . . . . ."},
    {"an executor fails", ". . . . . . . . . ."},
    // Nothing of the attempt before is left that the next one must wait for.
    {"all Pods are gone", ". . . Starting Starting Suspended . . . ."},
    {"all is gone", ". . . Starting Starting Suspended . . . ."},
    {"it is late", ". . Failed Failed Failed . . . . ."},
    {"it is suspended", "Suspended Suspended Suspending Suspending Suspending . . . . ."},
    {"it is resumed", ". . . . . Restarting Starting . . ."},
    {"its queue holds it", "Queued . Suspending Suspending Suspending . . . . ."},
    {"its queue lets it go", ". Starting . . . . . . . ."},
    {"its cluster is away", ". . . . . . . . . ."},
    {"its cluster is lost", ". . Restarting . . Suspended . . . ."},
    {"it is deleted", "Deleting Deleting Deleting Deleting Deleting Deleting Deleting Deleting Deleting ."},
};

TEST_F(TransitionsTest, EachEventLeadsWhereTheTableSays) {
  const std::vector<std::string> columns = absl::StrSplit(kColumns, ' ');
  ASSERT_EQ(columns.size(), states_.size());
  ASSERT_EQ(kNext.size(), events_.size());
  const Observation fresh = seen_;
  for (const auto& [event, change] : events_) {
    const std::vector<std::string> row = absl::StrSplit(kNext.at(event), ' ');
    ASSERT_EQ(row.size(), columns.size()) << event;
    for (size_t i = 0; i < columns.size(); ++i) {
      seen_ = fresh;
      states_.at(columns[i])();
      change();
      EXPECT_STREQ(Name(Decide(seen_).state), row[i] == "." ? columns[i].c_str() : row[i].c_str()) << columns[i] << ": " << event;
    }
  }
}

TEST_F(TransitionsTest, WhateverHappensSomeThingsHold) {
  const Observation fresh = seen_;
  for (const auto& [state, begin] : states_) {
    for (const auto& [event, change] : events_) {
      SCOPED_TRACE(absl::StrCat(state, ": ", event));
      seen_ = fresh;
      begin();
      change();
      const PersistedState before = seen_.persisted;
      const Decision decision = Decide(seen_);
      const PersistedState& after = decision.persisted;
      const bool deleting = decision.state == JobState::kDeleting;
      EXPECT_FALSE(after.complete && after.failed);
      EXPECT_TRUE(after.complete >= before.complete && after.failed >= before.failed) << "an end is for ever";
      EXPECT_GE(after.attempt, before.attempt);
      EXPECT_LE(after.counted_restarts, spec().failure_policy.max_restarts);
      if (!deleting) {
        EXPECT_EQ(decision.state == JobState::kComplete, after.complete);
        EXPECT_EQ(decision.state == JobState::kFailed, after.failed);
      }
      const std::set<JobState> restful = {JobState::kPending,  JobState::kQueued, JobState::kSuspending, JobState::kSuspended,
                                          JobState::kComplete, JobState::kFailed, JobState::kDeleting};
      if (restful.contains(decision.state)) {
        EXPECT_FALSE(decision.create_broker);
        EXPECT_TRUE(decision.create.empty());
      }
      // The conditions say the same.
      const auto says = [&](const char* type, bool status) {
        const DesiredCondition* const desired = Find(decision, type);
        return desired != nullptr && desired->status == status;
      };
      EXPECT_EQ(says("Complete", true), after.complete && !before.complete);
      EXPECT_EQ(says("Failed", true), after.failed && !before.failed);
      EXPECT_EQ(says("Suspended", true), decision.state == JobState::kSuspended || decision.state == JobState::kQueued);
      EXPECT_TRUE(decision.state == JobState::kRunning || !says("Ready", true));
      EXPECT_EQ(says("Restarting", true), decision.restart.has_value());
      // A look at the status just written, before anything else has happened, counts nothing twice.
      seen_.persisted = after;
      const DesiredCondition* const suspended = Find(decision, "Suspended");
      seen_.persisted.suspending = suspended != nullptr && suspended->reason == "Suspending";
      if (after.attempt != before.attempt) NoRoom();  // the next one is placed again
      const Decision again = Decide(seen_);
      EXPECT_EQ(again.persisted.attempt, after.attempt);
      EXPECT_EQ(again.persisted.counted_restarts, after.counted_restarts);
      EXPECT_FALSE(again.restart.has_value());
    }
  }
}

}  // namespace
}  // namespace fusionllm::op::lifecycle
