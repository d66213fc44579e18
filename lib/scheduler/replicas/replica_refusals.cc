#include "lib/scheduler/replicas/replica_refusals.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/counted.h"
#include "lib/scheduler/refusal_reasons.h"
#include "lib/scheduler/replicas/replica_planner.h"
#include "lib/scheduler/strategy.h"

namespace fusionllm::scheduler::replicas {
namespace {

Shortfall Executors(int64_t needed, int64_t available) {
  return {"executors", static_cast<double>(needed), static_cast<double>(available)};
}

// "2 pipelines (strategy.replicas) of 3 stages"
std::string Pipelines(const GridWishes& wishes) {
  return absl::StrFormat("%s (strategy.replicas)%s", base::Counted(wishes.replicas, "pipeline"),
                         wishes.stages > 0 ? absl::StrCat(" of ", base::Counted(wishes.stages, "stage")) : "");
}

std::string LeastDevices(const GridWishes& wishes) {
  return wishes.use_all_devices ? absl::StrFormat("all %d are to be used", wishes.least_devices)
                                : absl::StrFormat("executors.min asks for %d", wishes.least_devices);
}

Refusal TooFewExecutors(absl::string_view what, int64_t needed, const GridWishes& wishes) {
  const std::string why = !wishes.most_devices_why.empty() ? absl::StrCat(": ", wishes.most_devices_why) : wishes.fewer_devices_why;
  return {refusals::kTooFewExecutors,
          absl::StrFormat("%s %s, the job may use %d%s", what, base::Counted(needed, "executor"), wishes.most_devices, why),
          Executors(needed, wishes.most_devices)};
}

// The job asks for more executors than grids that it may have use; `most` is the largest of these.
Refusal NotSoMany(const GridWishes& wishes, int64_t most) {
  const int64_t any_stages = int64_t{wishes.replicas} * std::min(wishes.most_devices / wishes.replicas, wishes.most_stages);
  const char* const fewer = wishes.use_all_devices ? "let some be left out" : "lower it";
  if (wishes.stages > 0) {
    std::string cure = fewer;
    if (any_stages >= wishes.least_devices) cure += ", or leave the stages to the planner (strategy.stages: 0)";
    return {
        refusals::kConflictingWishes,
        absl::StrFormat("%s (strategy.stages) use exactly %d executors, and %s: %s", Pipelines(wishes), most, LeastDevices(wishes), cure),
        Executors(wishes.least_devices, most)};
  }
  if (wishes.most_devices / wishes.replicas >= wishes.most_stages) {  // no number of executors allows one stage more
    return {refusals::kTooManyStages,
            absl::StrFormat("%s use at most %d executors, for the model has only %s to share out, and %s: %s, or take more replicas",
                            Pipelines(wishes), most, base::Counted(wishes.most_stages, "op"), LeastDevices(wishes), fewer),
            Executors(wishes.least_devices, most)};
  }
  const std::string limit = wishes.most_devices_why.empty() ? "" : absl::StrCat(" (", wishes.most_devices_why, ")");
  const std::string cure = absl::StrFormat("let the job use %d", most + wishes.replicas);
  return {refusals::kConflictingWishes,
          absl::StrFormat("%s with the same number of stages use %d executors or %d, but %s, and the job may use %d%s: %s%s",
                          Pipelines(wishes), most, most + wishes.replicas, LeastDevices(wishes), wishes.most_devices, limit,
                          wishes.use_all_devices ? "" : absl::StrFormat("set executors.min to %d, or ", most), cure),
          Executors(wishes.least_devices, most)};
}

OnePipelineOnly Because(const char* reason, std::string why, absl::string_view cure, Shortfall shortfall = {}) {
  Refusal refusal = {reason, absl::StrCat(why, ": ", cure), std::move(shortfall)};
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

Refusal NoShape(const GridWishes& wishes, int micro_batches) {
  if (wishes.replicas > micro_batches) {
    return {refusals::kTooManyReplicas,
            absl::StrFormat("strategy.replicas is %d, a step has %s: every pipeline needs one; take a smaller training.microBatchSize, a "
                            "larger training.globalBatchSize, or fewer replicas",
                            wishes.replicas, base::Counted(micro_batches, "micro-batch", "micro-batches")),
            {"micro_batches", static_cast<double>(wishes.replicas), static_cast<double>(micro_batches)}};
  }
  const int64_t fewest = int64_t{wishes.replicas} * std::max(1, wishes.stages);
  if (fewest > wishes.most_devices) return TooFewExecutors(absl::StrCat(Pipelines(wishes), " need"), fewest, wishes);
  if (wishes.least_devices > wishes.most_devices) return TooFewExecutors("executors.min asks for", wishes.least_devices, wishes);
  const int stages = wishes.stages > 0 ? wishes.stages : std::min(wishes.most_devices / wishes.replicas, wishes.most_stages);
  return NotSoMany(wishes, int64_t{wishes.replicas} * stages);
}

std::optional<OnePipelineOnly> WhyOnePipelineOnly(absl::string_view strategy, const PlanRequest& request, const Problem& problem) {
  if (strategy != kPlanner) {
    return Because(refusals::kNotAvailable, absl::StrFormat("planner %s lays out one pipeline", strategy),
                   absl::StrFormat("set strategy.planner to %s, or strategy.replicas to 1", kPlanner));
  }
  if (!request.pins.empty()) {
    return Because(refusals::kPinConflict,
                   absl::StrFormat("ops '%s' are pinned to %s (strategy.pins), but with strategy.replicas every op runs on several devices",
                                   request.pins[0].ops, request.pins[0].device),
                   absl::StrFormat("remove the %s, or set strategy.replicas to 1", request.pins.size() == 1 ? "pin" : "pins"));
  }
  if (!request.first_device.empty()) {
    return Because(refusals::kNotAvailable,
                   absl::StrFormat("%s is to read the training data, but with strategy.replicas the first stage runs on several devices",
                                   request.first_device),
                   "set strategy.replicas to 1 or auto");
  }
  if (request.max_egress_bytes.has_value()) {
    return Because(refusals::kNotAvailable,
                   "what leaves a site in a step (placement.maxEgressBytesPerStep) can be limited with one pipeline only, not with "
                   "strategy.replicas",
                   "remove the limit, or set strategy.replicas to 1");
  }
  const int usable = static_cast<int>(problem.usable().size());
  if (usable > kMaxDevices) {
    return Because(refusals::kInstanceTooLarge,
                   absl::StrFormat("strategy.replicas is for up to %d executors, %d are usable", kMaxDevices, usable),
                   "exclude some (strategy.exclude), or set strategy.replicas to 1", Executors(usable, kMaxDevices));
  }
  return std::nullopt;
}

Refusal NoGridFits(const Problem& problem, const FoundGrid& failed) {
  const int pipeline = failed.evaluation.failed_pipeline;
  if (pipeline < 0) {
    return {
        refusals::kDisconnectedDevices,
        absl::StrFormat("replicas of a stage must exchange gradients, and no placement joins them all both ways (%s, among others, are not "
                        "joined): let them reach each other, or set strategy.replicas to 1",
                        TwoNotJoined(problem, failed.grid)),
        {}};
  }
  Refusal refusal = RefusalFor(problem, failed.grid.Pipeline(pipeline), failed.evaluation.failure);
  refusal.message =
      absl::StrFormat("no grid of pipelines fits; with %s of %s, in pipeline %d: %s", base::Counted(failed.grid.pipelines(), "pipeline"),
                      base::Counted(failed.grid.stages(), "stage"), pipeline, refusal.message);
  return WithMemoryRemedy(std::move(refusal));
}

}  // namespace fusionllm::scheduler::replicas
