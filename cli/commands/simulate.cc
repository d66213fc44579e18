// fusionctl simulate JOB
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/commands/command.h"
#include "cli/commands/job_arguments.h"
#include "cli/commands/option_checks.h"
#include "cli/run/text_table.h"
#include "lib/base/pluralize.h"
#include "lib/base/status_macros.h"
#include "lib/planning/simulate_workload.h"
#include "lib/planning/step_document.h"
#include "lib/report/html.h"
#include "lib/report/number_format.h"
#include "lib/report/pipeline_drawing.h"
#include "lib/schedule/pipeline_schedule.h"
#include "lib/scheduler/simulation.h"

namespace fusionllm::cli {
namespace {

struct SimulateArguments {
  PlanArguments plan;
  std::string schedule, timeline;
  std::vector<std::string> stragglers, what_if;
  double jitter = 0;
  int steps = 1;
};

// Of a step. Reports and decisions go between the first stage and every other one, and are small: a row each would hide the rest.
constexpr double kShownNorm = 0.005;

void PrintLinks(const wire::SimulatedStep& step) {
  if (!step.links.empty()) {
    TextTable links({"from", "to", "carries", ">bytes/step", ">busy", ">queued/message", ">latency"});
    int64_t small_norms = 0, norm_bytes = 0;
    for (const wire::SimulatedLink& link : step.links) {
      if (link.norm && link.busy_ratio < kShownNorm) {
        ++small_norms;
        norm_bytes += link.bytes;
        continue;
      }
      const double messages = link.messages > 0 ? static_cast<double>(link.messages) : 1;
      links.Row({link.src, link.dst,
                 link.sync       ? "all-reduce"
                 : link.tied     ? "tied gradients"
                 : link.norm     ? "global norm"
                 : link.backward ? "gradients"
                                 : "activations",
                 report::TrafficBytes(static_cast<double>(link.bytes)), report::Percent(link.busy_ratio),
                 report::Seconds(link.queued_seconds / messages), report::Seconds(link.latency_seconds)});
    }
    absl::PrintF("\n%s", links.ToString());
    if (small_norms > 0) {
      absl::PrintF("and the global norm on %s, %s together, each busy less than %s of the step\n", base::Pluralize(small_norms, "link"),
                   report::TrafficBytes(static_cast<double>(norm_bytes)), report::Percent(kShownNorm));
    }
  }
  TextTable shared({"shared by links", ">bytes/step", ">busy"});
  bool any = false;
  for (const wire::SimulatedResource& resource : step.resources) {
    if (absl::StartsWith(resource.name, "port:")) continue;  // a device's own: in the document
    shared.Row({resource.name, report::TrafficBytes(static_cast<double>(resource.bytes)), report::Percent(resource.busy_ratio)});
    any = true;
  }
  if (any) absl::PrintF("\n%s", shared.ToString());
}

void PrintStep(const wire::SimulatedStep& step) {
  const double whole = step.step_seconds > 0 ? step.step_seconds : 1;
  TextTable stages({step.replicas > 1 ? ">stage/pipeline" : ">stage", "device", ">busy", ">forward", ">backward", ">weights", ">codecs",
                    ">update", ">idle", ">in flight"});
  for (const wire::SimulatedStage& stage : step.stages) {
    const auto share = [&](double seconds) { return report::Percent(seconds / whole); };
    stages.Row({step.replicas > 1 ? absl::StrCat(stage.index, "/", stage.replica) : absl::StrCat(stage.index), stage.device,
                report::Percent(stage.busy_ratio), share(stage.forward_seconds), share(stage.backward_seconds),
                share(stage.weights_seconds), share(stage.codec_seconds), share(stage.update_seconds), share(stage.idle_seconds),
                absl::StrCat(stage.peak_in_flight)});
  }
  absl::PrintF("\n%s", stages.ToString());
  PrintLinks(step);
  absl::PrintF("\n%s\n", step.bottleneck);
}

// "gpipe and 1f1b": what jobs may name.
std::string RunnableSchedules() {
  return absl::StrJoin(schedule::All(), " and ",
                       [](std::string* out, const schedule::PipelineSchedule& schedule) { absl::StrAppend(out, schedule.name()); });
}

// "1.92s (+12.0%)": against the step before the change.
std::string Against(double seconds, double before) {
  return absl::StrFormat("%s (%+.1f%%)", report::StepSeconds(seconds), before > 0 ? 100 * (seconds / before - 1) : 0);
}

void PrintWhatIfs(const plan::Plan& planned, const std::vector<wire::WhatIfDocument>& what_ifs) {
  if (what_ifs.empty()) return;
  TextTable table({"what if", ">before", ">same plan", ">re-planned", "limited then by"});
  for (const wire::WhatIfDocument& what_if : what_ifs) {
    const auto* replanned = std::get_if<wire::PlannedStep>(&what_if.replanned);
    const auto limit = [](const wire::SimulatedStep& step) {
      if (step.bottlenecks.empty()) return std::string();
      return step.bottlenecks[0].gain < planning::kMinBottleneckGain ? "nothing alone" : step.bottlenecks[0].name;
    };
    table.Row({what_if.change, report::StepSeconds(what_if.before_seconds),
               what_if.same_plan      ? Against(what_if.same_plan->step_seconds, what_if.before_seconds)
               : planned.replicas > 1 ? "not simulated"
                                      : "cannot run",
               replanned == nullptr ? "refused" : Against(replanned->step.step_seconds, what_if.before_seconds),
               replanned == nullptr ? "" : limit(replanned->step)});
  }
  absl::PrintF("\n%s", table.ToString());
  if (planned.replicas > 1) absl::PrintF("not simulated: of several pipelines a change is only re-planned\n");
  for (const wire::WhatIfDocument& what_if : what_ifs) {
    if (!what_if.same_plan && planned.replicas == 1)
      absl::PrintF("%s: the plan cannot go on: %s\n", what_if.change, what_if.same_plan_reason);
    if (const auto* refusal = std::get_if<plan::PlanError>(&what_if.replanned)) {
      absl::PrintF("%s: no plan (%s): %s\n", what_if.change, refusal->reason, refusal->message);
      continue;
    }
    // Planners seek the time to an equal loss, so the new plan may be the slower one.
    const auto& [plan, replanned] = std::get<wire::PlannedStep>(what_if.replanned);
    if (plan.tokens_per_step != planned.tokens_per_step && planned.tokens_per_second > 0) {
      absl::PrintF("%s: a step then sees %d %s instead of %d: %s %s/s instead of %s\n", what_if.change, plan.tokens_per_step, plan.unit,
                   planned.tokens_per_step, report::Count(plan.tokens_per_second), plan.unit, report::Count(planned.tokens_per_second));
    }
    if (what_if.same_plan && replanned.step_seconds > what_if.same_plan->step_seconds &&
        replanned.loss_cost >= what_if.same_plan->loss_cost) {
      absl::PrintF("%s: the plan above is better than the one that re-planning finds\n", what_if.change);
    }
    if (what_if.same_plan && replanned.loss_cost != what_if.same_plan->loss_cost) {
      absl::PrintF("%s: re-planned, compression is expected to raise the loss by %.2g instead of %.2g\n", what_if.change,
                   replanned.loss_cost, what_if.same_plan->loss_cost);
    }
  }
}

void PrintText(const wire::SimulationDocument& simulation) {
  const wire::SimulatedStep& step = simulation.step;
  absl::PrintF("%s, schedule %s%s: a step of %s of %d takes %s%s\n", simulation.plan.strategy, step.schedule,
               step.virtual_stages > 1 ? absl::StrFormat(" with %d stages a device", step.virtual_stages) : std::string(),
               base::Pluralize(step.micro_batches, "micro-batch", "micro-batches"), simulation.plan.micro_batch_size,
               report::StepSeconds(step.step_seconds), ArithmeticPhrase(simulation.plan));
  std::fputs(SpecificationNote(simulation.plan).c_str(), stdout);
  if (step.replicas > 1) {
    absl::PrintF("%d pipelines side by side; the slowest takes %s, then adding up their gradients %s\n", step.replicas,
                 report::StepSeconds(step.step_seconds - step.sync_seconds), report::StepSeconds(step.sync_seconds));
  } else if (!step.runnable) {
    absl::PrintF("a model only: the runtime runs %s; the plan itself, with %s, is predicted to take %s\n", RunnableSchedules(),
                 simulation.plan.schedule, report::StepSeconds(simulation.plan.predicted_step_seconds));
  }
  if (const auto& spread = step.spread) {
    absl::PrintF("%s: mean %s, median %s, 95%% within %s, from %s to %s; below is the first\n", base::Pluralize(spread->steps, "step"),
                 report::StepSeconds(spread->mean_seconds), report::StepSeconds(spread->p50_seconds),
                 report::StepSeconds(spread->p95_seconds), report::StepSeconds(spread->min_seconds),
                 report::StepSeconds(spread->max_seconds));
  }
  PrintStep(step);
  PrintWhatIfs(simulation.plan, simulation.what_if);
}

constexpr absl::string_view kDrawing = ".svg", kTrace = ".json";

// A name with another ending was meant for a file of a kind that is not written.
CLI::Validator TimelinePath() {
  const auto check = [](const std::string& text) -> std::string {
    const std::filesystem::path path = text;
    const std::string ending = path.extension().string();
    std::error_code ignored;
    if (ending.empty() || ending == kDrawing || ending == kTrace || std::filesystem::is_directory(path, ignored)) return "";
    return absl::StrFormat("'%s' ends in %s; files end in %s or %s, and a folder for both is 'NAME' or 'NAME/'", text, ending, kDrawing,
                           kTrace);
  };
  return CLI::Validator(check, "FILE.svg|FILE.json|FOLDER", "TimelinePath");
}

// A file by its ending, or a folder with both forms.
absl::Status WriteTimeline(const std::string& path, const scheduler::Timeline& timeline, const std::string& title) {
  namespace fs = std::filesystem;
  std::string svg, trace;
  if (absl::EndsWith(path, kDrawing)) {
    svg = path;
  } else if (absl::EndsWith(path, kTrace)) {
    trace = path;
  } else {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) return absl::InvalidArgumentError(absl::StrCat("cannot make the folder ", path, ": ", error.message()));
    svg = (fs::path(path) / "timeline.svg").string();
    trace = (fs::path(path) / "timeline.json").string();
  }
  if (!svg.empty()) FUSIONLLM_RETURN_IF_ERROR(WriteTextFile(svg, report::DrawPipeline(timeline, title)));
  if (!trace.empty()) FUSIONLLM_RETURN_IF_ERROR(WriteTextFile(trace, wire::PrintTrace(timeline)));
  for (const std::string& file : {svg, trace}) {
    if (!file.empty()) absl::FPrintF(stderr, "timeline: %s\n", file);
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Simulate(const SimulateArguments& arguments, OutputFormat format) {
  planning::SimulateOptions options{.plan = arguments.plan.Options(),
                                    .jitter = arguments.jitter,
                                    .stragglers = arguments.stragglers,
                                    .noise_seed = arguments.plan.seed,
                                    .steps = arguments.steps,
                                    .what_if = arguments.what_if,
                                    .timeline = !arguments.timeline.empty()};
  if (!arguments.schedule.empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(options.schedule, planning::ParseSchedule(arguments.schedule));
  }
  job::FieldLocations places;
  FUSIONLLM_ASSIGN_OR_RETURN(const auto workload, arguments.plan.job.Resolve(&places));
  const absl::StatusOr<planning::Hardware> hardware = arguments.plan.ReadHardware(*workload, places);
  if (const auto refusal = PlanErrorOf(hardware.status())) {
    if (format == OutputFormat::kJson) absl::PrintF("%s\n", wire::PrintSimulation(*refusal));
    arguments.plan.PrintPlanError(workload->job.spec, *refusal);
    return kExitInfeasible;
  }
  FUSIONLLM_RETURN_IF_ERROR(hardware.status());
  const auto source = [&](const std::vector<std::string>& overrides) {
    JobArguments job = arguments.plan.job;
    job.overrides.insert(job.overrides.end(), overrides.begin(), overrides.end());
    return job.Resolve();
  };
  FUSIONLLM_ASSIGN_OR_RETURN(const planning::SimulationOutcome outcome, planning::SimulateWorkload(source, *hardware, options));
  if (format == OutputFormat::kJson) absl::PrintF("%s\n", wire::PrintSimulation(outcome.answer));
  if (const auto* refusal = std::get_if<plan::PlanError>(&outcome.answer)) {
    arguments.plan.PrintPlanError(workload->job.spec, *refusal);
    return kExitInfeasible;
  }
  const auto& simulation = std::get<wire::SimulationDocument>(outcome.answer);
  if (format == OutputFormat::kText) PrintText(simulation);
  if (!arguments.timeline.empty()) {
    const std::string title = absl::StrFormat("%s: %s, %s, a step of %s", workload->job.metadata.name, simulation.plan.strategy,
                                              simulation.step.schedule, report::StepSeconds(simulation.step.step_seconds));
    FUSIONLLM_RETURN_IF_ERROR(WriteTimeline(arguments.timeline, outcome.timeline, title));
  }
  return kExitDone;
}

}  // namespace

void AddSimulate(CLI::App& app, const Globals& globals, Action& action) {
  const auto arguments = std::make_shared<SimulateArguments>();
  CLI::App* const command =
      app.add_subcommand("simulate", "Simulate a step of a job as planned: what is busy, what limits it, what changes would do");
  arguments->plan.AddTo(*command);
  command
      ->add_option("--schedule", arguments->schedule,
                   "of the step, instead of the plan's: gpipe or 1f1b, as runs have them; or, known to simulate alone, 1f1b-split,\n"
                   "interleaved (two stages for each device) or interleaved:VIRTUAL_STAGES")
      ->check(OneOf(planning::ScheduleNames(),
                    [](const std::string& text) { return std::string(planning::ParseSchedule(text).status().message()); }));
  command
      ->add_option("--what-if", arguments->what_if,
                   "simulate a change, with the same plan and with a new one (repeatable; several at once: separated by commas):\n"
                   "  'link:paris->tokyo.bandwidth=100Mbit' .latency=80ms; <->: both directions; 'link:paris<->tokyo.duplex=half'\n"
                   "  site:paris.bandwidth=1Gbit .latency=1ms (inside), uplink:paris.egress=50Mbit .ingress=50Mbit\n"
                   "  device:paris-0=absent, .computeScale=0.5, .memory=2Gi, .straggler=3 (times as slow)\n"
                   "  spec.training.microBatchSize=8 (a field of the job), schedule=gpipe")
      ->allow_extra_args(false);
  command
      ->add_option("--jitter", arguments->jitter,
                   "coefficient of variation of every pass and message (log-normal, mean 1), by --seed; 0: none")
      ->check(NumberFrom(0));
  command->add_option("--straggler", arguments->stragglers, "DEVICE:FACTOR[@PROBABILITY]: times as slow, in that share of the steps")
      ->allow_extra_args(false);
  command->add_option("--steps", arguments->steps, "simulate so many steps that vary, and tell mean and percentiles")
      ->check(CLI::Range(1, scheduler::kMaxSimulatedSteps))
      ->capture_default_str();
  command
      ->add_option("--timeline", arguments->timeline,
                   "draw the step: a file .svg, a file .json for Perfetto or chrome://tracing, or a folder for both")
      ->check(TimelinePath());
  command->footer(
      "Example:\n  fusionctl simulate examples/jobs/gpt2-two-sites.yaml --topology examples/topologies/two-sites.yaml \\\n"
      "    --what-if 'link:paris<->tokyo.bandwidth=100Mbit' --what-if device:paris-0=absent --timeline step.svg");
  command->callback([arguments, &globals, &action] {
    action = [arguments, &globals] {
      const absl::StatusOr<int> code = Simulate(*arguments, globals.format);
      return code.ok() ? *code : ReportError(code.status());
    };
  });
}

}  // namespace fusionllm::cli
