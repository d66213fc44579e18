#include "lib/planning/request.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/estimator/graph_cost.h"
#include "lib/estimator/rate_fit.h"
#include "lib/opdag/op_schema.h"
#include "lib/planning/stage_memory.h"
#include "lib/scheduler/graph_request.h"

namespace fusionllm::planning {
namespace {

using autodiff::TrainingGraph;
using opdag::OpId;

// Bytes of one entry of the report that every stage sends to the first at the end of a step (runtime/step_exchange), and of its header.
constexpr int64_t kReportEntryBytes = 16;

// Seconds of every op of the graph on one machine, by op id.
struct MachineCosts {
  std::vector<double> seconds;
  double update_seconds_per_element = 0;
};

opdag::OpClass ClassNamed(const std::string& name) {
  for (int c = 0; c < opdag::kOpClassCount; ++c) {
    if (opdag::Name(static_cast<opdag::OpClass>(c)) == name) return static_cast<opdag::OpClass>(c);
  }
  return opdag::OpClass::kElementwise;
}

// Measured times as they are; ops of other shapes by the rates fitted to what was measured.
absl::StatusOr<MachineCosts> CostsOn(const wire::DeviceProfile& device, const TrainingGraph& training) {
  std::vector<estimator::Sample> samples;
  for (const auto& [signature, op] : device.ops) {
    if (op.seconds <= 0) continue;
    samples.push_back(
        {.signature = signature, .op_class = ClassNamed(op.op_class), .flops = op.flops, .bytes = op.bytes, .seconds = op.seconds});
  }
  if (samples.empty()) return absl::InvalidArgumentError(absl::StrFormat("the profile of device '%s' has no op times", device.name));
  estimator::DeviceProfile fitted{.name = device.name};
  FUSIONLLM_RETURN_IF_ERROR(estimator::FitDevice(samples, fitted));
  estimator::FillGaps(fitted, {});

  MachineCosts costs{.update_seconds_per_element = device.update_seconds_per_element};
  std::map<std::string, double> known;  // layers repeat
  for (const opdag::Op& op : training.graph.ops()) {
    if (op.type == "placeholder") {
      costs.seconds.push_back(0);
      continue;
    }
    const auto [entry, added] = known.try_emplace(estimator::OpSignature(training.graph, op), 0);
    if (added) {
      const opdag::OpCost cost = opdag::CostOf(training.graph, op);
      entry->second = estimator::SecondsOf(fitted, opdag::FindSchema(op.type)->op_class, entry->first, cost.flops,
                                           static_cast<double>(cost.bytes_read + cost.bytes_written));
    }
    costs.seconds.push_back(entry->second);
  }
  return costs;
}

// Trainable elements that each forward op updates at the end of a step; a shared parameter counts at its first user.
std::vector<int64_t> UpdatedElements(const TrainingGraph& training) {
  std::vector<int64_t> elements(training.forward_ops, 0);
  std::set<opdag::ParameterId> counted;
  for (const autodiff::ParameterUse& use : training.uses) {
    if (counted.insert(use.parameter).second) elements[use.op] += training.graph.parameter(use.parameter).type.elements();
  }
  return elements;
}

// One cost class for each different machine; emulated devices of one machine share it and differ in time_scale.
absl::Status AddDevices(const workload::Workload& workload, const Profiles& profiles, const estimator::GraphCosts& costs,
                        scheduler::PlanRequest& request) {
  const std::vector<int64_t> updated = UpdatedElements(workload.training);
  std::vector<const wire::DeviceProfile*> classes;
  std::vector<std::vector<estimator::OpSeconds>> seconds_by_class;
  for (const wire::DeviceProfile& device : profiles.devices) {
    const auto same = std::find_if(classes.begin(), classes.end(), [&](const wire::DeviceProfile* other) {
      return other->ops == device.ops && other->update_seconds_per_element == device.update_seconds_per_element;
    });
    request.devices.push_back({.name = device.name,
                               .site = device.site,
                               .cost_class = static_cast<int>(same - classes.begin()),
                               .time_scale = 1 / device.compute_scale,
                               .memory_bytes = device.memory_bytes,
                               .spare = device.spare});
    if (same != classes.end()) continue;
    classes.push_back(&device);
    if (classes.size() > static_cast<size_t>(scheduler::kMaxCostClasses)) {
      return absl::InvalidArgumentError(absl::StrFormat("more than %d different machines", scheduler::kMaxCostClasses));
    }
    FUSIONLLM_ASSIGN_OR_RETURN(const MachineCosts machine, CostsOn(device, workload.training));
    std::vector<estimator::OpSeconds>& seconds = seconds_by_class.emplace_back();
    for (const estimator::OpCosts& op : costs.ops) {
      double backward_s = 0;
      for (const OpId backward : op.backward_ops) backward_s += machine.seconds[backward];
      seconds.push_back({.forward_s = machine.seconds[op.op],
                         .backward_s = backward_s,
                         .update_s = static_cast<double>(updated[op.op]) * machine.update_seconds_per_element});
    }
  }
  return scheduler::AddGraph(workload.training, costs, seconds_by_class, request);
}

// What the job says about executors, strategy and placement.
void AddWishes(const job::Spec& spec, const PlanOptions& options, scheduler::PlanRequest& request) {
  switch (spec.strategy.pipeline_schedule) {
    case job::PipelineSchedule::kAuto:
      request.schedule = scheduler::Schedule::kAuto;
      break;
    case job::PipelineSchedule::kGpipe:
      request.schedule = scheduler::Schedule::kGPipe;
      break;
    case job::PipelineSchedule::k1f1b:
      request.schedule = scheduler::Schedule::k1F1B;
      break;
  }
  request.max_in_flight = static_cast<int>(spec.strategy.in_flight);
  request.stages = static_cast<int>(spec.strategy.stages);
  for (const job::Pin& pin : spec.strategy.pins) request.pins.push_back({.ops = pin.ops, .device = pin.device});
  request.first_device = options.data_device;
  request.exclude = spec.strategy.exclude;
  request.exclude.insert(request.exclude.end(), options.exclude.begin(), options.exclude.end());
  int spares = 0, executors = 0;
  for (const scheduler::Device& device : request.devices) {
    const bool small = spec.placement.min_memory.has_value() && device.memory_bytes < spec.placement.min_memory->bytes;
    if (small) request.exclude.push_back(device.name);
    const bool out = std::find(request.exclude.begin(), request.exclude.end(), device.name) != request.exclude.end();
    spares += device.spare && !out;
    executors += !device.spare && !out;
  }
  std::sort(request.exclude.begin(), request.exclude.end());
  request.exclude.erase(std::unique(request.exclude.begin(), request.exclude.end()), request.exclude.end());
  // Spares that no device is marked for are taken from the executors, but a job always has one.
  const int64_t held_back = std::max<int64_t>(0, spec.executors.spares - spares);
  int64_t most = std::max<int64_t>(1, executors - held_back);
  if (spec.executors.max.has_value()) most = std::min(most, *spec.executors.max);
  request.min_executors = static_cast<int>(std::max<int64_t>(1, spec.executors.min));
  request.max_executors = static_cast<int>(std::max<int64_t>(most, request.min_executors));
}

}  // namespace

absl::StatusOr<scheduler::PlanRequest> MakeRequest(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options,
                                                   runtime::Recompute recompute) {
  const int state_tensors = static_cast<int>(runtime::StateNames(workload.optimizer).size());
  const estimator::GraphCosts costs = estimator::CostsOf(workload.training, state_tensors);
  scheduler::PlanRequest request{.micro_batches = workload.micro_batches, .seed = options.seed};
  FUSIONLLM_RETURN_IF_ERROR(AddDevices(workload, profiles, costs, request));
  request.recompute = recompute == runtime::Recompute::kFull;
  request.resources = profiles.network.resources;
  request.links = profiles.network.links;
  AddWishes(workload.job.spec, options, request);
  request.memory_reserve_bytes = ProcessBytes(1);
  request.report_bytes = kReportEntryBytes * (1 + static_cast<int64_t>(workload.training.graph.parameters().size()));
  return request;
}

}  // namespace fusionllm::planning
