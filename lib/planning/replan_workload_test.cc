#include "lib/planning/replan_workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/job/parse.h"
#include "lib/planning/calibrate.h"
#include "lib/planning/plan_workload.h"

namespace fusionllm::planning {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kReplannedJob[] = R"(
apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: test}
spec:
  model: {family: gpt2, preset: tiny, config: {nLayer: 4, nHead: 2, nEmbd: 32, vocabSize: 64, blockSize: 16}}
  data: {kind: tokens, path: [x.bin]}
  training: {steps: 5, globalBatchSize: 16, microBatchSize: 2, sequenceLength: 16}
)";

constexpr char kOneSiteTopology[] = R"(
apiVersion: fusionllm.io/v1alpha1
kind: Topology
metadata: {name: one-site}
spec:
  sites:
  - name: paris
    devices: [{name: paris-0, computeScale: 0.5}, {name: paris-1, computeScale: 0.5}, {name: paris-2, computeScale: 0.5, role: spare}]
    internal: {bandwidth: 1Gbit, latency: 1ms}
)";

class ReplanWorkloadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    workload_ = *workload::Resolve(*job::ParseFusionJob(kReplannedJob, "job.yaml"), "/");
    const auto backend = *kernels::CreateBackend("ref", {});
    wire::DeviceProfile machine = *Calibrate(*workload_, *backend, {.seconds = 0, .min_passes = 1});
    for (auto& [signature, op] : machine.ops) op.seconds = 1e-3;  // whatever it is, so that nothing depends on the machine
    machine.name = "machine";
    profiles_ = *ProfilesFromTopology(*job::ParseTopology(kOneSiteTopology, "topology.yaml"), {machine}, int64_t{4} << 30);
    plan_ = std::get<plan::Plan>(*PlanWorkload(*workload_, profiles_, {}));
    ASSERT_EQ(plan_.stages.size(), 2u);
  }

  Profiles Without(const std::string& name) const {
    Profiles less = profiles_;
    const size_t index = std::find_if(less.devices.begin(), less.devices.end(), [&](const auto& device) { return device.name == name; }) -
                         less.devices.begin();
    less.devices.erase(less.devices.begin() + static_cast<std::ptrdiff_t>(index));
    const job::Topology topology = *job::ParseTopology(kOneSiteTopology, "topology.yaml");
    job::Topology smaller = topology;
    std::erase_if(smaller.spec.sites[0].devices, [&](const auto& device) { return device.name == name; });
    less.network = *NetworkOf(smaller);
    return less;
  }

  wire::ReplanDocument Ask(const Profiles& profiles, const scheduler::replan::ReplanOptions& replan_options) const {
    const auto answer = ReplanWorkload(*workload_, profiles, plan_, {}, replan_options);
    EXPECT_TRUE(answer.ok()) << answer.status();
    if (!answer.ok() || !std::holds_alternative<wire::ReplanDocument>(*answer)) {
      ADD_FAILURE() << (answer.ok() ? wire::PrintReplan(*answer) : "");
      return {};
    }
    return std::get<wire::ReplanDocument>(*answer);
  }

  std::unique_ptr<workload::Workload> workload_;
  Profiles profiles_;
  plan::Plan plan_;
};

TEST_F(ReplanWorkloadTest, StaysWithAPlanThatIsStillTheBest) {
  const wire::ReplanDocument answer = Ask(profiles_, {.steps_left = 1000});
  EXPECT_EQ(answer.decision, wire::ReplanDecision::kStay) << answer.reason;
  EXPECT_THAT(answer.moved, IsEmpty());
  EXPECT_EQ(answer.plan.stages, plan_.stages);
  EXPECT_DOUBLE_EQ(*answer.running_step_seconds, plan_.predicted_step_seconds);
}

TEST_F(ReplanWorkloadTest, TheSpareTakesWhatALostDeviceRan) {
  const std::string lost = plan_.stages[1].devices[0];
  const wire::ReplanDocument answer = Ask(Without(lost), {.steps_left = 1000});
  EXPECT_EQ(answer.decision, wire::ReplanDecision::kMustMove);
  EXPECT_FALSE(answer.running_step_seconds.has_value());
  EXPECT_THAT(answer.reason, HasSubstr(lost + " is not there any more"));
  ASSERT_EQ(answer.moved.size(), plan_.stages[1].ops.size()) << answer.reason;
  EXPECT_THAT(answer.moved, Each(Field(&wire::MovedOp::from, IsEmpty())));
  for (const wire::MovedOp& move : answer.moved) EXPECT_EQ(move.to, "paris-2") << answer.reason;
  EXPECT_GT(answer.moved_bytes, 0);
}

TEST_F(ReplanWorkloadTest, APlanOfAnotherModelIsRefused) {
  plan_.graph_hash = "0000000000000001";
  EXPECT_THAT(std::string(ReplanWorkload(*workload_, profiles_, plan_, {}, {}).status().message()), HasSubstr("plan.graph_hash"));
  EXPECT_THAT(std::string(ExplainPlan(*workload_, profiles_, plan_, {}).status().message()), HasSubstr("plan.graph_hash"));
}

TEST_F(ReplanWorkloadTest, APlanOfOtherMicroBatchesIsRefused) {
  const auto error = [&](const plan::Plan& plan) {
    return std::string(ReplanWorkload(*workload_, profiles_, plan, {}, {}).status().message());
  };
  plan::Plan other = plan_;
  ++other.micro_batches;
  EXPECT_THAT(error(other), HasSubstr("plan.micro_batches: the plan is of steps of 9 micro-batches, the job's have 8"));
  other = plan_;
  ++other.micro_batch_size;
  EXPECT_THAT(error(other), HasSubstr("plan.micro_batch_size"));
}

TEST_F(ReplanWorkloadTest, ExplainsEveryStageOfThePlanThatItIsGiven) {
  const auto sentences = ExplainPlan(*workload_, profiles_, plan_, {});
  ASSERT_TRUE(sentences.ok()) << sentences.status();
  for (const plan::Stage& stage : plan_.stages) {
    EXPECT_THAT(*sentences, ::testing::Contains(HasSubstr("stage " + std::to_string(stage.index) + ": " + stage.devices[0])));
  }
  EXPECT_THAT(std::string(ExplainPlan(*workload_, Without(plan_.stages[0].devices[0]), plan_, {}).status().message()),
              HasSubstr(plan_.stages[0].devices[0] + " may not run a stage"));
}

}  // namespace
}  // namespace fusionllm::planning
