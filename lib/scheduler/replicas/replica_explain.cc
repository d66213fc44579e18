#include "lib/scheduler/replicas/replica_explain.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/pluralize.h"
#include "lib/scheduler/explain.h"
#include "lib/scheduler/text_format.h"

namespace fusionllm::scheduler::replicas {
std::vector<std::string> ExplainReplicas(const Problem& problem, const ReplicaPlan& plan) {
  std::vector<int> shares;
  size_t slowest = 0;
  for (size_t d = 0; d < plan.pipelines.size(); ++d) {
    shares.push_back(plan.pipelines[d].micro_batches);
    if (plan.pipelines[d].predicted_step_s > plan.pipelines[slowest].predicted_step_s) slowest = d;
  }
  std::vector<std::string> lines = {absl::StrFormat(
      "%d pipelines with the same %s get %s of the %d micro-batches; the slowest, pipeline %d, takes %s, then adding up the gradients "
      "takes %s (%s over links), without overlap",
      plan.pipelines.size(), base::Pluralize(static_cast<int64_t>(plan.pipelines[0].stages.size()) - 1, "cut"), absl::StrJoin(shares, ", "),
      problem.request().micro_batches, slowest, DurationText(plan.pipelines_s), DurationText(plan.sync_s),
      SizeText(static_cast<double>(plan.sync_bytes)))};
  for (size_t s = 0; s < plan.chains.size(); ++s) {
    const Chain& chain = plan.chains[s];
    lines.push_back(absl::StrFormat(
        "stage %d: %s of gradients are added up along %s, and the sum goes back", s, SizeText(static_cast<double>(chain.gradient_bytes)),
        absl::StrJoin(chain.devices, " -> ", [&](std::string* out, int d) { absl::StrAppend(out, problem.request().devices[d].name); })));
  }
  for (size_t d = 0; d < plan.pipelines.size(); ++d) {
    for (const std::string& line : Explain(problem, plan.pipelines[d])) lines.push_back(absl::StrCat("pipeline ", d, ", ", line));
  }
  for (const std::string& name : plan.left_out) lines.push_back(absl::StrCat(name, " has no stage"));
  return lines;
}

}  // namespace fusionllm::scheduler::replicas
