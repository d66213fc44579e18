#include "lib/planning/certainty.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::planning {
namespace {

// "matmul +-3% of 30 samples", or "convolution guessed from other classes".
std::string RateText(size_t op_class, const estimator::OpRate& rate) {
  const absl::string_view name = opdag::Name(static_cast<opdag::OpClass>(op_class));
  if (rate.samples == 0) return absl::StrFormat("%s guessed from other classes", name);
  return absl::StrFormat("%s +-%.0f%% of %d sample%s", name, 100 * rate.relative_error, rate.samples, rate.samples == 1 ? "" : "s");
}

}  // namespace

Certainty CertaintyOf(const scheduler::Plan& plan, const Request& request) {
  double all_s = 0, fitted_s = 0, uncertain_s = 0;
  std::set<std::pair<int, size_t>> rates;  // machine, op class
  for (const scheduler::PlanStage& stage : plan.stages) {
    const scheduler::Device& device = request.request.devices[stage.devices[0]];
    for (const int op : stage.ops) {
      const estimator::OpSeconds& seconds = request.seconds[device.cost_class][op];
      all_s += device.time_scale * (seconds.forward_s + seconds.backward_s);
      fitted_s += device.time_scale * seconds.fitted_s;
      uncertain_s += device.time_scale * seconds.uncertain_s;
      for (size_t c = 0; c < seconds.fitted_classes.size(); ++c) {
        if (seconds.fitted_classes[c]) rates.insert({device.cost_class, c});
      }
    }
  }
  Certainty certainty;
  if (fitted_s <= 0) {
    certainty.sentence = "compute times: every op of the plan was measured on its machine";
    return certainty;
  }
  certainty.fitted_share = fitted_s / all_s;
  certainty.relative_error = uncertain_s / fitted_s;
  std::vector<std::string> texts;
  for (const auto& [machine, op_class] : rates) {
    std::string text = RateText(op_class, request.machines[machine].rates[op_class]);
    if (texts.empty() || texts.back() != text) texts.push_back(std::move(text));
  }
  certainty.sentence = absl::StrFormat(
      "compute times: %.0f%% come from the regression of op classes, not from a measurement of the very op, and may be off by %.0f%% (%s)",
      100 * certainty.fitted_share, 100 * certainty.relative_error, absl::StrJoin(texts, ", "));
  return certainty;
}

}  // namespace fusionllm::planning
