// The operator's side of the scheduler service, against the real one.
#include "operator/placement/plan_call.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "lib/job/parse.h"
#include "operator/placement/placement_hint.h"
#include "services/scheduler/scheduler_service.h"

namespace fusionllm::op::placement {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace v1 = fusionllm::v1;

constexpr absl::Duration kLong = absl::Seconds(60);

// Two stages are faster than one, if little time is lost between them.
constexpr char kTwoStageJob[] = R"(
apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: test}
spec:
  model: {family: gpt2, config: {nLayer: 6, nHead: 4, nEmbd: 256, vocabSize: 512, blockSize: 128, tieWeights: false}}
  data: {kind: text, path: [corpus.txt]}
  training: {steps: 5, globalBatchSize: 32, microBatchSize: 2, sequenceLength: 128}
  executors: {replicas: 2}
)";

class PlanCallTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
    const auto job = job::ParseFusionJob(kTwoStageJob, "job");
    ASSERT_TRUE(job.ok()) << job.status();
    job_ = *job;
    job_.spec.network.mode = job::NetworkMode::kDirect;  // else all meet at the broker
  }
  void TearDown() override { server_->Shutdown(); }

  // A cluster with room for one executor.
  void Offer(const std::string& name) {
    offers_.push_back({.name = name, .room = 1, .products = {{"", 1}}, .each = {{"cpu", 1000}}});
    facts_.push_back({.name = name});
  }
  void Join(size_t a, size_t b, double bytes_per_s) { facts_[a].links[facts_[b].name] = {.bytes_per_s = bytes_per_s, .latency_s = 1e-3}; }
  PlacementQuery Query() {
    const auto query = PlacementQueryOf(job_, /*attempt=*/0, SearchSpaceOf(job_, offers_), facts_);
    EXPECT_TRUE(query.ok()) << query.status();
    return query.value_or(PlacementQuery());
  }
  absl::StatusOr<std::string> Ask(const PlacementQuery& query, absl::Duration timeout = kLong) {
    return SchedulerPlanCall(address_)(query, timeout, {});
  }
  std::vector<std::string> Clusters() {
    std::vector<std::string> names;
    const PlacementHint hint = PlacementHintOf(Ask(Query()));
    EXPECT_EQ(hint.reason, kPlanFound) << hint.message;
    for (const manifests::ExecutorSlot& slot : Place(job_, offers_, hint.ranking).slots) names.push_back(slot.cluster);
    return names;
  }

  metrics::Registry registry_{"test", "0"};
  const services::PlanMetrics plan_metrics_{registry_};
  services::SchedulerService service_{plan_metrics_, {.max_concurrent = 1}};
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  job::FusionJob job_;
  std::vector<ClusterCandidate> offers_;
  std::vector<cache::ClusterFacts> facts_;
};

TEST_F(PlanCallTest, TwoClustersWithAFastLinkArePreferredToTwoWithASlowOne) {
  for (const char* const name : {"berlin", "lima", "oslo"}) Offer(name);
  Join(0, 1, 1e6);
  Join(0, 2, 1e6);
  Join(1, 2, 1e9);
  EXPECT_THAT(Clusters(), ElementsAre("lima", "oslo"));
  Join(0, 2, 2e9);
  Join(1, 2, 1e6);
  EXPECT_THAT(Clusters(), ElementsAre("berlin", "oslo"));
  facts_[2].ingress_bytes_per_s = facts_[2].egress_bytes_per_s = 1e5;
  Join(0, 1, 1e9);
  EXPECT_THAT(Clusters(), ElementsAre("berlin", "lima")) << "little goes in and out of oslo";
}

TEST_F(PlanCallTest, ARefusalNamesWhatIsShort) {
  for (const char* const name : {"berlin", "lima", "oslo"}) Offer(name);
  for (ClusterCandidate& candidate : offers_) candidate.each["memory"] = 1 << 20;
  const PlacementHint hint = PlacementHintOf(Ask(Query()));
  EXPECT_EQ(hint.reason, kPlanInfeasible);
  EXPECT_THAT(hint.message, HasSubstr("MiB")) << hint.message;
}

TEST_F(PlanCallTest, ErrorsAreTheServices) {
  const auto answer = Ask({.job_document = "spec: 100 % wrong\n", .profiles_document = "{}"});
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("job_document:1")) << answer.status();
  service_.Stop();
  for (const char* const name : {"berlin", "lima", "oslo"}) Offer(name);
  EXPECT_EQ(Ask(Query()).status().code(), absl::StatusCode::kUnavailable);
}

// libcurl has been seen to leave the end of one lying until the deadline.
TEST_F(PlanCallTest, ALongAnswerIsReadAtOnce) {
  class LongAnswer : public v1::Scheduler::Service {
    grpc::Status Plan(grpc::ServerContext*, const v1::PlanRequest* request, v1::PlanResponse* response) override {
      response->set_plan_document(request->job_document() + std::string(300'000, 'x') + request->profiles_document());
      return grpc::Status::OK;
    }
  } service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const std::string job(200'000, 'j'), profiles(400'000, 'p');
  const absl::Time begin = absl::Now();
  const auto answer = SchedulerPlanCall(absl::StrCat("127.0.0.1:", port))({job, profiles}, kLong, {});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, job + std::string(300'000, 'x') + profiles);
  EXPECT_LT(absl::Now() - begin, kLong / 2);
  server->Shutdown();
}

TEST_F(PlanCallTest, CallHonorsTimeout) {
  class : public v1::Scheduler::Service {
   public:
    absl::Notification asked_no_more;
    grpc::Status Plan(grpc::ServerContext*, const v1::PlanRequest*, v1::PlanResponse*) override {
      asked_no_more.WaitForNotification();
      return grpc::Status::OK;
    }
  } service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  // Long enough to connect on a busy machine: before that the scheduler would be unavailable.
  const auto answer = SchedulerPlanCall(absl::StrCat("127.0.0.1:", port))({"job", "profiles"}, absl::Seconds(1), {});
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kDeadlineExceeded) << answer.status();
  service.asked_no_more.Notify();
  server->Shutdown();
}

TEST_F(PlanCallTest, WithoutASchedulerThereIsNoAnswer) {
  server_->Shutdown();
  EXPECT_EQ(Ask({}).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(PlanCallTest, WhatIsNoAnswerIsNotRead) {
  for (const std::string& body :
       {std::string(), std::string("\0\0\0\0\5ab", 7), std::string("\1\0\0\0\0", 5), std::string("\0\0\0\0\2\x0a\x09", 7),
        std::string("\0\0\0\0\1\x0a", 6), std::string("\0\0\0\0\2\x08\x01", 7)}) {
    EXPECT_EQ(DecodePlanAnswer(body).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(*DecodePlanAnswer(std::string("\0\0\0\0\6\x12\0\x0a\2ab", 11)), "ab") << "of a service that says more";
}

}  // namespace
}  // namespace fusionllm::op::placement
