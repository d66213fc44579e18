#include "lib/planning/request.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/compression/spec.h"
#include "lib/kernels/optimizer.h"
#include "lib/planning/cost_models.h"
#include "lib/planning/stage_memory.h"
#include "lib/planning/tied_codecs.h"
#include "lib/schedule/pipeline_schedule.h"
#include "lib/scheduler/graph_request.h"
#include "lib/scheduler/text_format.h"

namespace fusionllm::planning {
namespace {

// Bytes of one entry of the report that every stage sends to the first at the end of a step (runtime/step_coordinator.h), and of its
// header.
constexpr int64_t kReportEntryBytes = 16;
constexpr int64_t kDecisionBytes = 128;  // of what the first answers, its frame included

bool SameMachine(const wire::DeviceProfile& a, const wire::DeviceProfile& b) {
  return a.specification == b.specification && a.arithmetic == b.arithmetic && a.ops == b.ops && a.rates == b.rates &&
         a.update_seconds_per_element == b.update_seconds_per_element && a.data_seconds_per_byte == b.data_seconds_per_byte;
}

// The planner's limits, by the fields of the job that are to change.
absl::Status CheckSize(const workload::Workload& workload) {
  if (workload.training.forward_ops > scheduler::kMaxOps) {
    return absl::InvalidArgumentError(
        absl::StrFormat("spec.model: it has %d ops, plans are made for at most %d", workload.training.forward_ops, scheduler::kMaxOps));
  }
  if (workload.micro_batches > scheduler::kMaxMicroBatches) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "spec.training.microBatchSize: batches of %d samples in micro-batches of %d make %d of them, plans are made for at "
        "most %d",
        workload.job.spec.training.global_batch_size, workload.micro_batch_size, workload.micro_batches, scheduler::kMaxMicroBatches));
  }
  return absl::OkStatus();
}

// One cost class for each different machine; emulated devices of one machine share it and differ in time_scale.
absl::Status AddDevices(const workload::Workload& workload, const Profiles& profiles, const estimator::GraphCosts& costs, Request& out) {
  const std::string data_kind(job::ToString(workload.job.spec.data.kind));
  std::vector<const wire::DeviceProfile*> classes;
  for (const wire::DeviceProfile& device : profiles.devices) {
    const auto same =
        std::find_if(classes.begin(), classes.end(), [&](const wire::DeviceProfile* other) { return SameMachine(*other, device); });
    out.request.devices.push_back({.name = device.name,
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
    FUSIONLLM_ASSIGN_OR_RETURN(out.machines.emplace_back(), CostModelOf(device, data_kind));
    out.specifications.push_back(device.specification);
    out.arithmetic.push_back(device.arithmetic);
    out.seconds.push_back(estimator::SecondsByOp(costs, workload.training, out.machines.back()));
  }
  return scheduler::AddGraph(workload.training, costs, out.seconds, out.request);
}

// Ids travel in as few bytes each as hold those of a message: of the data's at most so many.
void NarrowIds(const workload::Workload& workload, const estimator::GraphCosts& costs, scheduler::PlanRequest& request) {
  constexpr int64_t kBytesOfId = 4;
  const opdag::Graph& graph = workload.training.graph;
  const bool text = workload.data.kind == data::DatasetKind::kText;  // bytes, whatever the vocabulary
  for (size_t v = 0; v < costs.values.size(); ++v) {
    if (costs.values[v].dtype != tensor::DType::kI32) continue;
    const opdag::Op& origin = graph.op(costs.values[v].producer);
    int64_t below = 0;
    if (origin.kind == opdag::OpKind::kPlaceholder) {
      const bool image_labels = workload.targets_per_sample == 1;
      below = text ? 256 : image_labels ? workload.data.num_classes : workload.data.vocabulary_size;
    }
    request.values[v].wire_bytes = compression::EncodedIntegerBytes(costs.values[v].bytes / kBytesOfId, below);
  }
}

void AddNetwork(const Network& network, scheduler::PlanRequest& request) {
  request.resources = network.resources;
  request.links = network.links;
  request.sites = network.sites;
  request.site_links = network.site_links;
  for (size_t d = 0; d < request.devices.size(); ++d) {
    request.devices[d].out_port = network.ports[d].out;
    request.devices[d].in_port = network.ports[d].in;
  }
}

// Devices with less memory than the job wants of any.
void ExcludeSmall(const job::Spec& spec, scheduler::PlanRequest& request) {
  if (!spec.placement.min_memory.has_value()) return;
  const int64_t least = spec.placement.min_memory->bytes;
  const scheduler::Device* largest = nullptr;
  int small = 0;
  for (const scheduler::Device& device : request.devices) {
    if (device.memory_bytes >= least) continue;
    request.exclude.push_back(device.name);
    ++small;
    if (largest == nullptr || device.memory_bytes > largest->memory_bytes) largest = &device;
  }
  if (small == 0) return;
  request.exclude_why =
      absl::StrFormat("spec.placement.minMemory asks for %s of each, and %d of %d devices have less, %s the most of these with %s",
                      scheduler::SizeText(static_cast<double>(least)), small, request.devices.size(), largest->name,
                      scheduler::SizeText(static_cast<double>(largest->memory_bytes)));
}

// Of `executors` devices that may train beside `spares` that are marked as such.
void LimitExecutors(const job::Executors& requested, int64_t executors, int64_t spares, scheduler::PlanRequest& request) {
  // Spares that no device is marked for are taken from the executors, but a job always has one.
  const int64_t held_back = std::max<int64_t>(0, requested.spares - spares);
  int64_t most = std::max<int64_t>(1, executors - held_back);
  const char* field = nullptr;  // that says so
  for (const auto& [limit, name] :
       {std::pair(requested.max, "spec.executors.max"), std::pair(requested.replicas, "spec.executors.replicas")}) {
    if (!limit.has_value() || *limit >= most) continue;
    most = *limit;
    field = name;
  }
  request.min_executors = static_cast<int>(std::max<int64_t>(1, requested.min));
  request.max_executors = static_cast<int>(std::max<int64_t>(most, request.min_executors));
  const int64_t out = executors - request.max_executors;
  if (out <= 0) return;
  request.max_executors_why = field != nullptr ? absl::StrFormat("%s is %d", field, request.max_executors)
                              : out == 1       ? "1 is held back as a spare (spec.executors.spares)"
                                               : absl::StrFormat("%d are held back as spares (spec.executors.spares)", out);
}

// What the job says about executors, strategy and placement.
void AddConstraints(const job::Spec& spec, const PlanOptions& options, scheduler::PlanRequest& request) {
  request.schedule = schedule::Find(job::ToString(spec.strategy.pipeline_schedule)).value_or(schedule::k1F1B);  // none of them: auto
  request.max_in_flight = options.max_in_flight.value_or(static_cast<int>(spec.strategy.in_flight));
  request.max_egress_bytes = spec.placement.max_egress_bytes_per_step;
  request.stages = options.stages.value_or(static_cast<int>(spec.strategy.stages));
  for (const job::Pin& pin : spec.strategy.pins) request.pins.push_back({.ops = pin.ops, .device = pin.device});
  request.first_device = options.data_device;
  request.exclude = spec.strategy.exclude;
  request.exclude.insert(request.exclude.end(), options.exclude.begin(), options.exclude.end());
  ExcludeSmall(spec, request);
  int spares = 0, executors = 0;
  for (const scheduler::Device& device : request.devices) {
    const bool out = std::find(request.exclude.begin(), request.exclude.end(), device.name) != request.exclude.end();
    spares += device.spare && !out;
    executors += !device.spare && !out;
  }
  std::sort(request.exclude.begin(), request.exclude.end());
  request.exclude.erase(std::unique(request.exclude.begin(), request.exclude.end()), request.exclude.end());
  LimitExecutors(spec.executors, executors, spares, request);
}

}  // namespace

absl::StatusOr<Request> MakeRequest(const workload::Workload& workload, const Profiles& profiles, const PlanOptions& options,
                                    runtime::Recompute recompute) {
  FUSIONLLM_RETURN_IF_ERROR(CheckSize(workload));
  const int state_tensors = static_cast<int>(kernels::StateNames(workload.optimizer).size());
  const estimator::GraphCosts costs = estimator::CostsOf(workload.training, state_tensors);
  Request out;
  scheduler::PlanRequest& request = out.request;
  request.micro_batches = workload.micro_batches;
  request.seed = options.seed;
  request.search_budget = options.search_budget;
  request.weigh_alternatives = options.explain;
  FUSIONLLM_RETURN_IF_ERROR(AddDevices(workload, profiles, costs, out));
  NarrowIds(workload, costs, request);
  AddTiedCodecs(workload, request);
  request.recompute = recompute == runtime::Recompute::kFull;
  request.recompute_is_a_choice = workload.job.spec.training.recompute == job::Recompute::kAuto;
  AddNetwork(profiles.network, request);
  AddConstraints(workload.job.spec, options, request);
  request.memory_reserve_bytes = ProcessBytes(1);
  request.decision_bytes = kDecisionBytes;
  request.report_bytes = kReportEntryBytes * (1 + static_cast<int64_t>(workload.training.graph.parameters().size()));
  return out;
}

}  // namespace fusionllm::planning
