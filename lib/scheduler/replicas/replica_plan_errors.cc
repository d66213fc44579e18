#include "lib/scheduler/replicas/replica_plan_errors.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/pluralize.h"
#include "lib/scheduler/plan_error_reasons.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/replicas/replica_planner.h"

namespace fusionllm::scheduler::replicas {
namespace {

Shortfall Executors(int64_t needed, int64_t available) {
  return {"executors", static_cast<double>(needed), static_cast<double>(available)};
}

// "2 pipelines (spec.strategy.replicas) of 3 stages"
std::string Pipelines(const GridConstraints& constraints) {
  return absl::StrFormat("%s (spec.strategy.replicas)%s", base::Pluralize(constraints.replicas, "pipeline"),
                         constraints.stages > 0 ? absl::StrCat(" of ", base::Pluralize(constraints.stages, "stage")) : "");
}

std::string MinDevices(const GridConstraints& constraints) {
  return constraints.use_all_devices ? absl::StrFormat("all %d are to be used", constraints.min_devices)
                                     : absl::StrFormat("spec.executors.min asks for %d", constraints.min_devices);
}

PlanError TooFewExecutors(absl::string_view what, int64_t needed, const GridConstraints& constraints) {
  const std::string why =
      !constraints.max_devices_why.empty() ? absl::StrCat(": ", constraints.max_devices_why) : constraints.fewer_devices_why;
  return {plan_errors::kTooFewExecutors,
          absl::StrFormat("%s %s, the job may use %d%s", what, base::Pluralize(needed, "executor"), constraints.max_devices, why),
          Executors(needed, constraints.max_devices)};
}

// The job asks for more executors than grids that it may have use; `most` is the largest of these.
PlanError NotSoMany(const GridConstraints& constraints, int64_t most) {
  const int64_t any_stages =
      int64_t{constraints.replicas} * std::min(constraints.max_devices / constraints.replicas, constraints.max_stages);
  const char* const fewer = constraints.use_all_devices ? "let some be left out" : "lower it";
  if (constraints.stages > 0) {
    std::string cure = fewer;
    if (any_stages >= constraints.min_devices) cure += ", or leave the stages to the planner (spec.strategy.stages: 0)";
    return {plan_errors::kConflictingConstraints,
            absl::StrFormat("%s (spec.strategy.stages) use exactly %d executors, and %s: %s", Pipelines(constraints), most,
                            MinDevices(constraints), cure),
            Executors(constraints.min_devices, most)};
  }
  if (constraints.max_devices / constraints.replicas >= constraints.max_stages) {  // no number of executors allows one stage more
    return {plan_errors::kTooManyStages,
            absl::StrFormat("%s use at most %d executors, for the model has only %s to share out, and %s: %s, or take more replicas",
                            Pipelines(constraints), most, base::Pluralize(constraints.max_stages, "op"), MinDevices(constraints), fewer),
            Executors(constraints.min_devices, most)};
  }
  const std::string limit = constraints.max_devices_why.empty() ? "" : absl::StrCat(" (", constraints.max_devices_why, ")");
  const std::string cure = absl::StrFormat("let the job use %d", most + constraints.replicas);
  return {plan_errors::kConflictingConstraints,
          absl::StrFormat("%s with the same number of stages use %d executors or %d, but %s, and the job may use %d%s: %s%s",
                          Pipelines(constraints), most, most + constraints.replicas, MinDevices(constraints), constraints.max_devices,
                          limit, constraints.use_all_devices ? "" : absl::StrFormat("set spec.executors.min to %d, or ", most), cure),
          Executors(constraints.min_devices, most)};
}

SinglePipelineConstraint Because(const char* reason, std::string why, absl::string_view cure, Shortfall shortfall = {}) {
  PlanError refusal = {reason, absl::StrCat(why, ": ", cure), std::move(shortfall)};
  return {std::move(refusal), std::move(why)};
}

// Of the replicas of one stage of `grid`, which is no better or worse than others, two that no link joins: "a and b".
std::string TwoNotJoined(const Problem& problem, const ReplicaGrid& grid) {
  const auto& devices = problem.request().devices;
  for (const std::vector<int>& replicas : grid.devices) {
    for (size_t a = 0; a < replicas.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        if (!problem.Connected(replicas[b], replicas[a]))
          return absl::StrCat(devices[replicas[b]].name, " and ", devices[replicas[a]].name);
      }
    }
  }
  return "some";  // a sum along a chain has no way only where a pair has none
}

}  // namespace

PlanError NoFeasibleShape(const GridConstraints& constraints, int micro_batches) {
  if (constraints.replicas > micro_batches) {
    return {plan_errors::kTooManyReplicas,
            absl::StrFormat(
                "spec.strategy.replicas is %d, a step has %s: every pipeline needs one; take a smaller spec.training.microBatchSize, a "
                "larger spec.training.globalBatchSize, or fewer replicas",
                constraints.replicas, base::Pluralize(micro_batches, "micro-batch", "micro-batches")),
            {"micro_batches", static_cast<double>(constraints.replicas), static_cast<double>(micro_batches)}};
  }
  const int64_t fewest = int64_t{constraints.replicas} * std::max(1, constraints.stages);
  if (fewest > constraints.max_devices) return TooFewExecutors(absl::StrCat(Pipelines(constraints), " need"), fewest, constraints);
  if (constraints.min_devices > constraints.max_devices)
    return TooFewExecutors("spec.executors.min asks for", constraints.min_devices, constraints);
  const int stages =
      constraints.stages > 0 ? constraints.stages : std::min(constraints.max_devices / constraints.replicas, constraints.max_stages);
  return NotSoMany(constraints, int64_t{constraints.replicas} * stages);
}

std::optional<SinglePipelineConstraint> SinglePipelineConstraintOf(absl::string_view planner, const PlanRequest& request,
                                                                   const Problem& problem) {
  if (planner != kPlanner) {
    return Because(plan_errors::kNotAvailable, absl::StrFormat("planner %s lays out one pipeline", planner),
                   absl::StrFormat("set spec.strategy.planner to %s, or spec.strategy.replicas to 1", kPlanner));
  }
  if (!request.pins.empty()) {
    return Because(
        plan_errors::kPinConflict,
        absl::StrFormat("ops '%s' are pinned to %s (spec.strategy.pins), but with spec.strategy.replicas every op runs on several devices",
                        request.pins[0].ops, request.pins[0].device),
        absl::StrFormat("remove the %s, or set spec.strategy.replicas to 1", request.pins.size() == 1 ? "pin" : "pins"));
  }
  if (!request.first_device.empty()) {
    return Because(
        plan_errors::kNotAvailable,
        absl::StrFormat("%s is to read the training data, but with spec.strategy.replicas the first stage runs on several devices",
                        request.first_device),
        "set spec.strategy.replicas to 1 or auto");
  }
  if (request.max_egress_bytes.has_value()) {
    return Because(plan_errors::kNotAvailable,
                   "what leaves a site in a step (spec.placement.maxEgressBytesPerStep) can be limited with one pipeline only, not with "
                   "spec.strategy.replicas",
                   "remove the limit, or set spec.strategy.replicas to 1");
  }
  const int usable = static_cast<int>(problem.usable().size());
  if (usable > kMaxDevices) {
    return Because(plan_errors::kInstanceTooLarge,
                   absl::StrFormat("spec.strategy.replicas is for up to %d executors, %d are usable", kMaxDevices, usable),
                   "exclude some (spec.strategy.exclude), or set spec.strategy.replicas to 1", Executors(usable, kMaxDevices));
  }
  return std::nullopt;
}

PlanError NoGridFits(const Problem& problem, const FoundGrid& failed) {
  const int pipeline = failed.evaluation.failed_pipeline;
  if (pipeline < 0) {
    return {
        plan_errors::kDisconnectedDevices,
        absl::StrFormat("replicas of a stage must exchange gradients, and no placement joins them all both ways (%s, among others, are not "
                        "joined): let them reach each other, or set spec.strategy.replicas to 1",
                        TwoNotJoined(problem, failed.grid)),
        {}};
  }
  PlanError refusal = PlanErrorFor(problem, failed.grid.Pipeline(pipeline), failed.evaluation.failure);
  refusal.message =
      absl::StrFormat("no grid of pipelines fits; with %s of %s, in pipeline %d: %s", base::Pluralize(failed.grid.pipelines(), "pipeline"),
                      base::Pluralize(failed.grid.stages(), "stage"), pipeline, refusal.message);
  return WithMemoryRemedy(std::move(refusal));
}

}  // namespace fusionllm::scheduler::replicas
