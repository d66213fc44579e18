#include "lib/scheduler/replan/replan.h"

#include <algorithm>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/scheduler/planner.h"
#include "lib/scheduler/replan/repair.h"
#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler::replan {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Decision = ReplanResult::Decision;

// Two sites of three devices, 24 ops of 10 ms, 1 MB between them.
PlanRequest TwoSites() {
  PlanRequest request = testing::Chain({.ops = 24, .op_s = 0.01, .cut_bytes = 100'000}, 8);
  for (const char* site : {"paris", "tokyo"}) {
    for (double scale : {1.0, 1.5, 2.0}) testing::AddDevice(request, site, scale);
  }
  testing::LinkSites(request, 125e6, 1e-3, 12.5e6, 0.02);
  return request;
}

PlannedPipeline PlanOf(const PlanRequest& request) { return std::get<PlannedPipeline>(*MakePlan("op-fence", request)); }

RunningPlan Running(const PlannedPipeline& plan) { return StagesOf(plan); }

// The request without a device and its links.
PlanRequest Without(const PlanRequest& request, const std::string& name) {
  PlanRequest less = request;
  const auto gone = std::find_if(less.devices.begin(), less.devices.end(), [&](const Device& d) { return d.name == name; });
  const int index = static_cast<int>(gone - less.devices.begin());
  less.devices.erase(gone);
  std::erase_if(less.links, [&](const Link& link) { return link.src == index || link.dst == index; });
  for (Link& link : less.links) {
    link.src -= link.src > index;
    link.dst -= link.dst > index;
  }
  return less;
}

ReplanResult Answer(const PlanRequest& now, const RunningPlan& running, const ReplanOptions& options) {
  const absl::StatusOr<ReplanOutcome> outcome = Replan(now, running, options);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  if (!outcome.ok()) return {};
  EXPECT_TRUE(std::holds_alternative<ReplanResult>(*outcome)) << std::get<PlanError>(*outcome).message;
  return std::holds_alternative<ReplanResult>(*outcome) ? std::get<ReplanResult>(*outcome) : ReplanResult{};
}

std::set<std::string> NamesOf(const Migration& migration) {
  std::set<std::string> names;
  for (const MovedOp& move : migration.moved) names.insert(move.op);
  return names;
}

TEST(ReplanTest, StaysWhenNothingHasChanged) {
  const PlanRequest request = TwoSites();
  const PlannedPipeline plan = PlanOf(request);
  const ReplanResult answer = Answer(request, Running(plan), {.steps_left = 1'000'000});
  EXPECT_EQ(answer.decision, Decision::kStay) << answer.reason;
  EXPECT_THAT(answer.migration.moved, IsEmpty());
  EXPECT_EQ(answer.plan.stages, plan.stages);
  EXPECT_DOUBLE_EQ(*answer.running_step_s, plan.predicted_step_s);
}

// Two branches side by side, in an order of ops that is not the planner's own.
TEST(ReplanTest, APlanAlongAnotherOrderOfItsOpsCanGoOn) {
  PlanRequest request{.micro_batches = 4};
  request.ops = {{.name = "data", .placeholder = true}};
  for (const char* name : {"in", "a0", "a1", "b0", "b1", "join"})
    request.ops.push_back({.name = name, .forward_s = {0.1}, .backward_s = {0.2}});
  const auto edge = [&](int from, std::vector<int> to) {
    request.values.push_back(
        {.name = request.ops[from].name, .producer = from, .consumers = std::move(to), .bytes = 1'000, .differentiable = from > 0});
  };
  edge(0, {1});
  edge(1, {2, 4});
  edge(2, {3});
  edge(3, {6});
  edge(4, {5});
  edge(5, {6});
  for (int d = 0; d < 2; ++d) testing::AddDevice(request, "lab", 1);
  testing::LinkSites(request, 125e6, 1e-4, 125e6, 1e-4);
  const RunningPlan running = {{"lab-0", {"data", "in", "a0", "b0"}}, {"lab-1", {"a1", "b1", "join"}}};
  const ReplanResult answer = Answer(request, running, {.steps_left = 10, .fixed_s = 1e6});
  EXPECT_EQ(answer.decision, Decision::kStay) << answer.reason;
  EXPECT_THAT(answer.plan.stages[0].op_names, ::testing::UnorderedElementsAre("data", "in", "a0", "b0"));
}

TEST(ReplanTest, ALostDeviceIsReplacedByItsSpareAndOnlyItsOpsMove) {
  PlanRequest request = TwoSites();
  request.devices[2].spare = true;  // paris-2, whose site has the fast links
  request.devices[2].time_scale = 1;
  const PlannedPipeline plan = PlanOf(request);
  ASSERT_GT(plan.stages.size(), 1u);
  for (const PlannedStage& stage : plan.stages) {
    const std::string& lost = stage.device_names[0];
    if (lost.substr(0, 5) != "paris") continue;
    const ReplanResult answer = Answer(Without(request, lost), Running(plan), {.steps_left = 10});
    EXPECT_EQ(answer.decision, Decision::kMustMove);
    EXPECT_FALSE(answer.running_step_s.has_value());
    EXPECT_THAT(answer.reason, HasSubstr(lost + " is not there any more"));
    ASSERT_FALSE(answer.migration.moved.empty());
    const std::set<std::string> lost_ops(stage.op_names.begin(), stage.op_names.end());
    for (const MovedOp& move : answer.migration.moved) {
      EXPECT_EQ(move.from.empty(), lost_ops.contains(move.op)) << move.op;
      EXPECT_NE(move.to, lost);
    }
    for (const std::string& op : lost_ops) EXPECT_TRUE(NamesOf(answer.migration).contains(op)) << op;
  }
}

TEST(ReplanTest, AStragglerGivesOpsToItsNeighboursOnceThatPays) {
  PlanRequest request = TwoSites();
  const PlannedPipeline plan = PlanOf(request);
  ASSERT_GT(plan.stages.size(), 2u);
  const int slow = plan.stages[1].devices[0];
  request.devices[slow].time_scale *= 3;
  const ReplanResult few = Answer(request, Running(plan), {.steps_left = 1, .fixed_s = 20});
  EXPECT_EQ(few.decision, Decision::kStay);
  EXPECT_THAT(few.reason, HasSubstr("worth its move"));
  const ReplanResult many = Answer(request, Running(plan), {.steps_left = 10'000, .fixed_s = 20});
  EXPECT_EQ(many.decision, Decision::kMove) << many.reason;
  EXPECT_LT(many.plan.predicted_step_s, *many.running_step_s);
  EXPECT_GT(many.gain_s, 0);
  EXPECT_FALSE(many.migration.moved.empty());
}

TEST(ReplanTest, TheDearerTheMoveTheFewerOpsChangeTheirDevice) {
  PlanRequest request = TwoSites();
  for (OpNode& op : request.ops) op.parameter_bytes *= 20;
  const PlannedPipeline plan = PlanOf(request);
  request.devices[plan.stages[1].devices[0]].time_scale *= 3;
  const ReplanResult long_run = Answer(request, Running(plan), {.steps_left = 1'000'000});
  const ReplanResult short_run = Answer(request, Running(plan), {.steps_left = 60});
  ASSERT_EQ(long_run.decision, Decision::kMove) << long_run.reason;
  ASSERT_EQ(short_run.decision, Decision::kMove) << short_run.reason;
  EXPECT_LE(short_run.migration.bytes, long_run.migration.bytes);
  EXPECT_LE(short_run.migration.transfer_s, long_run.migration.transfer_s);
}

TEST(ReplanTest, FiguresAloneAreThoseOfTheRunningStagesOnTheHardwareOfNow) {
  PlanRequest request = TwoSites();
  const PlannedPipeline plan = PlanOf(request);
  request.max_executors = 1;  // a spare that the job holds back has a stage already
  for (Device& device : request.devices) device.time_scale *= 2;
  const ReplanResult answer = Answer(request, Running(plan), {.steps_left = 1'000'000, .figures_only = true});
  EXPECT_EQ(answer.decision, Decision::kStay);
  EXPECT_EQ(StagesOf(answer.plan), Running(plan));
  EXPECT_GT(answer.plan.predicted_step_s, 1.5 * plan.predicted_step_s);
  EXPECT_DOUBLE_EQ(answer.plan.stages[0].forward_s, 2 * plan.stages[0].forward_s);
}

TEST(ReplanTest, ThereAreNoFiguresOfAPlanThatCannotRun) {
  const PlanRequest request = TwoSites();
  const PlannedPipeline plan = PlanOf(request);
  const std::string lost = plan.stages[0].device_names[0];
  const auto outcome = Replan(Without(request, lost), Running(plan), {.figures_only = true});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_TRUE(std::holds_alternative<PlanError>(*outcome));
  EXPECT_THAT(std::get<PlanError>(*outcome).message, HasSubstr(lost + " is not there any more"));
}

TEST(ReplanTest, AGainBelowTheLeastMovesNothing) {
  PlanRequest request = TwoSites();
  const PlannedPipeline plan = PlanOf(request);
  request.devices[plan.stages[0].devices[0]].time_scale *= 1.04;
  const ReplanResult answer = Answer(request, Running(plan), {.steps_left = 1'000'000'000, .min_improvement = 0.05});
  EXPECT_EQ(answer.decision, Decision::kStay) << answer.reason;
  EXPECT_EQ(answer.plan.stages.size(), plan.stages.size());
}

TEST(ReplanTest, ADeviceThatJoinsGetsOpsIfEnoughStepsAreLeft) {
  const PlanRequest all = TwoSites();
  const PlanRequest before = Without(all, "paris-0");
  const PlannedPipeline plan = PlanOf(before);
  const ReplanResult late = Answer(all, Running(plan), {.steps_left = 0});
  EXPECT_EQ(late.decision, Decision::kStay);
  const ReplanResult early = Answer(all, Running(plan), {.steps_left = 100'000, .fixed_s = 10});
  EXPECT_EQ(early.decision, Decision::kMove) << early.reason;
  const auto joined = [](const MovedOp& move) { return move.to == "paris-0"; };
  EXPECT_TRUE(std::any_of(early.migration.moved.begin(), early.migration.moved.end(), joined));
}

TEST(ReplanTest, AMeasuredStepMakesTheSameStagesWithOtherCodecsAPlanOfItsOwn) {
  const PlanRequest request = TwoSites();
  const PlannedPipeline plan = PlanOf(request);
  const ReplanOptions options{.steps_left = 1000, .running_step_s = 2 * plan.predicted_step_s, .fixed_s = 5};
  const ReplanResult answer = Answer(request, Running(plan), options);
  EXPECT_EQ(answer.decision, Decision::kMove);
  EXPECT_THAT(answer.migration.moved, IsEmpty());
  EXPECT_DOUBLE_EQ(answer.gain_s, 1000 * plan.predicted_step_s - 5);
}

// One device alone takes longer steps than three whose links lose much, and fewer of them.
TEST(ReplanTest, AMoveThatGainsStepsAndNotTheirTimeSaysSo) {
  PlanRequest request = testing::Chain({.ops = 4, .op_s = 0.1, .cut_bytes = 1'000'000}, 4);
  testing::AddDevice(request, "paris", 1);
  testing::AddDevice(request, "paris", 1);
  testing::AddDevice(request, "paris", 1);
  testing::LinkSites(request, 1e7, 1e-3, 1e6, 1e-2);
  const CodecLevelPolicy ladder({{"topk", 100, 100, 0.5}});
  request.codec_policy = &ladder;
  PlanRequest all = request;
  all.use_all_devices = true;
  const RunningPlan running = Running(PlanOf(all));
  ASSERT_EQ(running.size(), 3u);
  const ReplanResult answer = Answer(request, running, {.steps_left = 1'000'000});
  ASSERT_EQ(answer.decision, Decision::kMove) << answer.reason;
  ASSERT_GT(answer.plan.predicted_step_s, *answer.running_step_s) << "this test would say nothing";
  EXPECT_THAT(answer.reason, HasSubstr(", but to an equal loss "));
  EXPECT_THAT(answer.reason, HasSubstr("raise the loss by 0 instead of 1"));
}

TEST(ReplanTest, TransfersTakeAsLongAsTheBusiestLinkOrResource) {
  // Two ops of 4 MB (weights 1, optimizer 2, gradients stay) leave paris-0 for tokyo-0, one lost op comes from the checkpoint.
  PlanRequest request = testing::Chain({.ops = 4, .op_s = 0.01, .cut_bytes = 1000, .parameter_bytes = 1'000'000}, 2);
  testing::AddDevice(request, "paris", 1);
  testing::AddDevice(request, "tokyo", 1);
  testing::LinkSites(request, 125e6, 1e-3, 1e6, 0.05);
  const auto created = Problem::Create(request);
  const Problem& problem = *std::get<std::unique_ptr<Problem>>(*created);
  const RunningPlan running = {{"paris-0", {"tokens", "labels", "op0", "op1", "op2"}}, {"rome-0", {"loss"}}};
  const std::optional<Assignment> present = AssignmentOf(problem, running);
  ASSERT_TRUE(present.has_value());
  EXPECT_EQ(present->devices, (std::vector<int>{0, -1}));
  const Restore restore{.bytes_per_s = 0.5e6, .latency_s = 0.25};
  const MigrationModel model(problem, running, restore);
  const Assignment to{{0, present->begins[1] - 2}, {0, 1}};
  const Migration migration = model.MigrationTo(to);
  ASSERT_THAT(migration.moved, SizeIs(3));
  EXPECT_EQ(migration.moved[0], (MovedOp{"op1", "paris-0", "tokyo-0", 3'000'000}));
  EXPECT_EQ(migration.moved[1], (MovedOp{"op2", "paris-0", "tokyo-0", 3'000'000}));
  EXPECT_EQ(migration.moved[2], (MovedOp{"loss", "", "tokyo-0", 3'000'000}));
  EXPECT_EQ(migration.bytes, 9'000'000);
  EXPECT_DOUBLE_EQ(migration.transfer_s, 0.25 + 3e6 / 0.5e6);  // the link needs 0.05 + 6 s
  EXPECT_DOUBLE_EQ(model.TransferSeconds(to), migration.transfer_s);
  EXPECT_DOUBLE_EQ(MigrationModel(problem, running, {.bytes_per_s = 1e9}).MigrationTo(to).transfer_s, 0.05 + 6.0);
}

TEST(ReplanTest, TiedWeightsTravelOnceToADeviceAndNotWhereTheyAre) {
  PlanRequest request = testing::Chain({.ops = 4, .op_s = 0.01, .cut_bytes = 1000, .parameter_bytes = 1'000'000}, 2);
  request.tied.push_back({.name = "embedding", .ops = {2, 5}, .bytes = 1'000'000, .optimizer_bytes = 2'000'000});
  for (int d = 0; d < 2; ++d) testing::AddDevice(request, "paris", 1);
  testing::LinkSites(request, 125e6, 1e-3, 1e6, 0.05);
  const auto created = Problem::Create(request);
  const Problem& problem = *std::get<std::unique_ptr<Problem>>(*created);
  const RunningPlan running = {{"paris-0", {"tokens", "labels", "op0", "op1"}}, {"paris-1", {"op2", "loss"}}};
  const MigrationModel model(problem, running, {});
  const Migration together = model.MigrationTo({{0}, {0}});
  ASSERT_THAT(together.moved, SizeIs(2));
  EXPECT_EQ(together.moved[0].bytes, 3'000'000);
  EXPECT_EQ(together.moved[1].bytes, 0) << "paris-0 has the weights of 'loss': they are those of 'op0'";
}

TEST(ReplanTest, AJobThatCannotGoOnIsRefused) {
  PlanRequest request = TwoSites();
  request.devices.resize(1);
  request.links.clear();
  request.devices[0].memory_bytes = 1000;
  const auto outcome = Replan(request, Running(PlanOf(TwoSites())), {.steps_left = 10});
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_TRUE(std::holds_alternative<PlanError>(*outcome));
  EXPECT_FALSE(std::get<PlanError>(*outcome).message.empty());
}

TEST(ReplanTest, RefusesWhatIsNoPlanOrNoOptions) {
  const PlanRequest request = TwoSites();
  const RunningPlan running = Running(PlanOf(request));
  const auto error = [&](const RunningPlan& plan, const ReplanOptions& options) {
    return std::string(Replan(request, plan, options).status().message());
  };
  EXPECT_THAT(error({}, {}), HasSubstr("running plan: it has no stages"));
  RunningPlan torn = running;
  torn[0].ops.pop_back();
  EXPECT_THAT(error(torn, {}), HasSubstr("running plan: its stages"));
  EXPECT_THAT(error(running, {.steps_left = -1}), HasSubstr("steps_left"));
  EXPECT_THAT(error(running, {.running_step_s = 1e308}), HasSubstr("running_step_s: 1e+308 is more than 1e+09"));
  EXPECT_THAT(error(running, {.bias = 0}), HasSubstr("bias"));
  EXPECT_THAT(error(running, {.restore = {.bytes_per_s = 0}}), HasSubstr("restore.bytes_per_s"));
  EXPECT_TRUE(absl::IsCancelled(Replan(request, running, {}, [] { return true; }).status()));
}

// The one sum that all is judged by, from the answer alone.
double TotalOf(const ReplanResult& answer, const ReplanOptions& options) {
  double loss = 0;
  for (const PlannedLink& link : answer.plan.links) loss += link.loss_cost;
  const bool stays = answer.decision == Decision::kStay;
  return options.steps_left * answer.plan.predicted_step_s * (1 + kTimePerNat * loss) +
         (stays ? 0 : options.fixed_s + answer.migration.transfer_s);
}

class RandomChange : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomChange, IsNeverWorseThanStayingNorThanAPlanFromScratch) {
  const uint64_t seed = GetParam();
  PlanRequest before = testing::RandomRequest(seed, {.max_ops = 24, .max_devices = 6, .tight_memory = seed % 2 == 0});
  before.search_budget = 4000;
  const auto planned = MakePlan("op-fence", before);
  if (!planned.ok() || !std::holds_alternative<PlannedPipeline>(*planned)) GTEST_SKIP() << "no plan to begin with";
  const PlannedPipeline plan = std::get<PlannedPipeline>(*planned);
  PlanRequest now = before;
  switch (seed % 4) {
    case 0:
      if (now.devices.size() > 1) now = Without(now, plan.stages[seed % plan.stages.size()].device_names[0]);
      break;
    case 1:
      now.devices[plan.stages[0].devices[0]].time_scale *= 4;
      break;
    case 2:
      for (Link& link : now.links) link.bytes_per_s /= 1 + link.src % 5;
      break;
    default:
      break;
  }
  const ReplanOptions options{.steps_left = static_cast<int64_t>(1 + 40 * (seed % 7)), .fixed_s = 0.5, .min_improvement = 0};
  const auto outcome = Replan(now, Running(plan), options);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const auto fresh = MakePlan("op-fence", now);
  ASSERT_TRUE(fresh.ok());
  if (std::holds_alternative<PlanError>(*outcome)) {
    EXPECT_TRUE(std::holds_alternative<PlanError>(*fresh)) << "a plan exists";
    return;
  }
  const ReplanResult& answer = std::get<ReplanResult>(*outcome);
  EXPECT_EQ(*Replan(now, Running(plan), options), *outcome) << "not the same twice";
  const auto created = Problem::Create(now);
  const Problem& problem = *std::get<std::unique_ptr<Problem>>(*created);
  const MigrationModel model(problem, Running(plan), options.restore);
  const double total_s = TotalOf(answer, options);
  if (answer.decision != Decision::kMustMove) {
    Evaluator evaluator(problem);
    const Evaluation stay = evaluator.Evaluate(*AssignmentOf(problem, Running(plan)), Effort::kFull);
    EXPECT_LE(total_s, options.steps_left * stay.cost_s() * (1 + 1e-9)) << answer.reason;
  }
  if (std::holds_alternative<PlannedPipeline>(*fresh)) {
    ReplanResult scratch{.decision = Decision::kMove, .plan = std::get<PlannedPipeline>(*fresh)};
    scratch.migration = model.MigrationTo(*AssignmentOf(problem, Running(scratch.plan)));
    EXPECT_LE(total_s, TotalOf(scratch, options) * (1 + 2e-3)) << answer.reason;  // depths within kDepthTolerance are as good
  }
  // What moves is the difference between the two plans.
  std::set<std::string> differ;
  for (const PlannedStage& stage : answer.plan.stages) {
    for (const std::string& op : stage.op_names) {
      for (const PlannedStage& was : plan.stages) {
        if (std::count(was.op_names.begin(), was.op_names.end(), op) > 0 && was.device_names != stage.device_names) differ.insert(op);
      }
    }
  }
  EXPECT_EQ(NamesOf(answer.migration), differ);
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomChange, ::testing::Range(uint64_t{1}, uint64_t{81}));

}  // namespace
}  // namespace fusionllm::scheduler::replan
