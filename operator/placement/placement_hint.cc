#include "operator/placement/placement_hint.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/plan/plan.h"
#include "lib/wire/plan_json.h"
#include "operator/placement/query.h"

namespace fusionllm::op::placement {
namespace {

constexpr char kAsWithout[] = "Executors are placed by room and preference.";

PlacementHint Unanswered(absl::string_view why) {
  return {.reason = kSchedulerUnavailable, .message = absl::StrCat("The scheduler gave no plan: ", why, ". ", kAsWithout)};
}

}  // namespace

PlacementHint PlacementHintOf(const absl::StatusOr<std::string>& answer) {
  if (!answer.ok()) return Unanswered(answer.status().message());
  const absl::StatusOr<plan::PlanResult> parsed = wire::ParsePlan(*answer);
  if (!parsed.ok()) return Unanswered(parsed.status().message());
  if (const auto* refusal = std::get_if<plan::PlanError>(&*parsed)) {
    return {.reason = kPlanInfeasible,
            .message = absl::StrCat("The scheduler expects that no plan is possible (", refusal->reason, "): ", refusal->message, ". ",
                                    kAsWithout)};
  }
  const auto& plan = std::get<plan::Plan>(*parsed);
  std::map<std::string, int64_t> counts;
  for (const plan::Stage& stage : plan.stages) {
    for (const std::string& device : stage.devices) ++counts[ClusterOf(device)];
  }
  PlacementHint hint{.reason = kPlanFound};
  for (const auto& [cluster, count] : counts) hint.ranking.push_back({cluster, count});
  std::stable_sort(hint.ranking.begin(), hint.ranking.end(), [](const auto& a, const auto& b) { return a.executors > b.executors; });
  const auto words = [](std::string* out, const RankedCluster& cluster) {
    absl::StrAppend(out, cluster.name, " with ", cluster.executors);
  };
  hint.message = absl::StrFormat("The scheduler expects the fastest steps, %.3g s, of %s.", plan.predicted_step_seconds,
                                 absl::StrJoin(hint.ranking, ", ", words));
  return hint;
}

}  // namespace fusionllm::op::placement
