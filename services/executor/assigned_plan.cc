#include "services/executor/assigned_plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/autodiff/activation_kinds.h"
#include "lib/base/status_macros.h"
#include "lib/compression/codec_guard.h"
#include "lib/compression/loss_prior.h"
#include "lib/wire/plan_json.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {
namespace {

absl::StatusOr<plan::Plan> ParseAssignedPlan(const v1::Assign& assign, const workload::Workload& workload) {
  FUSIONLLM_ASSIGN_OR_RETURN(plan::PlanResult answer, wire::ParsePlan(assign.plan_document()));
  auto* plan = std::get_if<plan::Plan>(&answer);
  if (plan == nullptr) return absl::InvalidArgumentError("a refusal was assigned as a plan");
  if (assign.stage() < 0 || assign.stage() >= static_cast<int>(plan->stages.size()) ||
      assign.peers_size() != static_cast<int>(plan->stages.size())) {
    return absl::InvalidArgumentError(absl::StrFormat("stage %d with %d peers does not fit a plan of %d stages", assign.stage(),
                                                      assign.peers_size(), plan->stages.size()));
  }
  const int members = std::max(1, assign.replicas_size());
  if (assign.replica() < 0 || assign.replica() >= plan->replicas || members != plan->replicas) {
    return absl::InvalidArgumentError(
        absl::StrFormat("replica %d with %d members does not fit a plan of %d replicas", assign.replica(), members, plan->replicas));
  }
  if (const std::string own = absl::StrFormat("%016x", workload.graph_hash); plan->graph_hash != own) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the plan was made for graph %s, this executor built graph %s from the same job: the builds differ", plan->graph_hash, own));
  }
  if (plan->micro_batches != workload.micro_batches || plan->micro_batch_size != workload.micro_batch_size) {
    return absl::FailedPreconditionError(absl::StrFormat("the plan is of steps of %d micro-batches of %d, the job's have %d of %d",
                                                         plan->micro_batches, plan->micro_batch_size, workload.micro_batches,
                                                         workload.micro_batch_size));
  }
  return std::move(*plan);
}

absl::StatusOr<runtime::LinkCodecs> CodecsOf(const plan::Plan& plan, int replica, bool error_feedback) {
  runtime::LinkCodecs codecs;
  for (const plan::Link& link : plan.links) {
    if (link.backward) continue;  // follows its forward direction
    if (link.src != plan.stages[link.src_stage].devices[replica]) continue;
    FUSIONLLM_ASSIGN_OR_RETURN(compression::CodecSpec spec, compression::ParseCodecSpec(link.codec));
    spec.error_feedback = spec.error_feedback || (error_feedback && spec.kind != compression::CodecKind::kExact);
    codecs[{link.src_stage, link.dst_stage}] = spec;
  }
  return codecs;
}

absl::StatusOr<runtime::TiedCodecs> TiedCodecsOf(const plan::Plan& plan) {
  runtime::TiedCodecs codecs;
  for (const plan::TiedParameter& tied : plan.tied) {
    FUSIONLLM_ASSIGN_OR_RETURN(codecs[tied.parameter], compression::ParseCodecSpec(tied.codec));
  }
  return codecs;
}

// What each link of the pipeline may cost: its share by what the plan's codecs are expected to cost there.
std::map<std::pair<int, int>, double> LinkLossesOf(const plan::Plan& plan, const runtime::LinkCodecs& codecs,
                                                   const std::map<absl::string_view, opdag::ValueId>& ids,
                                                   const runtime::GuardSettings& guard, double max_loss_increase) {
  std::map<std::pair<int, int>, double> costs;
  for (const plan::Link& link : plan.links) {
    const auto codec = codecs.find({link.src_stage, link.dst_stage});
    if (link.backward || codec == codecs.end()) continue;
    double& cost = costs[codec->first];
    for (const std::string& value : link.values) {
      if (const auto id = ids.find(value); id != ids.end()) {
        cost = std::max(cost, compression::ExpectedLossIncrease(codec->second, guard.kinds[static_cast<size_t>(id->second)], 0));
      }
    }
  }
  std::vector<double> expected;
  for (const auto& [link, cost] : costs) expected.push_back(cost);
  // A job that allows its plans more is not held to less: errors tell costs roughly.
  const double nats = std::max(compression::kGuardLossBudget, 2 * max_loss_increase);
  const std::vector<double> shares = compression::SplitLossBudget(nats, expected);
  size_t i = 0;
  for (auto& [link, cost] : costs) cost = shares[i++];
  return costs;
}

// Values that this graph has not are another build's: nothing here sends them.
absl::StatusOr<runtime::GuardSettings> GuardOf(const v1::Assign& assign, const workload::Workload& workload, const plan::Plan& plan,
                                               const runtime::LinkCodecs& codecs) {
  const opdag::Graph& graph = workload.training.graph;
  runtime::GuardSettings guard = {.mode = workload.job.spec.compression.guard, .kinds = autodiff::ActivationKindsOf(workload.training)};
  std::map<absl::string_view, opdag::ValueId> ids;
  for (size_t v = 0; v < graph.values().size(); ++v) ids[graph.values()[v].name] = static_cast<opdag::ValueId>(v);
  for (const v1::CodecLimit& limit : assign.codec_limits()) {
    FUSIONLLM_ASSIGN_OR_RETURN(const compression::CodecSpec codec, compression::ParseCodecSpec(limit.codec()));
    if (const auto id = ids.find(limit.value()); id != ids.end()) guard.limits[{id->second, limit.gradient()}] = codec;
  }
  guard.link_losses = LinkLossesOf(plan, codecs, ids, guard, workload.job.spec.compression.max_loss_increase);
  return guard;
}

absl::StatusOr<std::vector<int>> StageOfOps(const workload::Workload& workload, const plan::Plan& plan) {
  std::vector<int> stage_of_op(workload.training.forward_ops, -1);
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    for (const std::string& name : plan.stages[s].ops) {
      const opdag::OpId op = workload.training.graph.FindOp(name);
      if (op < 0 || op >= workload.training.forward_ops)
        return absl::InvalidArgumentError(absl::StrCat("the plan names an unknown op '", name, "'"));
      stage_of_op[op] = static_cast<int>(s);
    }
  }
  for (int op = 0; op < workload.training.forward_ops; ++op) {
    if (stage_of_op[op] < 0)
      return absl::InvalidArgumentError(absl::StrCat("the plan gives op '", workload.training.graph.op(op).name, "' no stage"));
  }
  return stage_of_op;
}

}  // namespace

absl::StatusOr<AssignedPlan> ReadAssignedPlan(const v1::Assign& assign, const workload::Workload& workload) {
  AssignedPlan assigned;
  FUSIONLLM_ASSIGN_OR_RETURN(assigned.plan, ParseAssignedPlan(assign, workload));
  FUSIONLLM_ASSIGN_OR_RETURN(assigned.stage_of_op, StageOfOps(workload, assigned.plan));
  FUSIONLLM_ASSIGN_OR_RETURN(assigned.codecs, CodecsOf(assigned.plan, assign.replica(), workload.job.spec.compression.error_feedback));
  FUSIONLLM_ASSIGN_OR_RETURN(assigned.tied_codecs, TiedCodecsOf(assigned.plan));
  FUSIONLLM_ASSIGN_OR_RETURN(assigned.guard, GuardOf(assign, workload, assigned.plan, assigned.codecs));
  if (!assign.codec_limit().empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(assigned.codec_limit, compression::ParseCodecSpec(assign.codec_limit()));
  }
  return assigned;
}

}  // namespace fusionllm::services
