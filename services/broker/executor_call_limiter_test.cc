// Over real TLS where a call counts: one executor opens all the calls it can, and the others are served.
#include "services/broker/executor_call_limiter.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/security/credential_files.h"
#include "lib/transport/grpc/relay.h"
#include "proto/fusionllm/v1/broker.grpc.pb.h"
#include "proto/fusionllm/v1/checkpoint.grpc.pb.h"
#include "proto/fusionllm/v1/peer.grpc.pb.h"
#include "services/broker/checkpoint_exchange.h"
#include "services/broker/executor_sessions.h"
#include "services/credentials.h"

namespace fusionllm::services {
namespace {

using ::testing::HasSubstr;

TEST(ExecutorCallLimiterTest, OneExecutorHasItsShareAndGetsItBackWhenCallsEnd) {
  ExecutorCallLimiter calls;
  std::deque<ExecutorCallLimiter::Permit> permits;
  for (int i = 0; i < ExecutorCallLimiter::kMaxOwnCalls; ++i) {
    auto permit = calls.Enter("mallory");
    ASSERT_TRUE(permit.ok()) << i << permit.status();
    permits.push_back(*std::move(permit));
  }
  const absl::Status refused = calls.Enter("mallory").status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("'mallory' has 16 calls open"));
  EXPECT_TRUE(calls.Enter("honest").ok());
  permits.pop_front();
  EXPECT_TRUE(calls.Enter("mallory").ok());
}

TEST(ExecutorCallLimiterTest, ShareGrowsWithExecutorsSeenAndNotWithOnesOwnCalls) {
  ExecutorCallLimiter calls;
  std::vector<ExecutorCallLimiter::Permit> permits;
  for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(calls.Enter(name).ok());  // and gone
  int opened = 0;
  for (auto permit = calls.Enter("mallory"); permit.ok(); permit = calls.Enter("mallory"), ++opened) permits.push_back(*std::move(permit));
  EXPECT_EQ(opened, ExecutorCallLimiter::kMaxOwnCalls + 3 * ExecutorCallLimiter::kMaxCallsPerOther);
}

TEST(ExecutorCallLimiterTest, ACallMayOutliveTheCount) {
  auto calls = std::make_unique<ExecutorCallLimiter>();
  const auto permit = calls->Enter("a");
  calls.reset();
  EXPECT_TRUE(permit.ok());
}

class CrowdedBrokerTest : public ::testing::Test {
 protected:
  CrowdedBrokerTest() {
    for (const char* name : {"broker", "mallory", "honest"}) {
      EXPECT_TRUE(security::WriteCredentials(folder_ / "tls", name, *security::IssueCredentials(authority_, name)).ok());
    }
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", LoadCredentials(folder_ / "tls", "broker")->enrolling_server, &port);
    builder.RegisterService(&executor_sessions_);
    builder.RegisterService(&exchange_);
    builder.RegisterService(relay_.service());
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~CrowdedBrokerTest() override {
    relay_.Shutdown();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  // As much as an executor may have, less `less`.
  void Fill(const std::string& name, int less = 0) {
    for (int i = 0; i < ExecutorCallLimiter::kMaxOwnCalls - less; ++i) {
      auto permit = calls_.Enter(name);
      ASSERT_TRUE(permit.ok()) << i << permit.status();
      permits_.push_back(*std::move(permit));
    }
  }
  std::shared_ptr<grpc::Channel> ChannelOf(const std::string& name) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetSslTargetNameOverride("broker");
    return grpc::CreateCustomChannel(address_, LoadCredentials(folder_ / "tls", name)->channel, arguments);
  }
  // The end of a call of each kind that holds a thread.
  static std::map<std::string, grpc::Status> CallAll(const std::shared_ptr<grpc::Channel>& channel) {
    std::map<std::string, grpc::Status> ends;
    const auto broker = v1::Broker::NewStub(channel);
    const auto exchange = v1::CheckpointExchange::NewStub(channel);
    const auto relay = v1::Relay::NewStub(channel);
    std::deque<grpc::ClientContext> contexts(5);
    for (grpc::ClientContext& context : contexts) {
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    }
    const auto attend = broker->Attend(&contexts[0]);
    attend->WritesDone();
    v1::BrokerMessage refusal;
    while (attend->Read(&refusal)) {
    }
    ends["attend"] = attend->Finish();
    v1::ShardFileReceipt receipt;
    const auto put = exchange->PutShardFile(&contexts[1], &receipt);
    put->WritesDone();
    ends["put"] = put->Finish();
    ends["fetch"] = exchange->FetchTensors(&contexts[2], {})->Finish();
    ends["dial"] = relay->Dial(&contexts[3])->Finish();
    ends["answer"] = relay->Answer(&contexts[4])->Finish();
    return ends;
  }

  base::TempFolder folder_;
  security::CertificateAuthority authority_ = *security::CertificateAuthority::Create();
  ExecutorCallLimiter calls_;
  std::vector<ExecutorCallLimiter::Permit> permits_;
  ExecutorSessions executor_sessions_{{.build_version = "test", .calls = &calls_},
                                      {.on_joined = [](const v1::Hello&) {},
                                       .on_message = [](const std::string&, uint64_t, const v1::ExecutorMessage&) {},
                                       .on_left = [](const std::string&, uint64_t, const std::string&) {},
                                       .on_enroll = [](const v1::EnrollRequest&) { return absl::UnimplementedError(""); }}};
  CheckpointExchange exchange_{{.checkpoint_directory = folder_ / "checkpoints", .total_steps = 9, .calls = &calls_}};
  transport::Relay relay_{
      {.require_certificate = true, .enter = [this](const grpc::ServerContext& context) { return calls_.Enter(context); }}};
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST_F(CrowdedBrokerTest, WhoHasItsShareIsRefusedEveryKindOfCallAndTheOthersAreServed) {
  Fill("mallory");
  for (const auto& [kind, end] : CallAll(ChannelOf("mallory"))) {
    EXPECT_EQ(end.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << kind << " " << end.error_message();
    EXPECT_THAT(end.error_message(), HasSubstr("TooManyCalls: 'mallory'")) << kind;
  }
  for (const auto& [kind, end] : CallAll(ChannelOf("honest"))) {
    EXPECT_NE(end.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << kind << " " << end.error_message();
  }
}

TEST_F(CrowdedBrokerTest, ACallThatHasEndedCountsNoMore) {
  Fill("mallory", /*less=*/1);
  const auto channel = ChannelOf("mallory");
  // A permit is given back when the handler has returned, which the caller hears of before: so one call at a time, and until it is served.
  for (int i = 0; i < 3; ++i) {
    grpc::Status end;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    do {
      grpc::ClientContext context;
      end = v1::CheckpointExchange::NewStub(channel)->FetchTensors(&context, {})->Finish();
    } while (end.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED && std::chrono::steady_clock::now() < deadline);
    EXPECT_EQ(end.error_code(), grpc::StatusCode::PERMISSION_DENIED) << end.error_message();
  }
}

}  // namespace
}  // namespace fusionllm::services
