#include "lib/planning/plan_warnings.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/compression/loss_prior.h"
#include "lib/estimator/gpu_specs.h"
#include "lib/planning/codec_adapter.h"
#include "lib/scheduler/directed_links.h"
#include "lib/scheduler/text_format.h"

namespace fusionllm::planning {
namespace {

using scheduler::PlannedPipeline;

constexpr double kNearlyIdle = 0.05;   // of the step that a stage computes
constexpr double kFarBelow = 0.2;      // of the busiest stage
constexpr double kLowBusyRatio = 0.1;  // of the busiest stage: all wait
constexpr double kDegraded = 4;        // times slower than the other way
constexpr size_t kMaxStagesWarned = 256;
constexpr size_t kMaxNamedLinks = 3;

std::string FirstNames(const std::vector<std::string>& names) {
  std::vector<std::string> first(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMaxNamedLinks)));
  if (names.size() > kMaxNamedLinks) first.push_back(absl::StrFormat("%d more", names.size() - kMaxNamedLinks));
  return absl::StrJoin(first, ", ");
}

void WarnOfStages(const PlannedPipeline& plan, const PlanContext& context, const wire::SimulatedStep& step,
                  std::vector<plan::Warning>& warnings) {
  const scheduler::PlanRequest& request = context.request.request;
  const std::string asked = request.stages > 0 ? absl::StrFormat("; spec.strategy.stages: %d asks for so many stages", request.stages) : "";
  double busiest = 0;
  for (const scheduler::PlannedStage& stage : plan.stages) busiest = std::max(busiest, stage.busy_ratio);
  for (const scheduler::PlannedStage& stage : plan.stages) {
    const bool trains = std::any_of(stage.ops.begin(), stage.ops.end(), [&](int op) { return request.ops[op].parameter_bytes > 0; });
    if (!trains) {
      warnings.push_back(
          {"StageWithoutParameters",
           absl::StrFormat("stage %d on %s has no parameters (%s): %s, with fewer stages or spec.strategy.pins%s", stage.index,
                           stage.device_names[0], FirstNames(stage.op_names),
                           &stage == &plan.stages.back() ? "what is sent to it only to be turned into a loss could stay where it is made"
                                                         : "its ops could run in a stage beside it",
                           asked)});
    }
    if (stage.busy_ratio < kNearlyIdle && stage.busy_ratio < kFarBelow * busiest) {
      warnings.push_back({"DeviceNearlyIdle", absl::StrFormat("%s computes %.1f%% of the step, the busiest stage %.1f%%%s",
                                                              stage.device_names[0], 100 * stage.busy_ratio, 100 * busiest, asked)});
    }
  }
  if (busiest < kLowBusyRatio && !step.bottlenecks.empty()) {
    const wire::SimulatedBottleneck& bottleneck = step.bottlenecks[0];
    warnings.push_back(
        {"DevicesWait", absl::StrFormat("no device computes more than %.1f%% of the step, they wait for the rest of it: first of "
                                        "all for %s",
                                        100 * busiest, bottleneck.name)});
  }
}

// Of the links that a plan uses, those that are far slower than the way back.
void WarnOfLinks(const PlannedPipeline& plan, const PlanContext& context, std::vector<plan::Warning>& warnings) {
  const scheduler::DirectedLinks links(context.request.request);
  const auto check = [&](int from_stage, int to_stage) {
    const scheduler::PlannedStage &from = plan.stages[from_stage], &to = plan.stages[to_stage];
    const double there = links.Between(from.devices[0], to.devices[0]).bytes_per_s,
                 back = links.Between(to.devices[0], from.devices[0]).bytes_per_s;
    if (there <= 0 || back < kDegraded * there) return;
    warnings.push_back(
        {"LinkDegraded", absl::StrFormat("%s -> %s carries %s/s, %.3g times less than the %s/s of the way back", from.device_names[0],
                                         to.device_names[0], scheduler::TrafficText(there), back / there, scheduler::TrafficText(back))});
  };
  for (const scheduler::PlannedLink& link : plan.links) {
    check(link.src_stage, link.dst_stage);
    if (link.backward_bytes > 0) check(link.dst_stage, link.src_stage);
  }
}

// Where the job names a codec for all links that what a loss reads does not take (compression::AllowedCodec).
void WarnOfCodecs(const PlannedPipeline& plan, const job::Spec& spec, std::vector<plan::Warning>& warnings) {
  const std::optional<compression::CodecKind> named = PolicyOf(spec).codec;
  if (spec.compression.policy != job::CompressionPolicy::kUniform || !named.has_value()) return;
  const compression::CodecKind taken = compression::AllowedCodec({.kind = *named}, opdag::ActivationKind::kLossInput).kind;
  if (taken == *named) return;
  for (const scheduler::PlannedLink& link : plan.links) {
    std::vector<std::string> values;
    for (size_t v = 0; v < link.value_kinds.size(); ++v) {
      if (link.value_kinds[v] == opdag::ActivationKind::kLossInput) values.push_back(link.value_names[v]);
    }
    if (values.empty()) continue;
    warnings.push_back(
        {"CodecNotApplied",
         absl::StrFormat("stage %d sends %s to stage %d as %s instead of %s (spec.compression.codec): a loss reads it, and coarser codecs "
                         "there ruin training; a cut at another op (spec.strategy.pins) is compressed as asked",
                         link.src_stage, FirstNames(values), link.dst_stage, compression::Name(taken), compression::Name(*named))});
  }
}

// GPUs that are known by their figures, whose tensor cores fp32 does not use.
void WarnOfPrecision(const PlannedPipeline& plan, const PlanContext& context, std::vector<plan::Warning>& warnings) {
  constexpr double kMuchFaster = 2;
  if (context.workload.job.spec.training.precision != job::Precision::kFp32) return;
  std::set<std::string> warned;
  for (const scheduler::PlannedStage& stage : plan.stages) {
    const int cost_class = context.request.request.devices[stage.devices[0]].cost_class;
    if (context.request.arithmetic[cost_class] != estimator::Name(estimator::Arithmetic::kFp32)) continue;
    const std::string& name = context.request.specifications[cost_class];
    const estimator::GpuSpec* const gpu = name.empty() ? nullptr : estimator::FindGpu(name);
    if (gpu == nullptr || gpu->bf16_flops < kMuchFaster * gpu->fp32_flops || !warned.insert(name).second) continue;
    warnings.push_back({"TensorCoresIdle", absl::StrFormat("precision fp32 does not use the tensor cores of %s, whose peak in bf16 is %.0f "
                                                           "times as high: spec.training.precision: bf16 uses them",
                                                           name, gpu->bf16_flops / gpu->fp32_flops)});
  }
}

}  // namespace

void AddWarnings(const PlannedPipeline& plan, const PlanContext& context, const wire::SimulatedStep& step,
                 std::vector<plan::Warning>& warnings) {
  WarnOfPrecision(plan, context, warnings);
  if (plan.stages.size() < 2 || plan.stages.size() > kMaxStagesWarned) return;
  WarnOfStages(plan, context, step, warnings);
  WarnOfLinks(plan, context, warnings);
  WarnOfCodecs(plan, context.workload.job.spec, warnings);
}

}  // namespace fusionllm::planning
