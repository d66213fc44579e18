// fusionctl plan JOB
#include "cli/commands/plan.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/commands/command.h"
#include "cli/commands/job_arguments.h"
#include "cli/commands/plan_grid.h"
#include "cli/commands/plan_running.h"
#include "cli/run/run_recorder.h"
#include "cli/run/text_table.h"
#include "lib/base/pluralize.h"
#include "lib/base/status_macros.h"
#include "lib/compression/registry.h"
#include "lib/report/number_format.h"
#include "lib/report/plan_sentences.h"
#include "lib/scheduler/explain.h"
#include "lib/wire/plan_json.h"

namespace fusionllm::cli {
namespace {

// "wte .. block.2.mlp (17)": the first and last op of a stage, data left out, and how many there are.
std::string OpsText(const plan::Stage& stage) {
  const auto& ops = stage.ops;
  return ops.size() < 3 ? absl::StrJoin(ops, ", ") : absl::StrFormat("%s .. %s (%d)", ops.front(), ops.back(), ops.size());
}

// Of the bounds that hold the largest of compute and of links; the document has them all (lib/scheduler/bounds.h).
std::string BoundsText(const plan::Plan& plan) {
  report::StepBounds bounds{.step_s = plan.predicted_step_seconds, .stages = static_cast<int64_t>(plan.stages.size())};
  for (const plan::LowerBound& bound : plan.lower_bounds) {
    if (!bound.holds) continue;
    const bool of_links = bound.name == "cut-bytes" || bound.name == "spanning-tree";
    double& largest = of_links ? bounds.link_s : bounds.compute_s;
    if (bound.name == "search") {
      bounds.is_optimal = true;
    } else {
      largest = std::max(largest, bound.seconds);
    }
  }
  const std::string sentence = report::BoundSentence(bounds);
  return sentence.empty() ? "" : sentence + "\n";
}

// What crosses the link: the codec, or the type of what is sent as it is, and likewise of tied gradients.
std::string CodecText(const plan::Plan& plan, const plan::Link& link) {
  std::vector<std::string> texts;
  const auto add = [&](const std::string& text) {
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
  };
  if (link.bytes > link.tied_bytes || link.tied_bytes == 0) add(link.codec == "fp32" && !link.dtype.empty() ? link.dtype : link.codec);
  for (const plan::TiedParameter& tied : plan.tied) {
    const auto uses = [&](int stage) { return std::find(tied.stages.begin(), tied.stages.end(), stage) != tied.stages.end(); };
    if (link.tied_bytes > 0 && uses(link.src_stage) && uses(link.dst_stage)) add(tied.codec);
  }
  return absl::StrJoin(texts, " + ");
}

// What a link is for: "activations", "gradients", what it carries without a gradient by name, and gradients of tied parameters.
std::string Carries(const plan::Plan& plan, const plan::Link& link) {
  std::vector<std::string> kinds;
  if (link.bytes > link.tied_bytes) {
    const bool answered = std::any_of(plan.links.begin(), plan.links.end(), [&](const plan::Link& other) {
      return other.src == link.dst && other.dst == link.src && other.bytes > other.tied_bytes;
    });
    kinds.push_back(link.backward ? "gradients" : answered ? "activations" : absl::StrJoin(link.values, ", "));
  }
  if (link.tied_bytes > 0) kinds.push_back("tied gradients");
  return absl::StrJoin(kinds, " + ");
}

// Of the codecs of links whose names say too little.
std::vector<std::string> Legends(const plan::Plan& plan) {
  std::vector<std::string> legends;
  for (const compression::Codec* codec : compression::Codecs()) {
    const bool used = std::any_of(plan.links.begin(), plan.links.end(), [&](const plan::Link& link) {
      const auto spec = compression::ParseCodecSpec(link.codec);
      return spec.ok() && spec->kind == codec->traits.kind;
    });
    if (used && *codec->traits.legend != '\0') legends.push_back(codec->traits.legend);
  }
  return legends;
}

// Stages of very different lengths look like a mistake of the planner's; what a shift would cost is among its reasons, for plans that are
// not too long for that (scheduler::ExplainAlternatives).
std::string UnevenStages(const plan::Plan& plan) {
  constexpr double kUneven = 3;
  if (plan.stages.size() < 2 || plan.stages.size() > scheduler::kMaxExplainedStages || !plan.explain.empty()) return "";
  const auto by_busy = [](const plan::Stage& a, const plan::Stage& b) { return a.busy_ratio < b.busy_ratio; };
  const auto [least, most] = std::minmax_element(plan.stages.begin(), plan.stages.end(), by_busy);
  if (!(most->busy_ratio > 0) || most->busy_ratio < kUneven * least->busy_ratio) return "";
  return absl::StrFormat(
      "stage %d works %s of the step and stage %d %s: `fusionctl plan --explain` says what it would cost to move the cuts", most->index,
      report::Percent(most->busy_ratio), least->index, report::Percent(least->busy_ratio));
}

void PrintPlanText(const plan::Plan& plan) {
  absl::PrintF("%s: a step of %s of %d takes %s%s\n", plan.strategy, base::Pluralize(plan.micro_batches, "micro-batch", "micro-batches"),
               plan.micro_batch_size, report::StepSeconds(plan.predicted_step_seconds), ArithmeticPhrase(plan));
  for (const std::string& sentence : report::PlanSentences(plan)) absl::PrintF("%s\n", sentence);
  for (const std::string& warning : report::PlanWarnings(plan)) absl::PrintF("%s\n", warning);
  std::fputs(BoundsText(plan).c_str(), stdout);
  absl::PrintF("schedule %s, recompute %s\n", plan.schedule, plan.recompute == "full" ? "full (by block)" : plan.recompute);
  if (plan.replicas > 1) {
    absl::PrintF(
        "%d pipelines side by side take %s micro-batches each; then adding up their gradients takes %s of the step (%s over links, at the "
        "topology's rates)\n",
        plan.replicas, absl::StrJoin(plan.micro_batches_by_replica, ", "), report::StepSeconds(plan.sync_seconds),
        report::TrafficBytes(static_cast<double>(plan.sync_bytes)));
  }
  absl::PrintF("%s\n", SpecificationNote(plan));
  TextTable stages({">stage", "device", "ops", ">compute/step", ">busy", ">in flight", ">memory"});
  for (const plan::Stage& stage : plan.stages) {
    stages.Row({absl::StrCat(stage.index), absl::StrJoin(stage.devices, ","), OpsText(stage), report::StepSeconds(stage.compute_seconds),
                report::Percent(stage.busy_ratio), absl::StrCat(stage.in_flight),
                report::MemoryBytes(static_cast<double>(stage.memory_bytes))});
  }
  std::fputs(stages.ToString().c_str(), stdout);
  if (!plan.links.empty()) {
    TextTable links({"from", "to", "carries", ">bytes/step", "codec", ">ratio", ">time/step"});
    for (const plan::Link& link : plan.links) {
      links.Row({link.src, link.dst, Carries(plan, link), report::TrafficBytes(static_cast<double>(link.bytes)), CodecText(plan, link),
                 report::Ratio(link.ratio), report::StepSeconds(link.seconds)});
    }
    absl::PrintF("\n%s", links.ToString());
    std::vector<std::string> legends = Legends(plan);
    if (!legends.empty()) legends.push_back("ratio: bytes uncompressed over bytes sent");
    for (const std::string& legend : legends) absl::PrintF("%s\n", legend);
  }
  std::vector<std::string> notes;
  for (const plan::TiedParameter& tied : plan.tied) {
    notes.push_back(absl::StrFormat(
        "%s is used by stages %s; each sends its gradients (%s as %s) to the others when its last backward is done, which takes %s",
        tied.parameter, absl::StrJoin(tied.stages, ", "),
        report::TrafficBytes(static_cast<double>(tied.wire_bytes > 0 ? tied.wire_bytes : tied.bytes)), tied.codec,
        report::StepSeconds(tied.seconds)));
  }
  const char* const where = plan.explain.empty() ? " (`fusionctl plan --explain` says why)" : "";
  if (!plan.left_out.empty()) notes.push_back(absl::StrCat("without a stage: ", absl::StrJoin(plan.left_out, ", "), where));
  if (std::string uneven = UnevenStages(plan); !uneven.empty()) notes.push_back(std::move(uneven));
  notes.insert(notes.end(), plan.explain.begin(), plan.explain.end());
  for (const std::string& note : notes) absl::PrintF("\n%s", note);
  if (!notes.empty()) std::fputs("\n", stdout);
}

// An option that the objective does not read is a mistake, and must not be passed over.
void RefuseIdleOptions(const CLI::App& command, bool grid) {
  static constexpr const char* kOfJobs[] = {"JOB", "--set", "--topology", "--profiles", "--running", "--explain"};
  static constexpr const char* kOfGrids[] = {"--network", "--d-pp", "--d-dp", "--grad-gib", "--act-gib", "--score"};
  const auto refuse = [&](const auto& options, const char* why) {
    for (const char* option : options) {
      if (command.get_option(option)->count() > 0) throw CLI::ValidationError(option, why);
    }
  };
  if (grid) {
    refuse(kOfJobs, "is not read with --objective dt-fm, which plans without a job");
  } else {
    refuse(kOfGrids, "is read with --objective dt-fm alone");
  }
}

}  // namespace

absl::StatusOr<int> PrintPlanOf(const PlanArguments& arguments, OutputFormat format, bool as_run_line) {
  job::FieldLocations places;
  FUSIONLLM_ASSIGN_OR_RETURN(const auto workload, arguments.job.Resolve(&places));
  FUSIONLLM_ASSIGN_OR_RETURN(const plan::PlanResult answer, arguments.Plan(*workload, places));
  const auto* refusal = std::get_if<plan::PlanError>(&answer);
  if (format == OutputFormat::kJson) {
    const std::string text = wire::PrintPlan(answer);
    absl::PrintF("%s\n", as_run_line ? WithField(text, "type", "plan") : text);
  } else if (refusal == nullptr) {
    PrintPlanText(std::get<plan::Plan>(answer));
  }
  if (refusal != nullptr) arguments.PrintPlanError(workload->job.spec, *refusal, /*starts_executors=*/as_run_line);
  return refusal == nullptr ? kExitDone : kExitInfeasible;
}

void AddPlan(CLI::App& app, const Globals& globals, Action& action) {
  const auto arguments = std::make_shared<PlanArguments>();
  CLI::App* const command = app.add_subcommand("plan", "Show how a job would be cut into stages, and how long a step would take");
  const auto grid = std::make_shared<GridArguments>();
  arguments->AddTo(*command);
  const auto running = std::make_shared<RunningArguments>();
  grid->AddTo(*command);
  running->AddTo(*command);
  // Without a job the objective of DT-FM is planned for.
  command->get_option("JOB")->required(false);
  command->add_flag("--explain", arguments->explain, "say why each stage, link and device left out is as it is");
  command->footer(
      "Example:\n  fusionctl plan examples/jobs/gpt2-two-sites.yaml --topology examples/topologies/two-sites.yaml --explain\n"
      "  fusionctl plan job.yaml --topology now.yaml --running plan.json --steps-left 5000\n"
      "  fusionctl plan --objective dt-fm --network scenario.json --d-pp 8 --d-dp 8 --grad-gib 0.65 --act-gib 0.4712");
  command->callback([command, arguments, grid, running, &globals, &action] {
    if (!grid->wanted() && arguments->job.job.empty()) throw CLI::RequiredError("JOB");
    RefuseIdleOptions(*command, grid->wanted());
    action = [arguments, grid, running, &globals] {
      const absl::StatusOr<int> code = grid->wanted()      ? PlanGrid(*grid, arguments->strategy, arguments->seed, globals.format)
                                       : running->wanted() ? PlanRunning(*arguments, *running, globals.format)
                                                           : PrintPlanOf(*arguments, globals.format);
      return code.ok() ? *code : ReportError(code.status());
    };
  });
}

}  // namespace fusionllm::cli
