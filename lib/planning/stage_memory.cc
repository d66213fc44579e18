#include "lib/planning/stage_memory.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "lib/autodiff/training_graph.h"
#include "lib/base/status_macros.h"
#include "lib/compression/spec.h"
#include "lib/estimator/graph_cost.h"
#include "lib/kernels/optimizer.h"
#include "lib/scheduler/plan_error_reasons.h"
#include "lib/scheduler/text_format.h"

namespace fusionllm::planning {
namespace {

constexpr int64_t kCopiesOfAMessage = 2;  // the encoder's buffer and the transport's
constexpr int kInMotion = 2;              // messages that these copies are room for

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

std::vector<int64_t> MessageBytes(const scheduler::PlannedPipeline& plan) {
  std::vector<int64_t> bytes(plan.stages.size(), 0);
  for (const scheduler::PlannedLink& link : plan.links) {
    const int64_t moving = kCopiesOfAMessage * (link.forward_wire_bytes + link.backward_wire_bytes);
    // A micro-batch that the sender has under way is a message on one of the two sides, or its gradient: what leaves or arrives faster than
    // the network or the neighbour can take it is queued, all but what is in motion.
    const int64_t queued = std::max(link.forward_wire_bytes, link.backward_wire_bytes);
    const int from = plan.stages[link.src_stage].in_flight, to = plan.stages[link.dst_stage].in_flight;
    const bool one_way = link.backward_wire_bytes == 0;  // labels: no gradient tells the receiver's depth from the sender's
    bytes[link.src_stage] += moving + queued * std::max(0, from - kInMotion);
    bytes[link.dst_stage] += moving + queued * std::max(0, from - (one_way ? kInMotion : to));
  }
  // What a stage sends lies in the transport while what the others send is decoded; a lossy codec keeps a residual.
  for (const scheduler::TiedExchange& exchange : plan.tied) {
    const bool lossy = exchange.codec != compression::ToString(compression::Exact());
    const auto others = static_cast<int64_t>(exchange.stages.size()) - 1;
    const int64_t largest = *std::max_element(exchange.sent_bytes.begin(), exchange.sent_bytes.end());
    for (const int stage : exchange.stages) bytes[stage] += others * (largest + exchange.bytes) + largest + (lossy ? exchange.bytes : 0);
  }
  return bytes;
}

// A GPU keeps tensors and what compresses them, its host the messages.
bool ComputesOnGpu(const wire::DeviceProfile& device) { return device.backend == "cuda" || !device.specification.empty(); }

// What lib/compression/cuda takes of the device's memory beside tensors (codec.h there): as if a link's values went in one message, since a
// plan does not say what each of several takes.
int64_t CodecBytesOnGpu(const scheduler::PlannedPipeline& plan, const scheduler::PlannedStage& stage, bool bf16) {
  constexpr int64_t kBuffers = 3;
  constexpr int64_t kIndexBytes = sizeof(uint32_t);
  constexpr int64_t kFloatBytes = sizeof(float);
  constexpr int64_t kCandidateBytes = 32, kTilesBytes = 256 << 10;  // lib/compression/cuda/select.h: the most that a kept value takes there
  int64_t greatest_sent = 0, greatest_received = 0, widened = 0, kept_values = 0, bytes = 0;
  for (const scheduler::PlannedLink& link : plan.links) {
    const bool sends = link.src_stage == stage.index, receives = link.dst_stage == stage.index;
    if (!sends && !receives) continue;
    greatest_sent = std::max(greatest_sent, sends ? link.forward_wire_bytes : link.backward_wire_bytes);
    greatest_received = std::max(greatest_received, sends ? link.backward_wire_bytes : link.forward_wire_bytes);
    const auto codec = compression::ParseCodecSpec(link.codec);
    if (!codec.ok() || codec->kind == compression::CodecKind::kExact) continue;
    const int64_t elements = link.forward_bytes / (bf16 ? 2 : kFloatBytes);
    if (bf16) widened = std::max(widened, kFloatBytes * elements);
    if (compression::IsSparse(codec->kind)) {
      const auto kept = static_cast<int64_t>(static_cast<double>(elements) / codec->ratio) + 1;
      kept_values = std::max(kept_values, (kFloatBytes + kCandidateBytes) * kept + kTilesBytes);
      bytes += kIndexBytes * kept * stage.in_flight;
    }
    if (codec->error_feedback && sends) bytes += 2 * kFloatBytes * elements;
  }
  return bytes + kBuffers * (greatest_sent + greatest_received) + widened + kept_values;
}

plan::PlanError TooSmall(const scheduler::PlannedStage& stage, int64_t needed, int64_t room) {
  return {.reason = scheduler::plan_errors::kInsufficientMemory,
          .message = absl::StrFormat("stage %d (%s .. %s) needs %s, device %s has %s to give", stage.index, stage.op_names.front(),
                                     stage.op_names.back(), scheduler::SizeText(static_cast<double>(needed)), stage.device_names[0],
                                     scheduler::SizeText(static_cast<double>(room))),
          .shortfall = {.what = "memory_bytes", .needed = static_cast<double>(needed), .available = static_cast<double>(room)}};
}

}  // namespace

int64_t ProcessBytes(int stages) { return (int64_t{9} << 20) + (int64_t{2} << 20) * (stages - 1); }

absl::StatusOr<std::vector<int64_t>> StageMemoryOf(const workload::Workload& workload, const Profiles& profiles,
                                                   const scheduler::PlannedPipeline& plan, runtime::Recompute recompute,
                                                   const std::vector<int64_t>& sync_bytes_in_flight) {
  const autodiff::TrainingGraph& training = workload.training;
  std::vector<int> forward_stage(training.forward_ops, 0);
  for (const scheduler::PlannedStage& stage : plan.stages) {
    for (const int op : stage.ops) forward_stage[op] = stage.index;
  }
  const std::vector<int> stage_of_op = autodiff::AssignStages(training, forward_stage);
  const int stages = static_cast<int>(plan.stages.size());
  const int state_tensors = static_cast<int>(kernels::StateNames(workload.optimizer).size());
  std::vector<int64_t> of_messages = MessageBytes(plan);
  for (size_t s = 0; s < sync_bytes_in_flight.size(); ++s) of_messages[s] += sync_bytes_in_flight[s];
  const auto& values = training.graph.values();
  const bool bf16 =
      std::any_of(values.begin(), values.end(), [](const opdag::Value& value) { return value.type.dtype == tensor::DType::kBF16; });
  std::vector<int64_t> bytes(plan.stages.size(), 0);
  for (const scheduler::PlannedStage& stage : plan.stages) {
    const wire::DeviceProfile& device = profiles.devices[stage.devices[0]];
    FUSIONLLM_ASSIGN_OR_RETURN(const runtime::StageProgram program,
                               runtime::BuildStageProgram(training, stage_of_op, stage.index, stages, recompute));
    bytes[stage.index] += static_cast<int64_t>(runtime::MemoryOf(program, training, stage.in_flight, state_tensors).total());
    bytes[stage.index] += WorkspaceOf(program, training.graph, device);
    bytes[stage.index] += ComputesOnGpu(device) ? CodecBytesOnGpu(plan, stage, bf16) : of_messages[stage.index] + ProcessBytes(stages);
  }
  return bytes;
}

absl::StatusOr<std::optional<plan::PlanError>> FitStageMemory(const workload::Workload& workload, const Profiles& profiles,
                                                              runtime::Recompute recompute, scheduler::PlannedPipeline& plan,
                                                              scheduler::PlanRequest& request, MemoryReduction lowering,
                                                              const std::vector<int64_t>& sync_bytes_in_flight) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<int64_t> exact, StageMemoryOf(workload, profiles, plan, recompute, sync_bytes_in_flight));
  std::optional<plan::PlanError> refusal;
  for (scheduler::PlannedStage& stage : plan.stages) {
    const int device = stage.devices[0];
    const int64_t room = static_cast<int64_t>(static_cast<double>(profiles.devices[device].memory_bytes) * (1 - request.memory_headroom));
    const int64_t model = stage.memory_bytes;
    stage.memory_bytes = exact[stage.index];
    if (exact[stage.index] <= room) continue;
    refusal = TooSmall(stage, exact[stage.index], room);
    const int64_t off = exact[stage.index] - model, over = exact[stage.index] - room;
    int64_t& memory = request.devices[device].memory_bytes;
    const int64_t lowered = lowering == MemoryReduction::kCumulative ? memory - std::max(off, over)
                                                                     : std::min(memory - over, profiles.devices[device].memory_bytes - off);
    memory = std::max<int64_t>(1, lowered);
    request.memory_is_lowered = true;
  }
  return refusal;
}

}  // namespace fusionllm::planning
