#include "lib/planning/plan_figures.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "lib/opdag/accounting.h"
#include "lib/planning/expected_loss.h"
#include "lib/planning/plan_warnings.h"
#include "lib/planning/replica_step.h"
#include "lib/planning/step_document.h"
#include "lib/scheduler/simulation.h"

namespace fusionllm::planning {
namespace {

using scheduler::PlannedPipeline;

// Of the simulator, that may be spent on what limits a step: 0.2 s.
constexpr int64_t kEventsForBottlenecks = 4'000'000;

wire::SimulatedStep StepOf(const PlannedPipeline& plan, const PlanContext& context) {
  const scheduler::PipelineInput& input = plan.pipeline.input;
  const scheduler::Simulation simulation = scheduler::Simulate(input, plan.pipeline.shared_links);
  const auto events = static_cast<int64_t>(2 * (input.stages.size() + input.links.size())) * input.micro_batches;
  const auto probed = std::clamp<int64_t>(kEventsForBottlenecks / std::max<int64_t>(1, 4 * events), 1, kMaxProbedBottlenecks);
  return StepDocument(input, simulation, StepTextOf(plan, context.workload), nullptr, static_cast<int>(probed));
}

void AddRates(const PlanContext& context, plan::Plan& document) {
  const workload::Workload& workload = context.workload;
  const bool words = workload.data.kind == data::DatasetKind::kText || workload.data.kind == data::DatasetKind::kTokens;
  document.unit = words ? "tokens" : "images";
  document.steps = workload.job.spec.training.steps;
  document.parameters = opdag::FootprintOf(workload.training.graph).parameters;
  const int64_t samples = workload.micro_batch_size * workload.micro_batches;
  document.tokens_per_step = samples * workload.targets_per_sample;
  if (!(document.predicted_step_seconds > 0)) return;
  document.samples_per_second = static_cast<double>(samples) / document.predicted_step_seconds;
  document.tokens_per_second = document.samples_per_second * static_cast<double>(workload.targets_per_sample);
}

std::map<std::string, std::string> SitesOf(const PlanContext& context) {
  std::map<std::string, std::string> sites;
  for (const scheduler::Device& device : context.request.request.devices) sites[device.name] = device.site;
  return sites;
}

const char* DtypeName(int64_t bytes_of_element) { return bytes_of_element == 2 ? "bf16" : "fp32"; }

// What the links of a plan carry, before any codec.
void AddDtypes(const PlannedPipeline& plan, const PlanContext& context, plan::Plan& document) {
  std::map<std::pair<int, int>, std::string> dtypes;  // by stages, either way
  for (const scheduler::PlannedLink& link : plan.links) {
    std::string& dtype = dtypes[{link.src_stage, link.dst_stage}];
    for (const int v : link.values) {
      const scheduler::ValueNode& value = context.request.request.values[v];
      if (value.differentiable && !value.lossless_only) dtype = DtypeName(value.bytes_of_element);
    }
    if (dtype.empty()) dtype = "ids";
    dtypes[{link.dst_stage, link.src_stage}] = dtype;
  }
  for (plan::Link& link : document.links) {
    // Gradients of parameters are fp32 whatever the precision of values.
    const bool tied_alone = link.tied_bytes > 0 && link.bytes == link.tied_bytes;
    link.dtype = tied_alone ? "fp32" : dtypes[{link.src_stage, link.dst_stage}];
  }
}

void AddMemory(const PlannedPipeline& plan, const PlanContext& context, plan::Plan& document) {
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    document.stages[s].device_memory_bytes = context.request.request.devices[plan.stages[s].devices[0]].memory_bytes;
  }
}

void AddTiedSeconds(const PlannedPipeline& plan, plan::Plan& document) {
  for (size_t t = 0; t < plan.tied.size() && t < document.tied.size(); ++t) {
    for (const scheduler::TiedExchange::Message& message : plan.tied[t].messages) {
      document.tied[t].seconds = std::max(document.tied[t].seconds, message.seconds + message.latency_s);
    }
  }
}

}  // namespace

void AddFigures(const PlannedPipeline& plan, const PlanContext& context, plan::Plan& document) {
  AddRates(context, document);
  const std::map<std::string, std::string> sites = SitesOf(context);
  for (const plan::Link& link : document.links) {
    if (sites.at(link.src) != sites.at(link.dst)) document.site_bytes += link.bytes;
  }
  AddDtypes(plan, context, document);
  AddMemory(plan, context, document);
  AddTiedSeconds(plan, document);
  SetExpectedLoss(context.workload.job.spec, document);
  const wire::SimulatedStep step = StepOf(plan, context);
  document.bottleneck = step.bottleneck;
  AddWarnings(plan, context, step, document.warnings);
}

void AddReplicaFigures(const scheduler::replicas::ReplicaPlan& plan, const PlanContext& context, const std::vector<plan::Plan>& pipelines,
                       plan::Plan& document) {
  AddRates(context, document);
  const std::map<std::string, std::string> sites = SitesOf(context);
  document.site_bytes = 0;
  document.warnings.clear();
  std::vector<wire::SimulatedStep> steps;
  for (size_t d = 0; d < pipelines.size(); ++d) {
    const plan::Plan& pipeline = pipelines[d];
    document.site_bytes += pipeline.site_bytes;
    for (const plan::Warning& warning : pipeline.warnings) {
      if (warning.reason == kLossAboveLimit) continue;  // said of all of them together
      // Pipelines have the same cuts, and often the same GPUs.
      const bool known = std::find(document.warnings.begin(), document.warnings.end(), warning) != document.warnings.end();
      if (!known) document.warnings.push_back(warning);
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
