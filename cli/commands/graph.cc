// fusionctl graph JOB [-o FILE]
#include <memory>
#include <string>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/commands/command.h"
#include "cli/commands/job_arguments.h"
#include "lib/base/status_macros.h"
#include "lib/opdag/accounting.h"
#include "lib/opdag/drawing.h"
#include "lib/opdag/text.h"

namespace fusionllm::cli {
namespace {

struct GraphFlags {
  PlanArguments plan;
  std::string output;
  bool with_plan = false;
};

absl::StatusOr<std::string> Draw(const std::string& output, const opdag::Graph& graph, const opdag::DrawingOptions& options) {
  if (absl::EndsWith(output, ".svg")) return opdag::DrawSvg(graph, options);
  if (absl::EndsWith(output, ".dot")) return opdag::DrawDot(graph, options);
  if (absl::EndsWith(output, ".dag")) return opdag::PrintGraph(graph);
  return absl::InvalidArgumentError(absl::StrCat("--output ", output, ": the name must end in .svg, .dot or .dag"));
}

// Stage of each op, and what the legend calls the stages.
absl::StatusOr<opdag::DrawingOptions> Colours(const plan::Plan& plan, const opdag::Graph& graph) {
  opdag::DrawingOptions options{.stage_of_op = std::vector<int>(graph.ops().size(), 0)};
  for (const plan::Stage& stage : plan.stages) {
    options.stage_labels.push_back(absl::StrCat("stage ", stage.index, ": ", absl::StrJoin(stage.devices, ", ")));
    for (const std::string& name : stage.ops) {
      const opdag::OpId op = graph.FindOp(name);
      if (op == opdag::kNone) return absl::InternalError(absl::StrCat("the plan has op '", name, "', the graph has not"));
      options.stage_of_op[op] = stage.index;
    }
  }
  return options;
}

absl::StatusOr<int> Graph(const GraphFlags& flags, OutputFormat format) {
  job::FieldLocations places;
  FUSIONLLM_ASSIGN_OR_RETURN(const auto workload, flags.plan.job.Resolve(&places));
  FUSIONLLM_ASSIGN_OR_RETURN(opdag::Graph graph, workload::BuildForwardGraph(workload->job, ""));
  int64_t micro_batch_size = workload->micro_batch_size;
  plan::PlanResult answer;
  if (flags.with_plan) {
    FUSIONLLM_ASSIGN_OR_RETURN(answer, flags.plan.Plan(*workload, places));
    if (const auto* plan = std::get_if<plan::Plan>(&answer)) micro_batch_size = plan->micro_batch_size;
  }
  FUSIONLLM_RETURN_IF_ERROR(opdag::InferTypes(graph, micro_batch_size));
  opdag::DrawingOptions options;
  if (flags.with_plan) {
    if (const auto* refusal = std::get_if<plan::PlanError>(&answer)) {
      flags.plan.PrintPlanError(workload->job.spec, *refusal);
      return kExitInfeasible;
    }
    FUSIONLLM_ASSIGN_OR_RETURN(options, Colours(std::get<plan::Plan>(answer), graph));
  }
  if (flags.output.empty() && format == OutputFormat::kText) {
    absl::PrintF("%s", opdag::PrintGraph(graph));
    return kExitDone;
  }
  if (!flags.output.empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(const std::string text, Draw(flags.output, graph, options));
    FUSIONLLM_RETURN_IF_ERROR(WriteTextFile(flags.output, text));
  }
  const opdag::Footprint weight = opdag::FootprintOf(graph);
  const bool chosen = !flags.with_plan && workload->job.spec.training.micro_batch_size == 0;
  if (format == OutputFormat::kJson) {
    absl::PrintF("{\"ops\":%d,\"parameters\":%d,\"flops\":%.0f,\"activation_bytes\":%d}\n", graph.ops().size(), weight.parameters,
                 weight.flops, weight.activation_bytes);
  } else {
    absl::PrintF("%s: %d ops, %s parameters, %s FLOPs forward for a micro-batch of %d%s\n", flags.output, graph.ops().size(),
                 opdag::FormatCount(static_cast<double>(weight.parameters)), opdag::FormatCount(weight.flops), micro_batch_size,
                 chosen ? " (spec.training.microBatchSize is auto: a plan chooses it, --plan shows which)" : "");
  }
  return kExitDone;
}

}  // namespace

void AddGraph(CLI::App& app, const Globals& globals, Action& action) {
  const auto flags = std::make_shared<GraphFlags>();
  CLI::App* const command = app.add_subcommand("graph", "Draw the graph of a job's model, or write its text form");
  flags->plan.AddTo(*command);
  CLI::Option* const output = command->add_option(
      "-o,--output", flags->output, "file to write: .svg and .dot are drawings, .dag is the text form; omitted: the text form on stdout");
  command->add_flag("--plan", flags->with_plan, "colour the ops by the stage that a plan gives them")->needs(output);
  command->footer("Example:\n  fusionctl graph examples/jobs/gpt2-tiny.yaml -o gpt2.svg");
  command->callback([flags, &globals, &action] {
    action = [flags, &globals] {
      const absl::StatusOr<int> code = Graph(*flags, globals.format);
      return code.ok() ? *code : ReportError(code.status());
    };
  });
}

}  // namespace fusionllm::cli
