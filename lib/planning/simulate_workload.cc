#include "lib/planning/simulate_workload.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/planning/micro_batch_sizes.h"
#include "lib/planning/plan_of_pipeline.h"
#include "lib/planning/plan_workload.h"
#include "lib/planning/replica_step.h"
#include "lib/planning/step_document.h"
#include "lib/scheduler/schedule_variants.h"
#include "lib/scheduler/simulation.h"

namespace fusionllm::planning {
namespace {

using scheduler::PlannedPipeline;

// Of a step that the options make vary; further ones would hardly change the percentiles.
constexpr double kMaxJitter = 10;
constexpr double kMaxFactor = 1000;

struct NamedStraggler {
  std::string device;
  double factor = 1, probability = 1;
};

absl::StatusOr<NamedStraggler> ParseStraggler(const std::string& text, const Hardware& hardware) {
  const auto error = [&](absl::string_view what) { return absl::InvalidArgumentError(absl::StrCat("straggler '", text, "': ", what)); };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return error("DEVICE:FACTOR[@PROBABILITY] is wanted");
  NamedStraggler straggler{.device = text.substr(0, colon)};
  const std::string rest = text.substr(colon + 1);
  const size_t at = rest.find('@');
  if (!absl::SimpleAtod(rest.substr(0, at), &straggler.factor) || !(straggler.factor > 0 && straggler.factor <= kMaxFactor)) {
    return error(absl::StrFormat("the factor must be a number above 0 and at most %g", kMaxFactor));
  }
  if (at != std::string::npos &&
      (!absl::SimpleAtod(rest.substr(at + 1), &straggler.probability) || !(straggler.probability > 0) || straggler.probability > 1)) {
    return error("the probability must be a number above 0 and at most 1");
  }
  if (const absl::Status known = CheckDeviceName(hardware, straggler.device); !known.ok()) return error(known.message());
  return straggler;
}

class Simulation {
 public:
  Simulation(const WorkloadSource& source, const SimulateOptions& options) : source_(source), options_(options) {}

  absl::Status Check(const Hardware& hardware) {
    if (!(options_.jitter >= 0 && options_.jitter <= kMaxJitter)) {
      return absl::InvalidArgumentError(absl::StrFormat("jitter %g must lie between 0 and %g", options_.jitter, kMaxJitter));
    }
    if (options_.steps < 1 || options_.steps > scheduler::kMaxSimulatedSteps) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%d steps must lie between 1 and %d", options_.steps, scheduler::kMaxSimulatedSteps));
    }
    if (options_.what_if.size() > kMaxWhatIfs) return absl::InvalidArgumentError(absl::StrFormat("more than %d what-ifs", kMaxWhatIfs));
    for (const std::string& text : options_.stragglers) {
      FUSIONLLM_ASSIGN_OR_RETURN(stragglers_.emplace_back(), ParseStraggler(text, hardware));
    }
    return absl::OkStatus();
  }

  // A job on some hardware, planned.
  struct Scenario {
    std::unique_ptr<workload::Workload> workload;
    Profiles profiles;
    PlanOptions options;
    PlannedWorkload planned;
    // By replica, in pipeline order; empty: refused.
    std::vector<const PlannedPipeline*> pipelines() const {
      std::vector<const PlannedPipeline*> plans;
      if (const auto* one = std::get_if<PlannedPipeline>(&planned.outcome)) plans.push_back(one);
      for (size_t d = 0; planned.replicated.has_value() && d < planned.replicated->pipelines.size(); ++d) {
        plans.push_back(&planned.replicated->pipelines[d]);
      }
      return plans;
    }
  };

  absl::StatusOr<Scenario> Make(const Hardware& hardware, std::vector<std::string> overrides, const ScheduleRequest& requested) const {
    // The two schedules that are models alone start from a plan for 1F1B.
    if (requested.schedule.has_value()) {
      overrides.push_back(absl::StrCat("spec.strategy.pipelineSchedule=", requested.schedule->name()));
    }
    Scenario scenario{.options = options_.plan};
    FUSIONLLM_ASSIGN_OR_RETURN(scenario.workload, source_(overrides));
    FUSIONLLM_ASSIGN_OR_RETURN(scenario.profiles, ProfilesOf(hardware, scenario.workload->job.spec.training.precision));
    scenario.options.exclude.insert(scenario.options.exclude.end(), hardware.absent.begin(), hardware.absent.end());
    return scenario;
  }

  absl::Status PlanFor(Scenario& scenario) const {
    FUSIONLLM_ASSIGN_OR_RETURN(scenario.planned, PlanWorkloadDetailed(*scenario.workload, scenario.profiles, scenario.options));
    if (scenario.planned.workload != nullptr) {
      scenario.workload = std::move(scenario.planned.workload);
      scenario.profiles = std::move(scenario.planned.profiles);
    }
    return absl::OkStatus();
  }

  // The step of a scenario that has a plan.
  absl::StatusOr<wire::SimulatedStep> StepOf(const Scenario& scenario, const workload::Workload& workload, const ScheduleRequest& requested,
                                             scheduler::Timeline* timeline) const {
    const std::vector<const PlannedPipeline*> pipelines = scenario.pipelines();
    std::vector<wire::SimulatedStep> steps;
    std::vector<scheduler::Timeline> timelines(pipelines.size());
    std::vector<double> seconds;  // of steps that vary
    for (size_t d = 0; d < pipelines.size(); ++d) {
      FUSIONLLM_ASSIGN_OR_RETURN(const Prepared prepared, Prepare(workload, *pipelines[d], requested, d));
      FUSIONLLM_ASSIGN_OR_RETURN(steps.emplace_back(), StepOf(*pipelines[d], prepared, timeline == nullptr ? nullptr : &timelines[d]));
      if (options_.steps == 1) continue;
      const std::vector<double> own = scheduler::SimulateStepSeconds(prepared.input, prepared.noise, options_.steps, options_.plan.stop);
      seconds.resize(d == 0 ? own.size() : std::min(seconds.size(), own.size()), 0);
      for (size_t i = 0; i < seconds.size(); ++i) seconds[i] = std::max(seconds[i], own[i]);
    }
    if (options_.plan.stop && options_.plan.stop()) return absl::CancelledError("simulating was stopped");
    const auto& replicated = scenario.planned.replicated;
    wire::SimulatedStep step = replicated.has_value() ? ReplicaStep(steps, *replicated) : std::move(steps[0]);
    if (timeline != nullptr) {
      *timeline = replicated.has_value() ? ReplicaTimeline(std::move(timelines), *replicated) : std::move(timelines[0]);
    }
    for (double& s : seconds) s += replicated.has_value() ? replicated->sync_s : 0;
    if (options_.steps > 1) step.spread = SpreadDocument(scheduler::SpreadOf(std::move(seconds)));
    return step;
  }

  absl::StatusOr<wire::WhatIfDocument> WhatIf(const std::string& text, const Hardware& hardware, const Scenario& base,
                                              double before_seconds) const {
    FUSIONLLM_ASSIGN_OR_RETURN(const WhatIfScenario changed, ApplyWhatIf(text, hardware));
    const ScheduleRequest requested = changed.schedule.value_or(options_.schedule);
    absl::StatusOr<Scenario> made = Make(changed.hardware, changed.overrides, requested);
    if (!made.ok()) return absl::Status(made.status().code(), absl::StrCat("what-if '", text, "': ", std::string(made.status().message())));
    Scenario& scenario = *made;
    wire::WhatIfDocument what_if{.change = text, .before_seconds = before_seconds};
    const job::Spec &before = base.workload->job.spec, &after = scenario.workload->job.spec;
    const bool keeps = before.training.recompute == after.training.recompute && before.strategy.stages == after.strategy.stages;
    const absl::StatusOr<wire::SimulatedStep> same =
        keeps ? SamePlan(changed, scenario, base, requested)
              : absl::FailedPreconditionError("stages and recomputation are part of a plan: only a new one shows what others take");
    if (absl::IsFailedPrecondition(same.status()) || absl::IsInvalidArgument(same.status())) {
      what_if.same_plan_reason = std::string(same.status().message());
    } else {
      FUSIONLLM_ASSIGN_OR_RETURN(what_if.same_plan, same);
    }
    FUSIONLLM_RETURN_IF_ERROR(PlanFor(scenario));
    if (scenario.pipelines().empty()) {
      what_if.replanned = std::get<plan::PlanError>(scenario.planned.answer);
      return what_if;
    }
    absl::StatusOr<wire::SimulatedStep> step = StepOf(scenario, *scenario.workload, requested, nullptr);
    if (absl::IsFailedPrecondition(step.status()) || absl::IsInvalidArgument(step.status())) {
      // The plan has too few stages or too little room for that schedule.
      what_if.replanned = plan::PlanError{.reason = "ScheduleNotPossible", .message = std::string(step.status().message())};
      return what_if;
    }
    FUSIONLLM_RETURN_IF_ERROR(step.status());
    what_if.replanned = wire::PlannedStep{std::get<plan::Plan>(scenario.planned.answer), *std::move(step)};
    return what_if;
  }

 private:
  // One pipeline under the schedule that is requested.
  struct Prepared {
    scheduler::PipelineInput input;
    scheduler::NoiseSpec noise;
    StepText text;
  };

  absl::StatusOr<Prepared> Prepare(const workload::Workload& workload, const PlannedPipeline& plan, const ScheduleRequest& requested,
                                   size_t pipeline) const {
    Prepared prepared{.input = plan.pipeline.input, .text = StepTextOf(plan, workload)};
    if (requested.variant == ScheduleVariant::kSplitBackward) {
      FUSIONLLM_ASSIGN_OR_RETURN(prepared.input, scheduler::SplitBackward(plan.pipeline));
      prepared.text.schedule = "1f1b-split";
      prepared.text.runnable = false;
    } else if (requested.variant == ScheduleVariant::kInterleaved) {
      FUSIONLLM_ASSIGN_OR_RETURN(prepared.input, scheduler::Interleave(plan.pipeline, requested.virtual_stages));
      prepared.text.schedule = "interleaved";
      prepared.text.runnable = false;
    }
    prepared.noise = NoiseFor(prepared.text.devices, pipeline);
    return prepared;
  }

  absl::StatusOr<wire::SimulatedStep> StepOf(const PlannedPipeline& plan, const Prepared& prepared, scheduler::Timeline* timeline) const {
    const scheduler::PipelineInput first = scheduler::WithStragglers(prepared.input, prepared.noise, 0);
    const scheduler::LogNormalNoise jitter(prepared.noise, 0);
    scheduler::TimelineRecorder recorder(first, prepared.text.devices);
    const scheduler::Simulation simulation = scheduler::Simulate(
        first, plan.pipeline.shared_links, prepared.noise.jitter > 0 ? &jitter : nullptr, timeline == nullptr ? nullptr : &recorder);
    if (!simulation.complete) return absl::InternalError("the schedule came to a stop before its end");
    if (timeline != nullptr) *timeline = recorder.Finish(simulation.step_s);
    wire::SimulatedStep step = StepDocument(first, simulation, prepared.text, options_.plan.stop);
    for (const scheduler::PlannedLink& link : plan.links) step.loss_cost += link.loss_cost;
    for (const scheduler::TiedExchange& tied : plan.tied) step.loss_cost += tied.loss_cost;
    return step;
  }

  scheduler::NoiseSpec NoiseFor(const std::vector<std::string>& devices, size_t pipeline) const {
    // Pipelines vary each on its own.
    scheduler::NoiseSpec noise{.jitter = options_.jitter, .seed = options_.noise_seed + pipeline};
    for (const NamedStraggler& straggler : stragglers_) {
      const auto found = std::find(devices.begin(), devices.end(), straggler.device);
      if (found == devices.end()) continue;
      noise.stragglers.push_back({static_cast<int>(found - devices.begin()), straggler.factor, straggler.probability});
    }
    return noise;
  }

  // The stages of `base` in the changed scenario: as they run, unless the job itself has changed.
  absl::StatusOr<wire::SimulatedStep> SamePlan(const WhatIfScenario& changed, const Scenario& scenario, const Scenario& base,
                                               const ScheduleRequest& requested) const {
    if (base.planned.replicated.has_value()) return absl::FailedPreconditionError("it has several pipelines, which can only be re-planned");
    const bool other_job = !changed.overrides.empty() || changed.schedule.has_value();
    std::optional<schedule::PipelineSchedule> schedule = std::get<PlannedPipeline>(base.planned.outcome).schedule;
    if (other_job) schedule.reset();  // what its job says, the change included
    const workload::Workload* workload = scenario.workload.get();
    const Profiles* profiles = &scenario.profiles;
    JobAtSize as_planned;  // what runs keeps its micro-batches where the changed job leaves the choice
    if (workload->job.spec.training.micro_batch_size == 0) {
      FUSIONLLM_ASSIGN_OR_RETURN(as_planned, AtMicroBatchSize(*workload, *profiles, base.workload->micro_batch_size));
      workload = as_planned.workload.get();
      profiles = &as_planned.profiles;
    }
    FUSIONLLM_ASSIGN_OR_RETURN(
        PlannedPipeline plan,
        RecostWorkload(*workload, *profiles, scenario.options, base.planned,
                       other_job ? scheduler::RecostMode::kStagesOnly : scheduler::RecostMode::kCodecsAndDepths, schedule));
    Scenario same{.options = scenario.options};
    same.planned.outcome = std::move(plan);
    return StepOf(same, *scenario.workload, requested, nullptr);
  }

  const WorkloadSource& source_;
  const SimulateOptions& options_;
  std::vector<NamedStraggler> stragglers_;
};

}  // namespace

absl::StatusOr<SimulationOutcome> SimulateWorkload(const WorkloadSource& source, const Hardware& hardware, const SimulateOptions& options) {
  Simulation simulation(source, options);
  FUSIONLLM_RETURN_IF_ERROR(simulation.Check(hardware));
  // Mistakes in later changes are reported before the first search.
  for (const std::string& text : options.what_if) FUSIONLLM_RETURN_IF_ERROR(ApplyWhatIf(text, hardware).status());
  FUSIONLLM_ASSIGN_OR_RETURN(Simulation::Scenario base, simulation.Make(hardware, {}, options.schedule));
  FUSIONLLM_RETURN_IF_ERROR(simulation.PlanFor(base));
  SimulationOutcome outcome;
  if (base.pipelines().empty()) {
    outcome.answer = std::get<plan::PlanError>(base.planned.answer);
    return outcome;
  }
  wire::SimulationDocument document{.plan = std::get<plan::Plan>(base.planned.answer)};
  FUSIONLLM_ASSIGN_OR_RETURN(document.step,
                             simulation.StepOf(base, *base.workload, options.schedule, options.timeline ? &outcome.timeline : nullptr));
  for (const std::string& text : options.what_if) {
    FUSIONLLM_ASSIGN_OR_RETURN(document.what_if.emplace_back(), simulation.WhatIf(text, hardware, base, document.step.step_seconds));
  }
  outcome.answer = std::move(document);
  return outcome;
}

}  // namespace fusionllm::planning
