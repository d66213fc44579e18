// Somebody who has got hold of a run's join token, and of no more: what it buys, and that the run goes on as if nobody had come.
#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <string>

#include "cli/join/join_run.h"
#include "lib/security/credential_files.h"
#include "proto/fusionllm/v1/broker.grpc.pb.h"
#include "services/credentials.h"
#include "tests/integration/join_fixture.h"

namespace fusionllm::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TokenThiefTest : public JoinTest {
 protected:
  absl::StatusOr<Enrolled> Buy(const std::string& name, const std::string& token) const {
    JoinOptions options;
    options.address = address_;
    options.token = token;
    options.name = name;
    return Enroll(options);
  }
};

TEST_F(TokenThiefTest, NamesOfTheRunsOwnProcessesAreNotForSaleHoweverTheyAreSpelt) {
  const auto run = Listen(2);
  for (const char* name : {"broker", "Broker", "BROKER", "scheduler", "Scheduler", "local-0", "LOCAL-0", "Local-0", "ca", "localhost",
                           "127.0.0.1", "a/b", "..", "broker.", "Broker.", "broker..", "scheduler.", "local-0."}) {
    const auto bought = Buy(name, token_);
    EXPECT_FALSE(bought.ok()) << name;
  }
  run->Interrupt();
  EXPECT_EQ(run->Wait(), 130) << run->words();
}

TEST_F(TokenThiefTest, EnrolledButAbsentExecutorBlocksNoOther) {
  const auto run = Listen(2);
  for (const char* name : {"mallory", "trudy"}) EXPECT_TRUE(Buy(name, token_).ok()) << name;
  EXPECT_FALSE(Buy("MALLORY", token_).ok()) << "it is kept for who enrolled";
  std::string wrong = token_;
  wrong.back() = wrong.back() == 'A' ? 'B' : 'A';
  EXPECT_FALSE(Buy("eve", wrong).ok());
  const auto honest = Join("honest", {"--name", "honest"});
  EXPECT_EQ(run->Wait(), 0) << run->words() << honest->words();
  EXPECT_EQ(honest->Wait(), 0) << honest->words();
  EXPECT_THAT(run->LossBits(), ::testing::SizeIs(4));
  EXPECT_THAT(run->words(), Not(HasSubstr("mallory")));
}

TEST_F(TokenThiefTest, WhoOpensTooManyCallsIsRefusedThemAndTheRunGoesOn) {
  const auto run = Listen(2);
  const auto mallory = Buy("mallory", token_);
  ASSERT_TRUE(mallory.ok()) << mallory.status();
  const std::string tls = folder_ / "mallory";
  ASSERT_TRUE(security::WriteCredentials(tls, "mallory", {mallory->ca_pem, mallory->certificate_pem, mallory->private_key_pem}).ok());
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("broker");
  const auto stub = v1::Broker::NewStub(grpc::CreateCustomChannel(address_, services::LoadCredentials(tls, "mallory")->channel, arguments));
  struct Idle {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::ExecutorMessage, v1::BrokerMessage>> stream;
  };
  constexpr int kOpened = 100;
  std::deque<Idle> idle(kOpened);  // say nothing
  for (Idle& one : idle) one.stream = stub->Attend(&one.context);
  const auto honest = Join("honest", {"--name", "honest"});
  EXPECT_EQ(run->Wait(), 0) << run->words() << honest->words();
  EXPECT_EQ(honest->Wait(), 0) << honest->words();
  EXPECT_THAT(run->LossBits(), ::testing::SizeIs(4));
  int refused = 0;
  for (Idle& one : idle) {
    v1::BrokerMessage none;
    while (one.stream->Read(&none)) {
    }
    refused += one.stream->Finish().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ? 1 : 0;
  }
  // Its share with two others in the run, at most.
  EXPECT_GE(refused, kOpened - 16 - 2 * 4);
}

}  // namespace
}  // namespace fusionllm::cli
