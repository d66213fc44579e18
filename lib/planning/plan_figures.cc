#include "lib/planning/plan_figures.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/planning/expected_loss.h"
#include "lib/planning/replica_step.h"
#include "lib/planning/step_document.h"
#include "lib/scheduler/directed_links.h"
#include "lib/scheduler/simulation.h"
#include "lib/scheduler/words.h"

namespace fusionllm::planning {
namespace {

using scheduler::Plan;

// Of the simulator, that may be spent on what limits a step: 0.2 s.
constexpr int64_t kEventsForLimits = 4'000'000;
constexpr double kNearlyIdle = 0.05;  // of the step that a stage computes
constexpr double kFarBelow = 0.2;     // of the busiest stage
constexpr double kMostlyWaiting = 0.1;
constexpr double kDegraded = 4;  // times slower than the other way
constexpr size_t kMostStagesWarned = 256;
constexpr size_t kMostNamed = 3;

wire::SimulatedStep StepOf(const Plan& plan, const PlanContext& context) {
  const scheduler::PipelineInput& input = plan.pipeline.input;
  const scheduler::Simulation simulation = scheduler::Simulate(input, plan.pipeline.wires);
  const auto events = static_cast<int64_t>(2 * (input.stages.size() + input.links.size())) * input.micro_batches;
  const auto probed = std::clamp<int64_t>(kEventsForLimits / std::max<int64_t>(1, 4 * events), 1, kMostProbed);
  return StepDocument(input, simulation, StepTextOf(plan, context.workload), nullptr, static_cast<int>(probed));
}

void AddRates(const PlanContext& context, wire::PlanDocument& document) {
  const workload::Workload& workload = context.workload;
  const bool words = workload.data.kind == data::DatasetKind::kText || workload.data.kind == data::DatasetKind::kTokens;
  document.unit = words ? "tokens" : "images";
  document.steps = workload.job.spec.training.steps;
  if (!(document.predicted_step_seconds > 0)) return;
  const double samples = static_cast<double>(workload.micro_batch_size) * workload.micro_batches;
  document.samples_per_second = samples / document.predicted_step_seconds;
  document.tokens_per_second = document.samples_per_second * static_cast<double>(workload.targets_per_sample);
}

std::map<std::string, std::string> SitesOf(const PlanContext& context) {
  std::map<std::string, std::string> sites;
  for (const scheduler::Device& device : context.request.request.devices) sites[device.name] = device.site;
  return sites;
}

const char* DtypeName(int64_t bytes_of_element) { return bytes_of_element == 2 ? "bf16" : "fp32"; }

// What the links of a plan carry, before any codec.
void AddDtypes(const Plan& plan, const PlanContext& context, wire::PlanDocument& document) {
  std::map<std::pair<int, int>, std::string> dtypes;  // by stages, either way
  for (const scheduler::PlanLink& link : plan.links) {
    std::string& dtype = dtypes[{link.src_stage, link.dst_stage}];
    for (const int v : link.values) {
      const scheduler::ValueNode& value = context.request.request.values[v];
      if (value.differentiable && !value.lossless_only) dtype = DtypeName(value.bytes_of_element);
    }
    if (dtype.empty()) dtype = "ids";
    dtypes[{link.dst_stage, link.src_stage}] = dtype;
  }
  for (wire::PlanLink& link : document.links) {
    // Gradients of parameters are fp32 whatever the precision of values.
    const bool tied_alone = link.tied_bytes > 0 && link.bytes == link.tied_bytes;
    link.dtype = tied_alone ? "fp32" : dtypes[{link.src_stage, link.dst_stage}];
  }
}

void AddMemory(const Plan& plan, const PlanContext& context, wire::PlanDocument& document) {
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    document.stages[s].device_memory_bytes = context.request.request.devices[plan.stages[s].devices[0]].memory_bytes;
  }
}

void AddTiedSeconds(const Plan& plan, wire::PlanDocument& document) {
  for (size_t t = 0; t < plan.tied.size() && t < document.tied.size(); ++t) {
    for (const scheduler::TiedExchange::Message& message : plan.tied[t].messages) {
      document.tied[t].seconds = std::max(document.tied[t].seconds, message.seconds + message.latency_s);
    }
  }
}

std::string FirstNames(const std::vector<std::string>& names) {
  std::vector<std::string> first(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMostNamed)));
  if (names.size() > kMostNamed) first.push_back(absl::StrFormat("%d more", names.size() - kMostNamed));
  return absl::StrJoin(first, ", ");
}

void WarnOfStages(const Plan& plan, const PlanContext& context, const wire::SimulatedStep& step, std::vector<wire::PlanWarning>& warnings) {
  const scheduler::PlanRequest& request = context.request.request;
  const std::string asked = request.stages > 0 ? absl::StrFormat("; spec.strategy.stages: %d asks for so many stages", request.stages) : "";
  double busiest = 0;
  for (const scheduler::PlanStage& stage : plan.stages) busiest = std::max(busiest, stage.busy_ratio);
  for (const scheduler::PlanStage& stage : plan.stages) {
    const bool trains = std::any_of(stage.ops.begin(), stage.ops.end(), [&](int op) { return request.ops[op].parameter_bytes > 0; });
    if (!trains) {
      warnings.push_back(
          {"StageWithoutParameters",
           absl::StrFormat("stage %d on %s has no parameters (%s): what is sent to it only to be turned into a loss could stay "
                           "where it is made, with fewer stages or spec.strategy.pins%s",
                           stage.index, stage.device_names[0], FirstNames(stage.op_names), asked)});
    }
    if (stage.busy_ratio < kNearlyIdle && stage.busy_ratio < kFarBelow * busiest) {
      warnings.push_back({"DeviceNearlyIdle", absl::StrFormat("%s computes %.1f%% of the step, the busiest stage %.1f%%%s",
                                                              stage.device_names[0], 100 * stage.busy_ratio, 100 * busiest, asked)});
    }
  }
  if (busiest < kMostlyWaiting && !step.limits.empty()) {
    const wire::SimulatedLimit& limit = step.limits[0];
    warnings.push_back(
        {"DevicesWait", absl::StrFormat("no device computes more than %.1f%% of the step, they wait for the rest of it: first of "
                                        "all for %s",
                                        100 * busiest, limit.name)});
  }
}

// Of the links that a plan uses, those that are far slower than the way back.
void WarnOfLinks(const Plan& plan, const PlanContext& context, std::vector<wire::PlanWarning>& warnings) {
  const scheduler::DirectedLinks links(context.request.request);
  const auto check = [&](int from_stage, int to_stage) {
    const scheduler::PlanStage &from = plan.stages[from_stage], &to = plan.stages[to_stage];
    const double there = links.Between(from.devices[0], to.devices[0]).bytes_per_s,
                 back = links.Between(to.devices[0], from.devices[0]).bytes_per_s;
    if (there <= 0 || back < kDegraded * there) return;
    warnings.push_back(
        {"LinkDegraded", absl::StrFormat("%s -> %s carries %s/s, %.3g times less than the %s/s of the way back", from.device_names[0],
                                         to.device_names[0], scheduler::TrafficText(there), back / there, scheduler::TrafficText(back))});
  };
  for (const scheduler::PlanLink& link : plan.links) {
    check(link.src_stage, link.dst_stage);
    if (link.backward_bytes > 0) check(link.dst_stage, link.src_stage);
  }
}

}  // namespace

void AddFigures(const Plan& plan, const PlanContext& context, wire::PlanDocument& document) {
  AddRates(context, document);
  const std::map<std::string, std::string> sites = SitesOf(context);
  for (const wire::PlanLink& link : document.links) {
    if (sites.at(link.src) != sites.at(link.dst)) document.site_bytes += link.bytes;
  }
  AddDtypes(plan, context, document);
  AddMemory(plan, context, document);
  AddTiedSeconds(plan, document);
  SetExpectedLoss(context.workload.job.spec, document);
  const wire::SimulatedStep step = StepOf(plan, context);
  document.bottleneck = step.bottleneck;
  if (plan.stages.size() < 2 || plan.stages.size() > kMostStagesWarned) return;
  WarnOfStages(plan, context, step, document.warnings);
  WarnOfLinks(plan, context, document.warnings);
}

void AddReplicaFigures(const scheduler::replicas::ReplicaPlan& plan, const PlanContext& context,
                       const std::vector<wire::PlanDocument>& pipelines, wire::PlanDocument& document) {
  AddRates(context, document);
  const std::map<std::string, std::string> sites = SitesOf(context);
  document.site_bytes = 0;
  document.warnings.clear();
  std::vector<wire::SimulatedStep> steps;
  for (size_t d = 0; d < pipelines.size(); ++d) {
    const wire::PlanDocument& pipeline = pipelines[d];
    document.site_bytes += pipeline.site_bytes;
    for (const wire::PlanWarning& warning : pipeline.warnings) {
      if (warning.reason != kLossAboveLimit) document.warnings.push_back(warning);  // said of all of them together
    }
    if (pipelines.size() > 1) steps.push_back(StepOf(plan.pipelines[d], context));
  }
  for (const scheduler::replicas::ChainLink& link : plan.sync.links) {
    if (sites.at(link.src) != sites.at(link.dst)) document.site_bytes += link.bytes;
  }
  SetExpectedLoss(context.workload.job.spec, document);
  document.bottleneck = pipelines.size() > 1 ? ReplicaStep(steps, plan).bottleneck : pipelines[0].bottleneck;
}

}  // namespace fusionllm::planning
