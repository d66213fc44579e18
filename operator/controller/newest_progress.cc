#include "operator/controller/newest_progress.h"

#include "operator/manifests/identity.h"

namespace fusionllm::op::controller {
namespace {

const lifecycle::PodView* BrokerOf(const lifecycle::Observation& seen, int64_t attempt) {
  if (seen.clusters.empty()) return nullptr;
  for (const lifecycle::PodView& pod : seen.clusters.front().pods) {  // the hub: there are none elsewhere
    if (pod.role == manifests::kBrokerRole && pod.attempt == attempt) return &pod;
  }
  return nullptr;
}

}  // namespace

std::optional<lifecycle::Progress> ProgressOf(const lifecycle::Observation& seen, int64_t attempt, const FetchProgress& ask) {
  const lifecycle::PodView* const broker = BrokerOf(seen, attempt);
  if (broker == nullptr) return std::nullopt;
  if (broker->report.has_value()) return broker->report;
  return broker->phase == lifecycle::PodPhase::kRunning && !broker->address.empty() ? ask(broker->address) : std::nullopt;
}

std::optional<lifecycle::Progress> NewestProgress(const lifecycle::Observation& seen, const lifecycle::PersistedState& persisted,
                                                  const FetchProgress& ask, const std::optional<cache::BrokerReport>& left) {
  const int64_t attempt = persisted.attempt;
  if (BrokerOf(seen, attempt) != nullptr) return ProgressOf(seen, attempt, ask);
  if (left.has_value() && left->attempt == attempt) return left->progress;
  // Once an attempt has begun to train, what the one before has said is older than what has been reported since.
  if (persisted.was_ready || persisted.complete || persisted.failed) return std::nullopt;
  if (const lifecycle::PodView* const before = BrokerOf(seen, attempt - 1); before != nullptr) return before->report;
  return left.has_value() && left->attempt == attempt - 1 ? std::optional(left->progress) : std::nullopt;
}

}  // namespace fusionllm::op::controller
