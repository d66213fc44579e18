#include "cli/commands/plan_running.h"

#include <cstdio>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/commands/option_checks.h"
#include "cli/run/text_table.h"
#include "lib/base/exit_code.h"
#include "lib/base/source_file.h"
#include "lib/base/status_macros.h"
#include "lib/planning/replan_workload.h"
#include "lib/report/number_format.h"
#include "lib/scheduler/replan/replan.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::cli {
namespace {

constexpr int64_t kMaxPlanBytes = 64 << 20;

absl::StatusOr<plan::Plan> ReadPlan(const std::string& path) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string text, base::AsBadInput(base::ReadSmallInput(path, kMaxPlanBytes)));
  absl::StatusOr<plan::PlanResult> answer = wire::ParsePlan(text);
  if (!answer.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(answer.status().message())));
  if (!std::holds_alternative<plan::Plan>(*answer)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a refusal, not a plan"));
  }
  return std::get<plan::Plan>(*std::move(answer));
}

void PrintChange(const wire::ReplanDocument& answer) {
  absl::PrintF("%s: %s\n", std::string(wire::Name(answer.decision)), answer.reason);
  if (answer.moved.empty()) return;
  // Ops that go the same way, as one row.
  TextTable moves({"ops", "from", "to", ">bytes"});
  for (size_t begin = 0, end = 0; begin < answer.moved.size(); begin = end) {
    const wire::MovedOp& first = answer.moved[begin];
    int64_t bytes = 0;
    std::vector<std::string> ops;
    for (end = begin; end < answer.moved.size() && answer.moved[end].from == first.from && answer.moved[end].to == first.to; ++end) {
      bytes += answer.moved[end].bytes;
      ops.push_back(answer.moved[end].op);
    }
    moves.Row({ops.size() < 3 ? absl::StrJoin(ops, ", ") : absl::StrFormat("%s .. %s (%d)", ops.front(), ops.back(), ops.size()),
               first.from.empty() ? "the checkpoint" : first.from, first.to, report::TrafficBytes(static_cast<double>(bytes))});
  }
  absl::PrintF("\n%s", moves.ToString());
}

}  // namespace

void RunningArguments::AddTo(CLI::App& command) {
  const std::string group = "Leaving a running plan";
  CLI::Option* const plan_option =
      command.add_option("--running", plan, "the plan in force (JSON of fusionctl plan): say whether to leave it for another")
          ->group(group);
  command.add_option("--steps-left", steps_left, "steps that the run has still to make")
      ->check(WholeNumber())
      ->needs(plan_option)
      ->group(group);
  command.add_option("--step-seconds", step_seconds, "of the running plan, as measured; without it as predicted")
      ->check(NumberFrom(0))
      ->check(CLI::Range(0.0, scheduler::replan::kMaxReplanSeconds))
      ->needs(plan_option)
      ->group(group);
  command.add_option("--move-seconds", move_seconds, "what any move costs beside its transfers: a checkpoint, a restart")
      ->check(NumberFrom(0))
      ->check(CLI::Range(0.0, scheduler::replan::kMaxReplanSeconds))
      ->needs(plan_option)
      ->capture_default_str()
      ->group(group);
  command.add_option("--min-improvement", min_improvement, "share of a step below which nothing moves")
      ->check(NumberFrom(0))
      ->check(CLI::Range(0.0, 1.0))
      ->needs(plan_option)
      ->capture_default_str()
      ->group(group);
}

absl::StatusOr<int> PlanRunning(const PlanArguments& arguments, const RunningArguments& running, OutputFormat format) {
  if (!arguments.strategy.empty() && arguments.strategy != "op-fence") {
    return absl::InvalidArgumentError(
        absl::StrCat("--strategy ", arguments.strategy, ": a running plan is left for one of op-fence's alone"));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const plan::Plan plan, ReadPlan(running.plan));
  job::FieldLocations places;
  FUSIONLLM_ASSIGN_OR_RETURN(const auto workload, arguments.job.Resolve(&places));
  const absl::StatusOr<planning::Hardware> hardware = arguments.ReadHardware(*workload, places);
  if (const auto refusal = PlanErrorOf(hardware.status())) {
    if (format == OutputFormat::kJson) absl::PrintF("%s\n", wire::PrintReplan(*refusal));
    arguments.PrintPlanError(workload->job.spec, *refusal);
    return kExitInfeasible;
  }
  FUSIONLLM_RETURN_IF_ERROR(hardware.status());
  FUSIONLLM_ASSIGN_OR_RETURN(const planning::Profiles profiles, planning::ProfilesOf(*hardware, workload->job.spec.training.precision));
  FUSIONLLM_ASSIGN_OR_RETURN(
      const wire::ReplanResult answer,
      planning::ReplanWorkload(*workload, profiles, plan, arguments.Options(),
                               {.steps_left = running.steps_left >= 0 ? running.steps_left : workload->job.spec.training.steps,
                                .running_step_s = running.step_seconds,
                                .fixed_s = running.move_seconds,
                                .min_improvement = running.min_improvement}));
  const auto* refusal = std::get_if<plan::PlanError>(&answer);
  if (format == OutputFormat::kJson) {
    absl::PrintF("%s\n", wire::PrintReplan(answer));
  } else if (refusal == nullptr) {
    PrintChange(std::get<wire::ReplanDocument>(answer));
  }
  if (refusal != nullptr) arguments.PrintPlanError(workload->job.spec, *refusal);
  return refusal == nullptr ? kExitDone : kExitInfeasible;
}

}  // namespace fusionllm::cli
