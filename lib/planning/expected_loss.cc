#include "lib/planning/expected_loss.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/pluralize.h"

namespace fusionllm::planning {
namespace {

constexpr double kRounding = 1e-9;

// The share of the step's micro-batches that the link's pipeline works on.
double ShareOf(const plan::Plan& plan, const plan::Link& link) {
  if (plan.replicas == 1) return 1;
  const std::vector<std::string>& devices = plan.stages[static_cast<size_t>(link.src_stage)].devices;
  const auto replica = static_cast<int>(std::find(devices.begin(), devices.end(), link.src) - devices.begin());
  return static_cast<double>(plan.MicroBatchesOf(replica)) / plan.micro_batches;
}

}  // namespace

void SetExpectedLoss(const job::Spec& spec, plan::Plan& plan) {
  plan.loss_cost = 0;
  plan.loss_cost_source.clear();
  std::set<std::string> codecs;
  int links = 0;
  bool both_ways = false;
  for (const plan::Link& link : plan.links) {
    both_ways = both_ways || (link.backward && link.codec != "fp32");
    if (link.backward || link.codec == "fp32") continue;
    ++links;
    codecs.insert(link.codec);
    plan.loss_cost += link.loss_cost * ShareOf(plan, link);
  }
  std::set<std::string> tied_codecs;
  for (const plan::TiedParameter& tied : plan.tied) {
    if (tied.codec != "fp32") tied_codecs.insert(tied.codec);
    plan.loss_cost += tied.loss_cost;
  }
  if (links == 0 && tied_codecs.empty()) return;
  if (links > 0) {
    plan.loss_cost_source =
        absl::StrFormat("%s on %s%s, after %d steps: what small models lost, docs/results/loss-cost.md", absl::StrJoin(codecs, ", "),
                        base::Pluralize(links, "link"), both_ways ? " (both ways)" : "", spec.training.steps);
  }
  if (!tied_codecs.empty()) {
    absl::StrAppend(&plan.loss_cost_source, links > 0 ? "; " : "", absl::StrJoin(tied_codecs, ", "),
                    " for tied gradients, docs/results/tied-gradients.md");
  }
  const bool chosen = spec.compression.policy == job::CompressionPolicy::kAdatopk || !spec.compression.codec.kind.has_value();
  if (chosen && plan.loss_cost > 0)
    absl::StrAppendFormat(&plan.loss_cost_source, "; spec.compression.maxLossIncrease allows %.3g", spec.compression.max_loss_increase);
  if (plan.loss_cost > spec.compression.max_loss_increase * (1 + kRounding)) {
    plan.warnings.push_back(
        {kLossAboveLimit,
         absl::StrFormat(
             "compression is expected to raise the loss by %.2g nats (%s), more than spec.compression.maxLossIncrease of %.3g, since "
             "spec.compression names the codec: codec auto keeps within it",
             plan.loss_cost, plan.loss_cost_source, spec.compression.max_loss_increase)});
  }
}

}  // namespace fusionllm::planning
