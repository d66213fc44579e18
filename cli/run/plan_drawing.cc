#include "cli/run/plan_drawing.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/opdag/drawing.h"
#include "lib/opdag/graph.h"
#include "lib/workload/workload.h"

namespace fusionllm::cli {

std::string DrawPlanGraph(const job::FusionJob& job, const plan::Plan& plan) {
  absl::StatusOr<opdag::Graph> graph = workload::BuildForwardGraph(job, "/");  // a resolved job has absolute paths
  if (!graph.ok() || graph->ops().size() > kMaxDrawnOps) return "";
  const int64_t asked = job.spec.training.micro_batch_size;
  const int64_t size = plan.micro_batch_size > 0 ? plan.micro_batch_size : asked > 0 ? asked : 1;
  if (!opdag::InferTypes(*graph, size).ok()) return "";
  opdag::DrawingOptions options;
  options.stage_of_op.assign(graph->ops().size(), -1);
  for (const plan::Stage& stage : plan.stages) {
    options.stage_labels.push_back(absl::StrCat("stage ", stage.index, ": ", absl::StrJoin(stage.devices, ", ")));
    for (const std::string& name : stage.ops) {
      const opdag::OpId op = graph->FindOp(name);
      if (op == opdag::kNone) return "";
      options.stage_of_op[op] = stage.index;
    }
  }
  for (const int stage : options.stage_of_op) {
    if (stage < 0) return "";
  }
  const std::string document = opdag::DrawSvg(*graph, options);
  const size_t element = document.find("<svg");
  return element == std::string::npos ? "" : document.substr(element);
}

}  // namespace fusionllm::cli
