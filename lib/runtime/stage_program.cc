#include "lib/runtime/stage_program.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "absl/strings/str_format.h"
#include "lib/autodiff/recompute_blocks.h"
#include "lib/base/status_macros.h"
#include "lib/runtime/memory_plan.h"

namespace fusionllm::runtime {
namespace {

using autodiff::TrainingGraph;
using opdag::kNone;
using opdag::Op;
using opdag::OpId;
using opdag::ValueId;

// Forward edges between stages must all point from a lower to a higher position of some order; a plain depth-first search finds a cycle.
absl::Status CheckAcyclic(const TrainingGraph& training, const std::vector<int>& stage_of_op, int stages) {
  std::vector<std::set<int>> next(stages);
  for (OpId op = 0; op < training.forward_ops; ++op) {
    for (const ValueId input : training.graph.op(op).inputs) {
      const int from = stage_of_op[training.graph.value(input).producer];
      if (from != stage_of_op[op]) next[from].insert(stage_of_op[op]);
    }
  }
  std::vector<int> unresolved(stages, 0);
  for (const auto& targets : next) {
    for (const int target : targets) ++unresolved[target];
  }
  std::vector<int> ready;
  for (int s = 0; s < stages; ++s) {
    if (unresolved[s] == 0) ready.push_back(s);
  }
  for (size_t i = 0; i < ready.size(); ++i) {
    for (const int target : next[ready[i]]) {
      if (--unresolved[target] == 0) ready.push_back(target);
    }
  }
  for (int s = 0; s < stages; ++s) {
    if (unresolved[s] > 0) return absl::InvalidArgumentError(absl::StrFormat("the stages form a cycle through stage %d", s));
  }
  return absl::OkStatus();
}

class Builder {
 public:
  Builder(const TrainingGraph& training, const std::vector<int>& stage_of_op, int stage, int stages, Recompute recompute, Reshapes reshapes)
      : training_(training),
        graph_(training.graph),
        stage_of_op_(stage_of_op),
        recompute_(recompute),
        reshapes_(reshapes),
        target_figures_(autodiff::TargetStatistics(training)) {
    program_.stage = stage;
    program_.stages = stages;
  }

  StageProgram Build() {
    FindViews();
    CollectOps();
    CollectParameters();
    program_.forward.receives = Receives(0, training_.forward_ops);
    program_.backward.receives = Receives(training_.forward_ops, static_cast<OpId>(graph_.ops().size()));
    program_.evaluate.receives = program_.forward.receives;
    if (recompute_ == Recompute::kFull) {
      FindStashOfBlocks();
      AddRecomputation();
    } else {
      FindStash();
    }
    PlanStash();
    PlanScratch(program_.forward, /*use_stash=*/true);
    PlanScratch(program_.backward, /*use_stash=*/true);
    PlanScratch(program_.evaluate, /*use_stash=*/false);
    return std::move(program_);
  }

 private:
  bool IsLocal(OpId op) const { return stage_of_op_[op] == program_.stage; }
  bool IsForward(OpId op) const { return op < training_.forward_ops; }
  int LossStage() const { return stage_of_op_[graph_.value(graph_.loss()).producer]; }
  bool OwnsLoss() const { return LossStage() == program_.stage; }
  bool IsTargetFigure(ValueId value) const {
    return std::find(target_figures_.begin(), target_figures_.end(), value) != target_figures_.end();
  }

  void FindViews() {
    place_of_.resize(graph_.values().size());
    std::iota(place_of_.begin(), place_of_.end(), 0);
    views_.assign(graph_.ops().size(), false);
    if (reshapes_ == Reshapes::kCopies) return;
    views_ = autodiff::ViewsOf(training_);
    for (OpId id = 0; id < static_cast<OpId>(views_.size()); ++id) {
      const Op& op = graph_.op(id);
      if (views_[id] && IsLocal(id)) place_of_[op.outputs[0]] = place_of_[op.inputs[0]];
    }
  }

  bool IsView(OpId op) const {
    const ValueId output = graph_.op(op).outputs[0];
    return place_of_[output] != output;
  }

  void CollectOps() {
    for (OpId id = 0; id < static_cast<OpId>(graph_.ops().size()); ++id) {
      if (!IsLocal(id)) continue;
      ProgramOp op{.op = id, .view = IsView(id), .sends = Sends(id)};
      if (IsForward(id)) {
        program_.forward.ops.push_back(op);
        program_.evaluate.ops.push_back(std::move(op));
      } else {
        program_.backward.ops.push_back(std::move(op));
      }
    }
    program_.owns_loss = OwnsLoss();
  }

  CutEdge EdgeOf(ValueId value, int peer) const {
    const ValueId of = training_.differentiates[value];
    return {.value = value, .peer = peer, .gradient = of != kNone, .of = of == kNone ? value : of};
  }

  std::vector<CutEdge> Sends(OpId op) const {
    std::vector<CutEdge> sends;
    for (const ValueId output : graph_.op(op).outputs) {
      std::set<int> peers;
      for (const OpId consumer : graph_.value(output).consumers) {
        if (!IsLocal(consumer)) peers.insert(stage_of_op_[consumer]);
      }
      if (!OwnsLoss() && IsTargetFigure(output)) peers.insert(LossStage());
      for (const int peer : peers) sends.push_back(EdgeOf(output, peer));
    }
    return sends;
  }

  // Values from other stages that local ops in [begin, end) read and that no earlier pass has received.
  std::vector<CutEdge> Receives(OpId begin, OpId end) const {
    std::set<ValueId> wanted;
    for (OpId id = begin; id < end; ++id) {
      if (!IsLocal(id)) continue;
      for (const ValueId input : graph_.op(id).inputs) {
        const OpId producer = graph_.value(input).producer;
        // A forward value that only backward ops read crosses in the forward pass too, so that it is there when they run.
        if (!IsLocal(producer) && (begin == 0 || !IsForward(producer))) wanted.insert(input);
      }
    }
    if (begin == 0) {
      for (OpId id = end; id < static_cast<OpId>(graph_.ops().size()); ++id) {
        if (!IsLocal(id)) continue;
        for (const ValueId input : graph_.op(id).inputs) {
          const OpId producer = graph_.value(input).producer;
          if (IsForward(producer) && !IsLocal(producer)) wanted.insert(input);
        }
      }
    }
    for (const ValueId figure : target_figures_) {
      if (begin == 0 && OwnsLoss() && !IsLocal(graph_.value(figure).producer)) wanted.insert(figure);
    }
    std::vector<CutEdge> edges;
    for (const ValueId value : wanted) edges.push_back(EdgeOf(value, stage_of_op_[graph_.value(value).producer]));
    return edges;
  }

  void CollectParameters() {
    std::set<opdag::ParameterId> used;
    std::vector<std::set<int>> stages_of(graph_.parameters().size());
    for (OpId id = 0; id < static_cast<OpId>(graph_.ops().size()); ++id) {
      for (const opdag::ParameterId parameter : graph_.op(id).parameters) {
        stages_of[parameter].insert(stage_of_op_[id]);
        if (IsLocal(id)) used.insert(parameter);
      }
    }
    program_.parameters.assign(used.begin(), used.end());
    program_.sharers.resize(graph_.parameters().size());
    for (size_t p = 0; p < stages_of.size(); ++p) {
      if (stages_of[p].size() > 1) program_.sharers[p].assign(stages_of[p].begin(), stages_of[p].end());
    }
    for (int use = 0; use < static_cast<int>(training_.uses.size()); ++use) {
      if (IsLocal(training_.uses[use].op)) program_.local_uses.push_back(use);
    }
  }

  bool IsMadeByForwardPass(ValueId value) const { return IsForward(graph_.value(value).producer); }

  // What outlives the forward pass of a micro-batch: values local or received in it that a local backward op reads. Of views: what they
  // show.
  void FindStash() {
    stashed_.assign(graph_.values().size(), false);
    for (const ProgramOp& op : program_.backward.ops) {
      for (const ValueId input : graph_.op(op.op).inputs) {
        if (IsMadeByForwardPass(input)) stashed_[place_of_[input]] = true;
      }
    }
  }

  // Of what local backward ops read, and the ops that make it again: what the stage cannot make (received, or filled into a placeholder)
  // and what crosses from one block to another. The rest is made again, and so is what that takes.
  void FindStashOfBlocks() {
    blocks_ = autodiff::RecomputeBlocksOf(training_, views_);
    stashed_.assign(graph_.values().size(), false);
    runs_again_.assign(training_.forward_ops, false);
    std::vector<ValueId> open;
    std::vector<bool> wanted(graph_.values().size(), false);
    const auto want = [&](ValueId value) {
      const ValueId place = place_of_[value];
      if (!IsMadeByForwardPass(place) || wanted[place]) return;
      wanted[place] = true;
      open.push_back(place);
    };
    for (const ProgramOp& op : program_.backward.ops) {
      for (const ValueId input : graph_.op(op.op).inputs) want(input);
    }
    while (!open.empty()) {
      const ValueId value = open.back();
      open.pop_back();
      const OpId producer = graph_.value(value).producer;
      stashed_[value] = !IsLocal(producer) || graph_.op(producer).kind == opdag::OpKind::kPlaceholder || blocks_.crosses[value];
      if (stashed_[value]) continue;
      runs_again_[producer] = true;
      for (const ValueId input : graph_.op(producer).inputs) want(input);
    }
  }

  void PlanStash() {
    stash_offset_.assign(graph_.values().size(), 0);
    std::vector<Lifetime> lifetimes;
    std::vector<ValueId> ids;
    for (ValueId v = 0; v < static_cast<ValueId>(stashed_.size()); ++v) {
      if (!stashed_[v]) continue;
      lifetimes.push_back({graph_.value(v).type.bytes(), 0, 0});
      ids.push_back(v);
    }
    const MemoryPlan plan = PlanMemory(lifetimes);
    for (size_t i = 0; i < ids.size(); ++i) stash_offset_[ids[i]] = plan.offsets[i];
    program_.stash_bytes_per_slot = plan.arena_bytes;
  }

  // The ops of a block that run again, in their order, and the views between them.
  std::vector<ProgramOp> OpsOfBlockAgain(int block) const {
    std::vector<ProgramOp> ops;
    for (const ProgramOp& op : program_.forward.ops) {
      if (blocks_.of_op[op.op] != block) continue;
      const OpId maker = op.view ? graph_.value(place_of_[graph_.op(op.op).outputs[0]]).producer : op.op;
      if (!IsLocal(maker) || !runs_again_[maker] || blocks_.of_op[maker] != block) continue;
      ops.push_back({.op = op.op, .view = op.view, .recompute = true});
    }
    return ops;
  }

  void AddRecomputation() {
    std::vector<ProgramOp> ops;
    std::vector<bool> made(blocks_.count(), false);
    for (ProgramOp& op : program_.backward.ops) {
      for (const ValueId input : graph_.op(op.op).inputs) {
        const ValueId place = place_of_[input];
        if (!IsMadeByForwardPass(place) || stashed_[place]) continue;
        const int block = blocks_.of_op[graph_.value(place).producer];
        if (made[block]) continue;
        made[block] = true;
        for (ProgramOp& again : OpsOfBlockAgain(block)) ops.push_back(std::move(again));
      }
      ops.push_back(std::move(op));
    }
    program_.backward.ops = std::move(ops);
  }

  int UseOfGradient(ValueId value) const {
    for (const int use : program_.local_uses) {
      if (training_.uses[use].gradient == value) return use;
    }
    return kNone;
  }

  void PlanScratch(Pass& pass, bool use_stash) {
    pass.location.assign(graph_.values().size(), {});
    std::vector<Lifetime> lifetimes;
    std::vector<ValueId> in_scratch;
    std::vector<int> interval_of(graph_.values().size(), kNone);  // by what has the place
    const auto touch = [&](ValueId value, int position) {
      const ValueId place = place_of_[value];
      if (use_stash && stashed_[place]) {
        pass.location[value] = {.arena = Arena::kStash, .offset = stash_offset_[place]};
        return;
      }
      in_scratch.push_back(value);
      if (interval_of[place] == kNone) {
        interval_of[place] = static_cast<int>(lifetimes.size());
        lifetimes.push_back({graph_.value(place).type.bytes(), position, position});
      }
      lifetimes[interval_of[place]].last = position;
    };
    for (const CutEdge& edge : pass.receives) touch(edge.value, 0);
    for (size_t i = 0; i < pass.ops.size(); ++i) {
      const Op& op = graph_.op(pass.ops[i].op);
      for (const ValueId input : op.inputs) touch(input, static_cast<int>(i));
      for (const ValueId output : op.outputs) {
        const int use = UseOfGradient(output);
        if (use != kNone) {
          pass.location[output] = {.arena = Arena::kPerUseGradient, .use = use};
        } else {
          touch(output, static_cast<int>(i));
        }
      }
    }
    // The loss, and how many were right, are read after the pass.
    if (program_.owns_loss) {
      std::vector<ValueId> read = graph_.op(graph_.value(graph_.loss()).producer).outputs;
      read.insert(read.end(), target_figures_.begin(), target_figures_.end());
      for (const ValueId value : read) {
        const int interval = interval_of[place_of_[value]];
        if (interval != kNone) lifetimes[interval].last = static_cast<int>(pass.ops.size());
      }
    }
    const MemoryPlan plan = PlanMemory(lifetimes);
    for (const ValueId value : in_scratch) {
      pass.location[value] = {.arena = Arena::kScratch, .offset = plan.offsets[interval_of[place_of_[value]]]};
    }
    program_.scratch_bytes = std::max(program_.scratch_bytes, plan.arena_bytes);
  }

  const TrainingGraph& training_;
  const opdag::Graph& graph_;
  const std::vector<int>& stage_of_op_;
  const Recompute recompute_;
  const Reshapes reshapes_;
  const std::vector<ValueId> target_figures_;
  std::vector<bool> views_;        // by op
  std::vector<ValueId> place_of_;  // by value: whose place it has; its own but for views
  std::vector<bool> stashed_;      // by what has the place
  std::vector<size_t> stash_offset_;
  autodiff::RecomputeBlocks blocks_;  // with recomputation
  std::vector<bool> runs_again_;      // by forward op
  StageProgram program_;
};

}  // namespace

absl::StatusOr<StageProgram> BuildStageProgram(const TrainingGraph& training, const std::vector<int>& stage_of_op, int stage, int stages,
                                               Recompute recompute, Reshapes reshapes) {
  if (stage < 0 || stage >= stages || stage_of_op.size() != training.graph.ops().size()) {
    return absl::InvalidArgumentError(absl::StrFormat("stage %d of %d, placement of %d ops for a graph of %d", stage, stages,
                                                      stage_of_op.size(), training.graph.ops().size()));
  }
  for (size_t op = 0; op < stage_of_op.size(); ++op) {
    if (stage_of_op[op] < 0 || stage_of_op[op] >= stages) {
      return absl::InvalidArgumentError(
          absl::StrFormat("op '%s' is placed on stage %d of %d", training.graph.op(op).name, stage_of_op[op], stages));
    }
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckAcyclic(training, stage_of_op, stages));
  StageProgram program = Builder(training, stage_of_op, stage, stages, recompute, reshapes).Build();
  if (program.forward.ops.empty()) return absl::InvalidArgumentError(absl::StrFormat("stage %d has no op", stage));
  return program;
}

StageMemory MemoryOf(const StageProgram& program, const TrainingGraph& training, int slots, int state_tensors) {
  StageMemory memory{.stash_per_slot = program.stash_bytes_per_slot, .slots = static_cast<size_t>(slots), .scratch = program.scratch_bytes};
  for (const opdag::ParameterId id : program.parameters) {
    const opdag::Parameter& parameter = training.graph.parameter(id);
    memory.parameters += parameter.type.bytes();
    if (parameter.trainable) memory.optimizer += static_cast<size_t>(state_tensors) * parameter.type.bytes();
  }
  for (const int use : program.local_uses) memory.gradients += training.graph.parameter(training.uses[use].parameter).type.bytes();
  return memory;
}

}  // namespace fusionllm::runtime
