// A machine that a run has enrolled, against the run's real processes: as one that has no part in the plan and writes to the stages, and as
// one that attends and reports what is not so. The others train what they would have trained without it.
#include <grpcpp/grpcpp.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cli/join/join_run.h"
#include "lib/runtime/message.h"
#include "lib/security/credential_files.h"
#include "lib/transport/grpc/relay_endpoint.h"
#include "lib/transport/testing/mailbox.h"
#include "proto/fusionllm/v1/broker.grpc.pb.h"
#include "services/credentials.h"
#include "services/version.h"
#include "tests/integration/join_fixture.h"

namespace fusionllm::cli {
namespace {

using runtime::MessageKind;
using ::testing::SizeIs;

constexpr int64_t kSteps = 300;
const std::vector<std::string> kLong = {"spec.training.steps=300"};
// DataPlane's own kind, which only somebody who looked it up sends by hand.
constexpr uint8_t kPing = 200;
constexpr uint32_t kProbeEpoch = 0xFFFFFFFF;

class HostileExecutorTest : public JoinTest {
 protected:
  // A certificate of the run for `mallory`, bought with its token.
  services::Credentials Enrolled() {
    JoinOptions options;
    options.address = address_;
    options.token = token_;
    options.name = "mallory";
    const auto bought = Enroll(options);
    EXPECT_TRUE(bought.ok()) << bought.status();
    const std::string folder = folder_ / "mallory";
    EXPECT_TRUE(security::WriteCredentials(folder, "mallory", {bought->ca_pem, bought->certificate_pem, bought->private_key_pem}).ok());
    return *services::LoadCredentials(folder, "mallory");
  }
  std::unique_ptr<transport::GrpcRelayEndpoint> AtTheRelay(const services::Credentials& credentials) {
    transport::EndpointOptions options;
    options.name = "mallory";
    options.job_hash = credentials.job_hash;
    auto made = transport::GrpcRelayEndpoint::Create(options, {.address = address_, .credentials = credentials.channel});
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  // That the run and the machine that joined it in good faith came to the same losses as a run of one process.
  void ExpectUnharmed(Fusionctl& run, Fusionctl& honest, const Fusionctl& alone) {
    EXPECT_EQ(run.Wait(), 0) << run.words() << honest.words();
    EXPECT_EQ(honest.Wait(), 0) << honest.words();
    EXPECT_EQ(run.LossBits(), alone.LossBits());
    EXPECT_TRUE(run.Event("ExecutorLost").is_null()) << run.Event("ExecutorLost");
  }
};

TEST_F(HostileExecutorTest, MessagesOfAnEnrolledNonMemberChangeNoLoss) {
  const auto alone = Alone(kLong);
  ASSERT_EQ(alone->Wait(), 0) << alone->words();
  ASSERT_THAT(alone->LossBits(), SizeIs(kSteps));
  const auto run = Listen(2, kLong);
  const services::Credentials credentials = Enrolled();
  const auto mallory = AtTheRelay(credentials);
  transport::testing::Mailbox answers;
  answers.Listen(*mallory);
  const auto honest = Join("honest", {"--name", "honest"});
  ASSERT_TRUE(run->WaitForStep(1)) << run->words() << honest->words();

  // Reports, decisions, activations and gradients of the plan's first epochs, before their owners have sent them.
  const auto say = [&](const std::string& to, transport::MessageHeader header, size_t bytes) {
    (void)mallory->Send(to, header, transport::Payload::Of(std::string(bytes, '\x40')));  // refused where the run is over
  };
  int64_t probes = 0;
  for (int64_t step = 1; step <= kSteps; ++step) {
    for (const std::string to : {"local-0", "honest"}) {
      for (uint8_t kind = 0; kind < runtime::kMessageKinds; ++kind) {
        for (const int32_t id : {0, 1, 40}) {
          transport::MessageHeader header{.job_hash = credentials.job_hash, .epoch = 1, .step = step};
          header.direction = kind;
          header.channel = static_cast<uint32_t>(id);
          say(to, header, kind == static_cast<uint8_t>(MessageKind::kReport) ? 40 : 4096);
        }
      }
    }
  }
  for (const std::string to : {"local-0", "honest"}) {
    transport::MessageHeader ping{.job_hash = credentials.job_hash, .epoch = kProbeEpoch, .step = ++probes};
    ping.direction = kPing;
    ASSERT_TRUE(mallory->Send(to, ping, transport::Payload::Of("relay:mallory\n")).ok());
  }
  EXPECT_TRUE(answers.WaitForMessages(2)) << "both had all of it before they were done";
  ExpectUnharmed(*run, *honest, *alone);
}

TEST_F(HostileExecutorTest, ReportsOfAnExecutorWithoutAStageEndNothing) {
  const auto alone = Alone(kLong);
  ASSERT_EQ(alone->Wait(), 0) << alone->words();
  const auto run = Listen(2, kLong);
  const services::Credentials credentials = Enrolled();
  const auto honest = Join("honest", {"--name", "honest"});
  ASSERT_TRUE(run->WaitForStep(1)) << run->words() << honest->words();

  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<v1::ExecutorMessage> lies(12);
  lies[0].mutable_calibration()->set_profile_document(std::string(100'000, '['));
  lies[1].mutable_calibration()->set_code(-7);
  lies[1].mutable_calibration()->set_error("no");
  lies[2].mutable_link()->set_peer("local-0");
  lies[2].mutable_link()->set_bandwidth_bytes_per_second(nan);
  lies[2].mutable_link()->set_rtt_seconds(-1);
  lies[3].mutable_ready()->set_epoch(1);
  lies[3].mutable_ready()->set_error("cannot");
  lies[3].mutable_ready()->set_code(3);
  lies[4].mutable_step()->set_epoch(1);
  lies[4].mutable_step()->set_step(kSteps);
  lies[4].mutable_step()->set_loss(static_cast<float>(nan));
  lies[5].mutable_times()->set_epoch(1);
  lies[5].mutable_times()->set_step(2);
  lies[5].mutable_times()->set_busy_seconds(1e300);
  lies[6].mutable_evaluation()->set_epoch(1);
  lies[6].mutable_evaluation()->set_loss(nan);
  lies[7].mutable_shard()->set_epoch(1);
  lies[7].mutable_shard()->set_step(1);
  lies[7].mutable_shard()->add_files()->set_name("../../../evil");
  lies[8].mutable_ended()->set_epoch(1);
  lies[8].mutable_ended()->set_code(13);
  lies[8].mutable_ended()->set_lost_peer("local-0");
  lies[8].mutable_ended()->set_not_finite(true);
  lies[9].mutable_heartbeat()->set_step(std::numeric_limits<int64_t>::max());
  lies[10].mutable_fetching()->set_epoch(1);
  lies[10].mutable_fetching()->set_retried(std::string(1 << 20, 'x'));
  lies[11].mutable_data_opened()->set_summary(std::string(1 << 20, 'x'));

  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("broker");
  const auto stub = v1::Broker::NewStub(grpc::CreateCustomChannel(address_, credentials.channel, arguments));
  uint64_t incarnation = 1;
  for (v1::ExecutorMessage& lie : lies) {
    grpc::ClientContext context;
    const auto stream = stub->Attend(&context);
    v1::ExecutorMessage first;
    v1::Hello& hello = *first.mutable_hello();
    hello.set_protocol_version(services::kProtocolVersion);
    hello.set_name("mallory");
    hello.set_incarnation(++incarnation);
    hello.set_backend("cpu");
    hello.set_threads(1);
    hello.set_memory_bytes(int64_t{1} << 30);
    hello.set_data_address("relay:mallory");
    ASSERT_TRUE(stream->Write(first));
    v1::BrokerMessage answer;
    ASSERT_TRUE(stream->Read(&answer)) << run->words();
    ASSERT_TRUE(answer.has_welcome()) << answer.ShortDebugString();
    lie.set_sequence(1);
    ASSERT_TRUE(stream->Write(lie));
    // Until it is acknowledged, or she is shown the door.
    while (stream->Read(&answer) && !answer.has_ack()) {
    }
    context.TryCancel();
    (void)stream->Finish();
  }
  ExpectUnharmed(*run, *honest, *alone);
}

}  // namespace
}  // namespace fusionllm::cli
