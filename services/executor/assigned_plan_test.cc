// What an executor believes of an Assign: a plan of its own job, in which the rank that it is given has a place.
#include "services/executor/assigned_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/compression/codec_guard.h"
#include "lib/job/parse.h"
#include "lib/wire/plan_json.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kJob[] = R"(apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: small}
spec:
  model: {family: mlp, config: {layers: [3072, 16, 16, 10]}}
  data: {kind: shapes}
  training: {steps: 2, globalBatchSize: 8, microBatchSize: 2}
)";
constexpr int kMicroBatches = 4;

std::unique_ptr<workload::Workload> WorkloadOf(const std::string& text) {
  const auto job = job::ParseFusionJob(text, "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  auto workload = workload::Resolve(*job, "/");
  EXPECT_TRUE(workload.ok()) << workload.status();
  return *std::move(workload);
}

class AssignedPlanTest : public ::testing::Test {
 protected:
  // `replicas` pipelines of two stages, a0 > b0, a1 > b1, ..., of which the last takes what is left of the micro-batches.
  plan::Plan Plan(int replicas) const {
    plan::Plan plan{.strategy = "op-fence",
                    .micro_batches = kMicroBatches,
                    .micro_batch_size = 2,
                    .graph_hash = absl::StrFormat("%016x", workload_->graph_hash),
                    .replicas = replicas};
    plan.stages.resize(2);
    for (int op = 0; op < workload_->training.forward_ops; ++op) {
      plan.stages[op < workload_->training.forward_ops / 2 ? 0 : 1].ops.push_back(workload_->training.graph.op(op).name);
    }
    for (int s = 0; s < 2; ++s) {
      plan::Stage& stage = plan.stages[s];
      stage.index = s;
      for (int r = 0; r < replicas; ++r) stage.devices.push_back(absl::StrCat(s == 0 ? "a" : "b", r));
      if (replicas == 1) continue;
      stage.by_replica.resize(replicas);
      for (int r = 0; r < replicas; ++r) stage.chain.push_back(r);
      stage.chunk_bytes = 65536;
    }
    for (int r = 0; r < replicas; ++r) {
      if (replicas > 1) plan.micro_batches_by_replica.push_back(r + 1 < replicas ? 1 : kMicroBatches - r);
      const plan::Link forward{.src = absl::StrCat("a", r), .dst = absl::StrCat("b", r), .src_stage = 0, .dst_stage = 1};
      plan.links.push_back(forward);
      plan.links.back().codec = r == 1 ? "int8" : "fp32";  // each replica has links, and so codecs, of its own
      plan.links.push_back({.src = forward.dst, .dst = forward.src, .src_stage = 1, .dst_stage = 0, .backward = true});
      plan.links.back().codec = plan.links[plan.links.size() - 2].codec;
    }
    return plan;
  }

  static v1::Assign Assign(const plan::PlanResult& plan, int stage, int replica, int replicas, int peers = 2) {
    v1::Assign assign;
    assign.set_epoch(1);
    assign.set_plan_document(wire::PrintPlan(plan));
    assign.set_stage(stage);
    assign.set_replica(replica);
    for (int s = 0; s < peers; ++s) assign.add_peers()->set_name(absl::StrCat(s == 0 ? "a" : "b", replica));
    for (int r = 0; r < replicas && replicas > 1; ++r) assign.add_replicas()->set_name(absl::StrCat(stage == 0 ? "a" : "b", r));
    return assign;
  }

  void ExpectRefusal(const v1::Assign& assign, absl::StatusCode code, const std::string& words) const {
    const absl::Status status = ReadAssignedPlan(assign, *workload_).status();
    EXPECT_EQ(status.code(), code) << words << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }

  const std::unique_ptr<workload::Workload> workload_ = WorkloadOf(kJob);
};

TEST_F(AssignedPlanTest, EveryRankGetsTheCodecsOfItsOwnReplica) {
  for (int replica = 0; replica < 3; ++replica) {
    for (int stage = 0; stage < 2; ++stage) {
      const auto assigned = ReadAssignedPlan(Assign(Plan(3), stage, replica, 3), *workload_);
      ASSERT_TRUE(assigned.ok()) << assigned.status();
      EXPECT_EQ(assigned->plan.MicroBatchesOf(replica), replica == 2 ? 2 : 1);
      EXPECT_EQ(assigned->plan.FirstMicroBatchOf(replica), replica);
      ASSERT_THAT(assigned->codecs, SizeIs(1)) << "the other pipelines' are none of its business";
      const auto expected = replica == 1 ? compression::CodecKind::kInt8 : compression::CodecKind::kExact;
      EXPECT_EQ((assigned->codecs.at({0, 1}).kind), expected) << "replica " << replica;
      EXPECT_THAT(assigned->stage_of_op, SizeIs(workload_->training.forward_ops));
      EXPECT_THAT(assigned->stage_of_op, Each(::testing::AnyOf(0, 1)));
      EXPECT_EQ(assigned->stage_of_op.front(), 0);
      EXPECT_EQ(assigned->stage_of_op.back(), 1);
    }
  }
}

TEST_F(AssignedPlanTest, TheGuardKnowsTheGraphAndWhatTheRunHasFoundOut) {
  v1::Assign assign = Assign(Plan(1), 0, 0, 1);
  auto assigned = ReadAssignedPlan(assign, *workload_);
  ASSERT_TRUE(assigned.ok()) << assigned.status();
  EXPECT_EQ(assigned->guard.mode, compression::GuardMode::kAuto) << "unless the job says otherwise";
  EXPECT_THAT(assigned->guard.limits, ::testing::IsEmpty());
  EXPECT_EQ(assigned->codec_limit, std::nullopt);
  const opdag::Graph& graph = workload_->training.graph;
  const opdag::ValueId logits = graph.op(graph.FindOp("layers.2")).outputs[0];
  EXPECT_EQ(assigned->guard.kinds.at(static_cast<size_t>(logits)), opdag::ActivationKind::kLossInput);

  for (const char* value : {"layers.2", "of another build"}) {
    v1::CodecLimit& limit = *assign.add_codec_limits();
    limit.set_value(value);
    limit.set_gradient(true);
    limit.set_codec("fp16");
  }
  assign.set_codec_limit("int8");
  assigned = ReadAssignedPlan(assign, *workload_);
  ASSERT_TRUE(assigned.ok()) << assigned.status();
  ASSERT_THAT(assigned->guard.limits, SizeIs(1));
  EXPECT_EQ(ToString(assigned->guard.limits.at({logits, true})), "fp16");
  EXPECT_EQ(assigned->codec_limit, compression::CodecSpec{.kind = compression::CodecKind::kInt8});
  assign.set_codec_limit("zip");
  ExpectRefusal(assign, absl::StatusCode::kInvalidArgument, "zip");
}

TEST_F(AssignedPlanTest, WhatLinksMayCostIsSharedByWhatTheirCodecsAreExpectedTo) {
  // Two hidden layers cross, then what the loss reads, which no codec of fewer than 16 bits takes.
  plan::Plan plan = Plan(1);
  plan.stages.resize(4);
  plan.links.clear();
  const std::vector<std::string> crossing = {"layers.0", "layers.1", "layers.2"};
  for (int s = 0; s < 4; ++s) {
    plan.stages[s] = plan::Stage();
    plan.stages[s].index = s;
    plan.stages[s].devices = {absl::StrCat("d", s)};
    if (s == 3) break;
    plan.links.push_back({.src = absl::StrCat("d", s), .dst = absl::StrCat("d", s + 1), .src_stage = s, .dst_stage = s + 1});
    plan.links.back().codec = "topk@30:int8";
    plan.links.back().values = {crossing[s], "of another build"};
  }
  for (int op = 0; op < workload_->training.forward_ops; ++op) {
    const std::string& name = workload_->training.graph.op(op).name;
    const size_t stage = name == "loss" ? 3 : name == "layers.2" ? 2 : name.starts_with("layers.1") ? 1 : 0;
    plan.stages[stage].ops.push_back(name);
  }
  const auto losses_of = [&](const workload::Workload& workload) {
    const auto assigned = ReadAssignedPlan(Assign(plan, 1, 0, 1, /*peers=*/4), workload);
    EXPECT_TRUE(assigned.ok()) << assigned.status();
    return assigned.ok() ? assigned->guard.link_losses : std::map<std::pair<int, int>, double>();
  };
  constexpr double kHalf = compression::kGuardLossBudget / 2;
  EXPECT_THAT(losses_of(*workload_), ::testing::ElementsAre(std::pair(std::pair(0, 1), kHalf), std::pair(std::pair(1, 2), kHalf),
                                                            std::pair(std::pair(2, 3), 0.0)));
  const auto generous = WorkloadOf(absl::StrCat(kJob, "  compression: {maxLossIncrease: 0.5}\n"));
  plan.graph_hash = absl::StrFormat("%016x", generous->graph_hash);
  EXPECT_THAT(losses_of(*generous), ::testing::Contains(std::pair(std::pair(0, 1), 0.5))) << "half of twice what plans may cost";
}

TEST_F(AssignedPlanTest, OnePipelineNeedsNoListOfReplicas) {
  const auto assigned = ReadAssignedPlan(Assign(Plan(1), 1, 0, 1), *workload_);
  ASSERT_TRUE(assigned.ok()) << assigned.status();
  EXPECT_EQ(assigned->plan.MicroBatchesOf(0), kMicroBatches);
}

TEST_F(AssignedPlanTest, RejectsRankOutsideThePlan) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  ExpectRefusal(Assign(Plan(2), 0, 2, 2), kInvalid, "replica 2 with 2 members does not fit a plan of 2 replicas");
  ExpectRefusal(Assign(Plan(2), 0, -1, 2), kInvalid, "replica -1 with 2 members");
  ExpectRefusal(Assign(Plan(2), 0, 1, 3), kInvalid, "replica 1 with 3 members does not fit a plan of 2 replicas");
  ExpectRefusal(Assign(Plan(2), 0, 0, 1), kInvalid, "replica 0 with 1 members does not fit a plan of 2 replicas");
  ExpectRefusal(Assign(Plan(1), 0, 1, 2), kInvalid, "replica 1 with 2 members does not fit a plan of 1 replicas");
  ExpectRefusal(Assign(Plan(2), 2, 0, 2), kInvalid, "stage 2 with 2 peers does not fit a plan of 2 stages");
  ExpectRefusal(Assign(Plan(2), -1, 0, 2), kInvalid, "stage -1 with 2 peers");
  ExpectRefusal(Assign(Plan(2), 0, 0, 2, /*peers=*/4), kInvalid, "stage 0 with 4 peers");
}

TEST_F(AssignedPlanTest, APlanThatSharesTheBatchOutWronglyIsNoPlan) {
  plan::Plan plan = Plan(2);
  plan.micro_batches_by_replica = {1, 4};
  ExpectRefusal(Assign(plan, 0, 0, 2), absl::StatusCode::kInvalidArgument, "do not add up to the 4 micro-batches");
  plan = Plan(2);
  plan.stages[1].chain = {0, 0};
  ExpectRefusal(Assign(plan, 0, 0, 2), absl::StatusCode::kInvalidArgument, "is no order of the 2 replicas");
}

TEST_F(AssignedPlanTest, APlanOfAnotherGraphOrAnotherBatchIsNotForThisExecutor) {
  constexpr auto kOther = absl::StatusCode::kFailedPrecondition;
  plan::Plan plan = Plan(2);
  plan.graph_hash = "0123456789abcdef";
  ExpectRefusal(Assign(plan, 0, 0, 2), kOther, "the plan was made for graph 0123456789abcdef");
  plan = Plan(2);
  plan.micro_batches = 6;
  plan.micro_batches_by_replica = {3, 3};
  ExpectRefusal(Assign(plan, 0, 0, 2), kOther, "the plan is of steps of 6 micro-batches of 2, the job's have 4 of 2");
  plan = Plan(2);
  plan.micro_batch_size = 3;
  ExpectRefusal(Assign(plan, 0, 0, 2), kOther, "4 micro-batches of 3");
}

TEST_F(AssignedPlanTest, OpsMustBeTheJobsAllOfThem) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  plan::Plan plan = Plan(2);
  plan.stages[0].ops.push_back("another.op");
  ExpectRefusal(Assign(plan, 0, 0, 2), kInvalid, "the plan names an unknown op 'another.op'");
  plan = Plan(2);
  const std::string last = plan.stages[1].ops.back();
  plan.stages[1].ops.pop_back();
  ExpectRefusal(Assign(plan, 0, 0, 2), kInvalid, absl::StrCat("the plan gives op '", last, "' no stage"));
  ExpectRefusal(Assign(plan::PlanError{.reason = "TooFewExecutors"}, 0, 0, 2), kInvalid, "a refusal was assigned as a plan");
}

TEST_F(AssignedPlanTest, ErrorFeedbackIsForLossyCodecsAlone) {
  const auto lossy = WorkloadOf(absl::StrCat(kJob, "  compression: {policy: uniform, codec: int8, errorFeedback: true}\n"));
  plan::Plan plan = Plan(1);
  plan.graph_hash = absl::StrFormat("%016x", lossy->graph_hash);
  for (const char* codec : {"int8", "fp32"}) {
    for (plan::Link& link : plan.links) link.codec = codec;
    const auto assigned = ReadAssignedPlan(Assign(plan, 0, 0, 1), *lossy);
    ASSERT_TRUE(assigned.ok()) << assigned.status();
    EXPECT_EQ((assigned->codecs.at({0, 1}).error_feedback), codec == std::string("int8")) << codec;
  }
}

}  // namespace
}  // namespace fusionllm::services
