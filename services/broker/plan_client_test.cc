#include "services/broker/plan_client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "proto/fusionllm/v1/scheduler.grpc.pb.h"

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

  grpc::Status Plan(grpc::ServerContext*, const v1::PlanRequest*, v1::PlanResponse* response) override {
    const size_t number = asked_++;
    if (number == 0) first_.set_value();
    if (number < errors_.size()) return grpc::Status(errors_[number], "not now");
    response->set_plan_document("the plan");
    return grpc::Status::OK;
  }
  PlanClientOptions Options() {
    return {.channel = server_->InProcessChannel({}), .patience = std::chrono::minutes(1), .pause = std::chrono::milliseconds(1)};
  }
  size_t asked() const { return asked_; }
  std::future<void> First() { return first_.get_future(); }

 private:
  const std::vector<grpc::StatusCode> errors_;
  std::atomic<size_t> asked_ = 0;
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

TEST(PlanClientTest, WhatItWillNotTakeIsNotAskedTwice) {
  Scheduler scheduler({grpc::StatusCode::INVALID_ARGUMENT});
  const auto plan = AskScheduler(scheduler.Options())("profiles", {}, {});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("scheduler: not now"));
  EXPECT_EQ(scheduler.asked(), 1u);
}

TEST(PlanClientTest, PatienceHasAnEnd) {
  Scheduler scheduler(std::vector<grpc::StatusCode>(100, grpc::StatusCode::UNAVAILABLE));
  PlanClientOptions options = scheduler.Options();
  options.pause = std::chrono::hours(1);  // no room for a second attempt
  EXPECT_EQ(AskScheduler(options)("profiles", {}, {}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(scheduler.asked(), 1u);
}

TEST(PlanClientTest, AStopEndsThePauseBetweenTwoAttempts) {
  Scheduler scheduler(std::vector<grpc::StatusCode>(100, grpc::StatusCode::UNAVAILABLE));
  PlanClientOptions options = scheduler.Options();
  options.patience = std::chrono::hours(2);
  options.pause = std::chrono::hours(1);
  std::stop_source stop;
  auto answer = std::async(std::launch::async, [&] { return AskScheduler(options)("profiles", {}, stop.get_token()); });
  scheduler.First().wait();
  stop.request_stop();
  EXPECT_FALSE(answer.get().ok());
  EXPECT_EQ(scheduler.asked(), 1u);
}

}  // namespace
}  // namespace fusionllm::services
