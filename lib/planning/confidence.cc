#include "lib/planning/confidence.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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

Confidence ConfidenceOf(const scheduler::PlannedPipeline& plan, const Request& request) {
  double all_s = 0, fitted_s = 0, inferred_s = 0, specified_s = 0, uncertain_s = 0;
  std::set<std::pair<int, size_t>> rates;  // machine, op class
  Confidence certainty;
  for (const scheduler::PlannedStage& stage : plan.stages) {
    const scheduler::Device& device = request.request.devices[stage.devices[0]];
    const std::string& specification = request.specifications[device.cost_class];
    if (!specification.empty()) certainty.arithmetic[specification] = request.arithmetic[device.cost_class];
    for (const int op : stage.ops) {
      const estimator::OpSeconds& seconds = request.seconds[device.cost_class][op];
      all_s += device.time_scale * (seconds.forward_s + seconds.backward_s);
      (specification.empty() ? fitted_s : specified_s) += device.time_scale * seconds.fitted_s;
      inferred_s += device.time_scale * seconds.inferred_s;
      uncertain_s += device.time_scale * seconds.uncertain_s;
      for (size_t c = 0; c < seconds.fitted_classes.size(); ++c) {
        if (seconds.fitted_classes[c] && specification.empty()) rates.insert({device.cost_class, c});
      }
    }
  }
  if (fitted_s + specified_s <= 0) {
    certainty.sentence = "compute times: every op of the plan was measured on its machine";
    return certainty;
  }
  certainty.fitted_share = fitted_s / all_s;
  certainty.specified_share = specified_s / all_s;
  certainty.relative_error = uncertain_s / (fitted_s + specified_s);
  std::vector<std::string> parts;
  if (specified_s > 0) {
    const auto name = [](std::string* out, const auto& gpu) { absl::StrAppend(out, gpu.first); };
    parts.push_back(
        absl::StrFormat("%.0f%% come from public specifications of %s and assumed shares of their peaks, not from a measurement",
                        100 * certainty.specified_share, absl::StrJoin(certainty.arithmetic, ", ", name)));
  }
  if (inferred_s > 0) {
    parts.push_back(absl::StrFormat("%.0f%% follow from what the same ops took at other micro-batch sizes", 100 * inferred_s / all_s));
  }
  if (fitted_s > inferred_s) {
    std::vector<std::string> texts;
    for (const auto& [machine, op_class] : rates) {
      std::string text = RateText(op_class, request.machines[machine].rates[op_class]);
      if (texts.empty() || texts.back() != text) texts.push_back(std::move(text));
    }
    parts.push_back(absl::StrFormat("%.0f%% come from the regression of op classes, not from a measurement of the very op (%s)",
                                    100 * (fitted_s - inferred_s) / all_s, absl::StrJoin(texts, ", ")));
  }
  certainty.sentence = absl::StrFormat("compute times: %s; that may be off by %.0f%% either way", absl::StrJoin(parts, "; "),
                                       100 * certainty.relative_error);
  return certainty;
}

}  // namespace fusionllm::planning
