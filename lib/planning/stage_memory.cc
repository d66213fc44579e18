#include "lib/planning/stage_memory.h"

#include <algorithm>

#include "lib/autodiff/training_graph.h"
#include "lib/base/status_macros.h"
#include "lib/estimator/graph_cost.h"

namespace fusionllm::planning {
namespace {

constexpr int64_t kCopiesOfAMessage = 2;  // the encoder's buffer and the transport's

int64_t WorkspaceOf(const runtime::StageProgram& program, const opdag::Graph& graph, const wire::DeviceProfile& device) {
  int64_t largest = 0;
  for (const runtime::Pass* pass : {&program.forward, &program.backward}) {
    for (const runtime::ProgramOp& op : pass->ops) {
      const auto found = device.ops.find(estimator::OpSignature(graph, graph.op(op.op)));
      if (found != device.ops.end()) largest = std::max(largest, found->second.workspace_bytes);
    }
  }
  return largest;
}

std::vector<int64_t> MessageBytes(const scheduler::Plan& plan) {
  std::vector<int64_t> bytes(plan.stages.size(), 0);
  for (const scheduler::PlanLink& link : plan.links) {
    const int64_t moving = kCopiesOfAMessage * (link.forward_wire_bytes + link.backward_wire_bytes);
    bytes[link.src_stage] += moving;
    bytes[link.dst_stage] += moving;
    const int ahead = plan.stages[link.src_stage].in_flight - plan.stages[link.dst_stage].in_flight;
    bytes[link.dst_stage] += link.forward_wire_bytes * std::max(0, ahead);
  }
  for (const scheduler::TiedExchange& exchange : plan.tied) {
    for (const int stage : exchange.stages) {
      bytes[stage] += kCopiesOfAMessage * exchange.bytes * static_cast<int64_t>(exchange.stages.size() - 1);
    }
  }
  return bytes;
}

}  // namespace

int64_t ProcessBytes(int stages) { return (int64_t{9} << 20) + (int64_t{2} << 20) * (stages - 1); }

absl::StatusOr<std::vector<int64_t>> StageMemoryOf(const workload::Workload& workload, const Profiles& profiles,
                                                   const scheduler::Plan& plan, runtime::Recompute recompute) {
  const autodiff::TrainingGraph& training = workload.training;
  std::vector<int> forward_stage(training.forward_ops, 0);
  for (const scheduler::PlanStage& stage : plan.stages) {
    for (const int op : stage.ops) forward_stage[op] = stage.index;
  }
  const std::vector<int> stage_of_op = autodiff::Place(training, forward_stage);
  const int stages = static_cast<int>(plan.stages.size());
  const int state_tensors = static_cast<int>(runtime::StateNames(workload.optimizer).size());
  std::vector<int64_t> bytes = MessageBytes(plan);
  for (const scheduler::PlanStage& stage : plan.stages) {
    FUSIONLLM_ASSIGN_OR_RETURN(const runtime::StageProgram program,
                               runtime::BuildStageProgram(training, stage_of_op, stage.index, stages, recompute));
    bytes[stage.index] += static_cast<int64_t>(runtime::MemoryOf(program, training, stage.in_flight, state_tensors).total());
    bytes[stage.index] += ProcessBytes(stages);
    bytes[stage.index] += WorkspaceOf(program, training.graph, profiles.devices[stage.devices[0]]);
  }
  return bytes;
}

}  // namespace fusionllm::planning
