// A job and what there is of it, for tests of Decide(). Header-only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "operator/lifecycle/decide.h"

namespace fusionllm::op::lifecycle::testing {

inline const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

// A job of two executors in one cluster, and what there is of it.
class DecideTest : public ::testing::Test {
 protected:
  DecideTest() {
    seen_.identity = {.name = "train", .ns = "team", .uid = "u1", .origin = "hub"};
    seen_.now = seen_.created_at = kStart;
    seen_.finalizer = true;
    seen_.slots = {{"paris", 0, false}, {"paris", 1, false}};
    seen_.clusters = {{.name = "paris"}};
  }

  job::Spec& spec() { return seen_.job.spec; }
  std::vector<PodView>& pods() { return seen_.clusters[0].pods; }

  PodView& AddBroker(PodPhase phase, int64_t attempt = 0) {
    return pods().emplace_back(PodView{.name = manifests::BrokerPodName(seen_.identity, attempt),
                                       .uid = "b",
                                       .role = manifests::kBrokerRole,
                                       .cluster = "paris",
                                       .attempt = attempt,
                                       .phase = phase});
  }
  PodView& AddExecutor(int index, PodPhase phase, bool ready, int64_t attempt = 0) {
    return pods().emplace_back(PodView{.name = manifests::ExecutorPodName(seen_.identity, {"paris", index, false}, attempt),
                                       .uid = absl::StrCat("e", index),
                                       .role = manifests::kExecutorRole,
                                       .cluster = "paris",
                                       .index = index,
                                       .attempt = attempt,
                                       .phase = phase,
                                       .ready = ready});
  }
  void AddRunning() {
    seen_.clusters[0].owner_config_map = true;
    seen_.persisted.started_at = kStart;
    seen_.persisted.was_ready = true;
    AddBroker(PodPhase::kRunning);
    AddExecutor(0, PodPhase::kRunning, true);
    AddExecutor(1, PodPhase::kRunning, true);
  }
  void FailBroker(int exit_code, const std::string& reason = "Error") {
    pods()[0].phase = PodPhase::kFailed;
    pods()[0].exit_code = exit_code;
    pods()[0].reason = reason;
  }

  static std::vector<std::string> Removed(const Decision& decision) {
    std::vector<std::string> names;
    for (const PodRemoval& removal : decision.remove) names.push_back(removal.name);
    return names;
  }
  static const DesiredCondition* Find(const Decision& decision, const std::string& type) {
    const auto at =
        std::find_if(decision.conditions.begin(), decision.conditions.end(), [&](const auto& c) { return Name(c.type) == type; });
    return at == decision.conditions.end() ? nullptr : &*at;
  }
  static std::string Reason(const Decision& decision, const std::string& type) {
    const DesiredCondition* condition = Find(decision, type);
    return condition == nullptr ? "none" : absl::StrCat(condition->status ? "" : "!", condition->reason);
  }

  Observation seen_;
};

}  // namespace fusionllm::op::lifecycle::testing
