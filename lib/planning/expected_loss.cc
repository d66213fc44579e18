#include "lib/planning/expected_loss.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/counted.h"

namespace fusionllm::planning {
namespace {

// The share of the step's micro-batches that the link's pipeline works on.
double ShareOf(const wire::PlanDocument& plan, const wire::PlanLink& link) {
  if (plan.replicas == 1) return 1;
  const std::vector<std::string>& devices = plan.stages[static_cast<size_t>(link.src_stage)].devices;
  const auto replica = static_cast<int>(std::find(devices.begin(), devices.end(), link.src) - devices.begin());
  return static_cast<double>(plan.MicroBatchesOf(replica)) / plan.micro_batches;
}

}  // namespace

void SetExpectedLoss(const job::Spec& spec, wire::PlanDocument& plan) {
  plan.expected_loss_increase = 0;
  plan.loss_increase_source.clear();
  std::set<std::string> codecs;
  int links = 0;
  for (const wire::PlanLink& link : plan.links) {
    if (link.backward || link.codec == "fp32") continue;
    ++links;
    codecs.insert(link.codec);
    plan.expected_loss_increase += link.loss_cost * ShareOf(plan, link);
  }
  if (links == 0) return;
  const std::string what = absl::StrCat(absl::StrJoin(codecs, ", "), " on ", base::Counted(links, "link"));
  if (plan.expected_loss_increase <= 0) {
    plan.loss_increase_source = absl::StrCat("compression is expected to cost no loss: ", what, ", by docs/perf/loss-cost.md");
    return;
  }
  plan.loss_increase_source = absl::StrFormat(
      "compression is expected to raise the loss by at most %.2g nats after %d steps: %s, the most that small models lost in "
      "docs/perf/loss-cost.md",
      plan.expected_loss_increase, spec.training.steps, what);
  if (plan.expected_loss_increase > spec.compression.max_loss_increase * (1 + 1e-9)) {
    absl::StrAppendFormat(
        &plan.loss_increase_source,
        "; that is more than spec.compression.maxLossIncrease of %.3g, since spec.compression names the codec: with codec "
        "auto the plan keeps within it",
        spec.compression.max_loss_increase);
  }
}

}  // namespace fusionllm::planning
