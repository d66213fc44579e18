#include "services/broker/plan_client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/parse.h"
#include "lib/security/credential_files.h"
#include "lib/wire/plan_json.h"
#include "lib/wire/replan_json.h"
#include "proto/fusionllm/v1/scheduler.grpc.pb.h"
#include "services/credentials.h"

namespace fusionllm::services {
namespace {

using ::testing::HasSubstr;

// Answers with these errors, one for each question, and with a plan from then on.
class Scheduler final : public v1::Scheduler::Service {
 public:
  explicit Scheduler(std::vector<grpc::StatusCode> errors) : errors_(std::move(errors)) {
    grpc::ServerBuilder builder;
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~Scheduler() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status Plan(grpc::ServerContext*, const v1::PlanRequest* request, v1::PlanResponse* response) override {
    job_document_ = request->job_document();
    const size_t number = asked_++;
    if (number == 0) first_.set_value();
    if (number < errors_.size()) return grpc::Status(errors_[number], "not now");
    response->set_plan_document(plans_.empty() ? "the plan" : plans_.front());
    if (!plans_.empty()) plans_.erase(plans_.begin());
    return grpc::Status::OK;
  }
  grpc::Status Replan(grpc::ServerContext*, const v1::ReplanRequest* request, v1::ReplanResponse* response) override {
    replan_ = *request;
    response->set_replan_document(replan_answer_);
    return grpc::Status::OK;
  }
  void AnswerReplan(const wire::ReplanResult& answer) { replan_answer_ = wire::PrintReplan(answer); }
  void AnswerPlans(std::vector<std::string> plans) { plans_ = std::move(plans); }  // one after the other, then as ever
  const std::string& job_document() const { return job_document_; }                // of the last question after a plan, once it is answered
  const v1::ReplanRequest& replan() const { return replan_; }                      // the last one, once it is answered

  PlanClientOptions Options() {
    return {.channel = server_->InProcessChannel({}), .timeout = std::chrono::minutes(1), .pause = std::chrono::milliseconds(1)};
  }
  size_t asked() const { return asked_; }
  std::future<void> First() { return first_.get_future(); }

 private:
  const std::vector<grpc::StatusCode> errors_;
  std::atomic<size_t> asked_ = 0;
  v1::ReplanRequest replan_;
  std::string job_document_, replan_answer_;
  std::vector<std::string> plans_;
  std::promise<void> first_;
  std::unique_ptr<grpc::Server> server_;
};

TEST(PlanClientTest, ASchedulerThatDiesOrIsBusyIsAskedAgain) {
  Scheduler scheduler({grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::RESOURCE_EXHAUSTED, grpc::StatusCode::UNAVAILABLE});
  const auto plan = AskScheduler(scheduler.Options())("profiles", {}, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(*plan, "the plan");
  EXPECT_EQ(scheduler.asked(), 4u);
}

// What the broker gets where a server with these credentials stands in place of the scheduler.
absl::Status AskWhereStands(const security::CertificateAuthority& ours, const security::CertificateAuthority& theirs,
                            const std::string& name) {
  const base::TempFolder folder;
  EXPECT_TRUE(security::WriteCredentials(folder / "theirs", name, *security::IssueCredentials(theirs, name)).ok());
  EXPECT_TRUE(security::WriteCredentials(folder / "ours", "broker", *security::IssueCredentials(ours, "broker")).ok());
  v1::Scheduler::Service service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", LoadCredentials(folder / "theirs", name)->server, &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  const PlanClientOptions options{
      .channel = SchedulerChannel(absl::StrCat("127.0.0.1:", port), LoadCredentials(folder / "ours", "broker")->channel),
      .timeout = std::chrono::milliseconds(1500),
      .pause = std::chrono::milliseconds(1)};
  absl::Status status = AskScheduler(options)("profiles", {}, {}).status();
  server->Shutdown(std::chrono::system_clock::now());
  return status;
}

TEST(PlanClientTest, WhyASchedulerCannotBeReachedIsPartOfTheMessage) {
  const absl::Status status =
      AskWhereStands(*security::CertificateAuthority::Create(), *security::CertificateAuthority::Create(), "scheduler");
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("it could not be reached: "));
}

TEST(PlanClientTest, AMemberOfTheRunDoesNotPassForTheScheduler) {
  const auto ours = *security::CertificateAuthority::Create();
  EXPECT_EQ(AskWhereStands(ours, ours, "lab-3").code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(AskWhereStands(ours, ours, "scheduler").code(), absl::StatusCode::kUnimplemented) << "the same server by its own name answers";
}

TEST(PlanClientTest, WhatItWillNotTakeIsNotAskedTwice) {
  Scheduler scheduler({grpc::StatusCode::INVALID_ARGUMENT});
  const auto plan = AskScheduler(scheduler.Options())("profiles", {}, {});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("scheduler: not now"));
  EXPECT_EQ(scheduler.asked(), 1u);
}

TEST(PlanClientTest, AfterALossNoMoreStagesAreAskedForThanDevicesAreLeftThatTheJobDoesNotExclude) {
  Scheduler scheduler({});
  PlanClientOptions options = scheduler.Options();
  const auto job = job::ParseFusionJob(
      "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
      "  model: {family: mlp, config: {layers: [3072, 16, 16, 16, 16, 10]}}\n  data: {kind: shapes}\n"
      "  training: {steps: 2, globalBatchSize: 4}\n  strategy: {stages: 4, exclude: [c]}\n",
      "job.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  options.job = *job;
  options.job_document = "as the user wrote it";
  ASSERT_TRUE(AskScheduler(options)("profiles", {.devices = {"a", "b", "c", "d"}}, {}).ok());
  EXPECT_EQ(scheduler.job_document(), "as the user wrote it") << "the first time nothing is changed";
  ASSERT_TRUE(AskScheduler(options)("profiles", {.devices = {"a", "b", "c"}, .after_loss = true}, {}).ok());
  const auto asked = job::ParseFusionJob(scheduler.job_document(), "asked");
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->spec.strategy.stages, 2);
}

// Two replicas of two stages need four devices; with fewer the planner says how many pay.
TEST(PlanClientTest, AfterALossTheNumberOfReplicasIsThePlannersWhereTheJobsCannotBeHad) {
  Scheduler scheduler({});
  PlanClientOptions options = scheduler.Options();
  const auto job = job::ParseFusionJob(
      "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
      "  model: {family: mlp, config: {layers: [3072, 16, 16, 10]}}\n  data: {kind: shapes}\n"
      "  training: {steps: 2, globalBatchSize: 4}\n  strategy: {stages: 2, replicas: 2}\n",
      "job.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  options.job = *job;
  const auto replicas_over = [&](std::vector<std::string> devices) {
    EXPECT_TRUE(AskScheduler(options)("profiles", {.devices = std::move(devices), .after_loss = true}, {}).ok());
    return job::ParseFusionJob(scheduler.job_document(), "asked")->spec.strategy.replicas;
  };
  EXPECT_EQ(replicas_over({"a", "b", "c", "d"}), 2);
  EXPECT_EQ(replicas_over({"a", "b", "c"}), 0);
}

// Enough devices by number, and too little memory for as many replicas.
TEST(PlanClientTest, AfterALossARefusalOfTheJobsReplicasIsFollowedByTheQuestionHowManyPay) {
  Scheduler scheduler({});
  PlanClientOptions options = scheduler.Options();
  const auto job = job::ParseFusionJob(
      "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
      "  model: {family: mlp, config: {layers: [3072, 16, 16, 10]}}\n  data: {kind: shapes}\n"
      "  training: {steps: 2, globalBatchSize: 4}\n  strategy: {replicas: 2}\n",
      "job.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  options.job = *job;
  const std::string refusal = wire::PrintPlan(plan::PlanError{.reason = "InsufficientMemory", .message = "of two"});
  const std::string worse = wire::PrintPlan(plan::PlanError{.reason = "InsufficientMemory", .message = "of one"});
  const broker::RequestPlan again{.devices = {"a", "b", "c"}, .after_loss = true};
  scheduler.AnswerPlans({refusal, "a plan with one"});
  EXPECT_EQ(*AskScheduler(options)("profiles", again, {}), "a plan with one");
  EXPECT_EQ(job::ParseFusionJob(scheduler.job_document(), "asked")->spec.strategy.replicas, 0);
  scheduler.AnswerPlans({refusal, worse});
  EXPECT_EQ(*AskScheduler(options)("profiles", again, {}), refusal) << "what the job wants is what is told";
  scheduler.AnswerPlans({refusal, "never asked for"});
  EXPECT_EQ(*AskScheduler(options)("profiles", {.devices = {"a", "b", "c"}}, {}), refusal) << "at first N means N";
}

// A job that leaves the size of micro-batches to the planner.
class PlanClientSizeTest : public ::testing::Test {
 protected:
  PlanClientSizeTest() {
    options_.job = *job::ParseFusionJob(
        "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
        "  model: {family: mlp, config: {layers: [3072, 16, 16, 10]}}\n  data: {kind: shapes}\n"
        "  training: {steps: 2, globalBatchSize: 32}\n",
        "job.yaml");
    options_.job_document = "as the user wrote it";
  }
  std::string Ask(const broker::RequestPlan& ask) {
    const auto plan = AskScheduler(options_)("profiles", ask, {});
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *plan;
  }
  int64_t AskedSize() const { return job::ParseFusionJob(scheduler_.job_document(), "asked")->spec.training.micro_batch_size; }

  Scheduler scheduler_{{}};
  PlanClientOptions options_ = scheduler_.Options();
};

TEST_F(PlanClientSizeTest, TheSizeOfARunIsKeptByEachFurtherPlan) {
  Ask({.devices = {"a"}});
  EXPECT_EQ(scheduler_.job_document(), "as the user wrote it") << "nothing was chosen yet";
  Ask({.devices = {"a"}, .micro_batch_size = 16});
  EXPECT_EQ(AskedSize(), 16) << "that of the checkpoint that the run goes on from";
  Ask({.devices = {"a"}, .after_loss = true, .micro_batch_size = 16});
  EXPECT_EQ(AskedSize(), 16);
  Ask({.devices = {"a"}, .after_loss = true, .micro_batch_size = 5});
  EXPECT_EQ(AskedSize(), 0) << "the global batch has changed since";
  options_.job.spec.training.micro_batch_size = 4;
  Ask({.devices = {"a"}, .after_loss = true, .micro_batch_size = 16});
  EXPECT_EQ(AskedSize(), 4) << "as the job says";
}

TEST_F(PlanClientSizeTest, AnotherSizeIsAskedForWhereMemoryIsTooLittleForThatOfTheRun) {
  const std::string memory = wire::PrintPlan(plan::PlanError{
      .reason = "InsufficientMemory", .message = "of 16", .shortfall = {.what = "memory_bytes", .needed = 2, .available = 1}});
  const std::string other = wire::PrintPlan(plan::PlanError{.reason = "TooFewExecutors", .message = "of others"});
  const broker::RequestPlan again{.devices = {"a"}, .after_loss = true, .micro_batch_size = 16};
  scheduler_.AnswerPlans({memory, "a plan of 4"});
  EXPECT_EQ(Ask(again), "a plan of 4");
  EXPECT_EQ(AskedSize(), 0);
  scheduler_.AnswerPlans({memory, other});
  EXPECT_EQ(Ask(again), memory) << "what is wrong with the run's own is told";
  scheduler_.AnswerPlans({other, "never asked for"});
  EXPECT_EQ(Ask(again), other) << "no size helps there";
}

TEST(PlanClientTest, WaitingForThePlannerTimesOut) {
  Scheduler scheduler(std::vector<grpc::StatusCode>(100, grpc::StatusCode::UNAVAILABLE));
  PlanClientOptions options = scheduler.Options();
  options.pause = std::chrono::hours(1);  // no room for a second attempt
  EXPECT_EQ(AskScheduler(options)("profiles", {}, {}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(scheduler.asked(), 1u);
}

TEST(PlanClientTest, AStopEndsThePauseBetweenTwoAttempts) {
  Scheduler scheduler(std::vector<grpc::StatusCode>(100, grpc::StatusCode::UNAVAILABLE));
  PlanClientOptions options = scheduler.Options();
  options.timeout = std::chrono::hours(2);
  options.pause = std::chrono::hours(1);
  std::stop_source stop;
  auto answer = std::async(std::launch::async, [&] { return AskScheduler(options)("profiles", {}, stop.get_token()); });
  scheduler.First().wait();
  stop.request_stop();
  EXPECT_FALSE(answer.get().ok());
  EXPECT_EQ(scheduler.asked(), 1u);
}

plan::Plan TwoStages(const std::string& first, const std::string& second) {
  plan::Plan plan{.strategy = "op-fence", .predicted_step_seconds = 1, .graph_hash = "0123456789abcdef"};
  plan.stages = {{.index = 0, .devices = {first}, .ops = {"a"}}, {.index = 1, .devices = {second}, .ops = {"b"}}};
  plan.links = {{.src = first, .dst = second, .src_stage = 0, .dst_stage = 1, .values = {"a"}}};
  return plan;
}

// A spare has taken the second stage over.
broker::RequestPlan Leave() {
  return {.alternative = 1,
          .current_plan = broker::CurrentPlan{.document = wire::PrintPlan(TwoStages("a0", "b0")),
                                              .devices = {"a0", "s0"},
                                              .steps_left = 70,
                                              .step_s = 2,
                                              .bias = 1.1,
                                              .move_s = 9}};
}

TEST(PlanClientTest, AQuestionWhetherToLeaveThePlanInForceGivesThePlanToMoveTo) {
  Scheduler scheduler({});
  const plan::Plan other = TwoStages("s0", "a0");
  scheduler.AnswerReplan(
      wire::ReplanDocument{.decision = wire::ReplanDecision::kMove, .reason = "pays", .running_step_seconds = 2, .plan = other});
  const auto plan = AskScheduler(scheduler.Options())("profiles", Leave(), {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(*plan, wire::PrintPlan(other));
  EXPECT_EQ(scheduler.replan().running_document(), wire::PrintPlan(TwoStages("a0", "s0"))) << "with the devices of now";
  EXPECT_EQ(scheduler.replan().steps_left(), 70);
  EXPECT_EQ(scheduler.replan().running_step_seconds(), 2);
  EXPECT_EQ(scheduler.replan().bias(), 1.1);
  EXPECT_EQ(scheduler.replan().fixed_seconds(), 9);
  EXPECT_EQ(scheduler.replan().now().profiles_document(), "profiles");
}

// Near a running plan of several pipelines nothing is searched: the run judges a plan made from scratch.
TEST(PlanClientTest, OfAJobWithReplicasAnotherPlanIsAskedForAsAtFirst) {
  Scheduler scheduler({});
  PlanClientOptions options = scheduler.Options();
  options.job.spec.strategy.replicas = 2;
  const auto plan = AskScheduler(options)("profiles", Leave(), {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(*plan, "the plan");
  EXPECT_EQ(scheduler.replan().running_document(), "") << "Replan was not called";
}

TEST(PlanClientTest, WhoReadsTheDataIsSaidWithEachQuestion) {
  Scheduler scheduler({});
  scheduler.AnswerReplan(wire::ReplanDocument{.reason = "staying", .running_step_seconds = 2, .plan = TwoStages("a0", "s0")});
  const PlanFunction ask_scheduler = AskScheduler(scheduler.Options());
  for (const char* device : {"a0", "s0"}) {
    broker::RequestPlan ask = Leave();
    ask.data_device = device;
    (void)ask_scheduler("profiles", ask, {});
    EXPECT_EQ(scheduler.replan().now().data_device(), device);
  }
}

TEST(PlanClientTest, FiguresOfTheRunningStagesComeAsTheirPlan) {
  Scheduler scheduler({});
  plan::Plan slower = TwoStages("a0", "s0");
  slower.predicted_step_seconds = 3;
  slower.strategy = "op-fence";
  scheduler.AnswerReplan(wire::ReplanDocument{.reason = "no other plan was looked for", .running_step_seconds = 3, .plan = slower});
  plan::Plan running = TwoStages("a0", "b0");
  running.strategy = "equal-ops";
  const broker::RequestPlan ask{.current_plan = broker::CurrentPlan{.document = wire::PrintPlan(running), .devices = {"a0", "s0"}},
                                .figures_only = true};
  const auto plan = AskScheduler(scheduler.Options())("profiles", ask, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(scheduler.replan().figures_only());
  slower.strategy = "equal-ops";
  EXPECT_EQ(*plan, wire::PrintPlan(slower)) << "the strategy that made the stages";
}

TEST(PlanClientTest, ToStayIsNoPlan) {
  Scheduler scheduler({});
  scheduler.AnswerReplan(wire::ReplanDocument{.reason = "staying at 2 s", .running_step_seconds = 2, .plan = TwoStages("a0", "s0")});
  const absl::Status status = AskScheduler(scheduler.Options())("profiles", Leave(), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "staying at 2 s");
}

}  // namespace
}  // namespace fusionllm::services
