#include "lib/broker/migration.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_format.h"
#include "lib/base/pluralize.h"
#include "lib/scheduler/assignment.h"

namespace fusionllm::broker {

double LossCost(const RunPlan& plan) {
  std::vector<int> shares = plan.plan.micro_batches_by_replica;
  const auto replicas = static_cast<size_t>(plan.plan.replicas);
  if (shares.size() != replicas) shares.assign(replicas, 1);
  double cost = 0;
  for (const plan::Link& link : plan.plan.links) {
    const int rank = plan.RanksOf(link).first;
    const int replica = replicas == 1 || rank < 0 ? 0 : plan.ReplicaOf(rank);
    cost += link.loss_cost * static_cast<double>(shares[static_cast<size_t>(replica)]);
  }
  return cost / static_cast<double>(std::accumulate(shares.begin(), shares.end(), int64_t{0}));
}

double SecondsToEqualLoss(double step_s, double loss_cost) { return step_s * (1 + scheduler::kTimePerNat * loss_cost); }

MigrationPolicy::Decision MigrationPolicy::Decide(const MigrationEstimate& given, std::string* figures) {
  const double now_s = SecondsToEqualLoss(given.step_s, given.loss_cost);
  const double then_s = SecondsToEqualLoss(given.other_step_s, given.other_loss_cost);
  const double gain_s = now_s - then_s;
  const double in_all_s = gain_s * static_cast<double>(given.steps_left);
  const std::string promise = given.bias == 1
                                  ? ""
                                  : absl::StrFormat(" (%.3g s predicted, times %.3g for what predictions of this run are off by)",
                                                    given.other_step_s / given.bias, given.bias);
  *figures = absl::StrFormat("%.3g s a step%s instead of %.3g s, %.3g s over %s for a move of about %.3g s", given.other_step_s, promise,
                             given.step_s, in_all_s, base::Pluralize(given.steps_left, "step"), given.cost_s);
  const bool pays = gain_s >= min_improvement_ * now_s && in_all_s > given.cost_s;
  in_a_row_ = pays ? in_a_row_ + 1 : 0;
  if (!pays) return Decision::kStay;
  if (in_a_row_ < confirmations_) return Decision::kAskAgain;
  in_a_row_ = 0;
  return Decision::kMove;
}

}  // namespace fusionllm::broker
