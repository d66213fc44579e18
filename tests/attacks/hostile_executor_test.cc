// A machine that a run has enrolled, against the run's real processes: as one that has no part in the plan and writes to the stages. These
// train what they would have trained without it.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/join/join_run.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/parse.h"
#include "lib/kernels/devices.h"
#include "lib/runtime/message.h"
#include "lib/runtime/stage_program.h"
#include "lib/security/credential_files.h"
#include "lib/transport/grpc/relay_endpoint.h"
#include "lib/transport/testing/mailbox.h"
#include "lib/workload/workload.h"
#include "proto/fusionllm/v1/broker.grpc.pb.h"
#include "services/credentials.h"
#include "services/executor/assigned_plan.h"
#include "services/executor/broker_session.h"
#include "services/executor/stage_host.h"
#include "services/version.h"
#include "tests/integration/join_fixture.h"
#include "tests/integration/program.h"

namespace fusionllm::cli {
namespace {

using runtime::MessageKey;
using runtime::MessageKind;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int64_t kSteps = 300;
const std::vector<std::string> kLong = {"spec.training.steps=300"};
// DataPlane's own kind, which only somebody who looked it up sends by hand.
constexpr uint8_t kPing = 200;
constexpr uint32_t kProbeEpoch = 0xFFFFFFFF;

// One that a stage gets from another in each step: once, or of each micro-batch.
struct StageMessage {
  int from = 0, to = 0;
  MessageKind kind = MessageKind::kValue;
  int32_t id = 0;
  int micro_batches = 1;
};

// All that stages of a plan send each other, evaluations aside: what a receiver that did not look at the sender would take.
std::vector<StageMessage> MessagesOf(const workload::Workload& workload, const std::vector<int>& stage_of_op, int stages) {
  const autodiff::TrainingGraph& training = workload.training;
  const std::vector<int> placement = autodiff::Place(training, stage_of_op);
  std::vector<StageMessage> messages;
  for (int to = 0; to < stages; ++to) {
    const auto program = runtime::BuildStageProgram(training, placement, to, stages, runtime::Recompute::kNone);
    EXPECT_TRUE(program.ok()) << program.status();
    for (const runtime::Pass* const pass : {&program->forward, &program->backward}) {
      for (const runtime::CutEdge& edge : pass->receives) {
        messages.push_back({edge.peer, to, MessageKind::kValue, edge.value, workload.micro_batches});
      }
    }
    for (size_t use = 0; use < training.uses.size(); ++use) {
      const std::vector<int>& sharers = program->sharers[static_cast<size_t>(training.uses[use].parameter)];
      const int from = placement[static_cast<size_t>(training.uses[use].op)];
      const bool shares = std::find(sharers.begin(), sharers.end(), to) != sharers.end();
      if (shares && from != to) messages.push_back({from, to, MessageKind::kUseGradient, static_cast<int32_t>(use)});
    }
    if (to > 0) messages.push_back({0, to, MessageKind::kDecision});
    if (to > 0) messages.push_back({to, 0, MessageKind::kReport, to});
  }
  return messages;
}

// Of what is sent in their place: within every limit of size, and nothing that the receiver could go on with.
constexpr size_t kForgedBytes = 40;

class HostileExecutorTest : public JoinTest {
 protected:
  // A certificate of the run for this name, bought with its token; it lies in the folder of the name.
  services::Credentials Enrolled(const std::string& name) {
    JoinOptions options;
    options.address = address_;
    options.token = token_;
    options.name = name;
    const auto bought = Enroll(options);
    EXPECT_TRUE(bought.ok()) << bought.status();
    EXPECT_TRUE(security::WriteCredentials(folder_ / name, name, {bought->ca_pem, bought->certificate_pem, bought->private_key_pem}).ok());
    return *services::LoadCredentials(folder_ / name, name);
  }
  // A machine that joins in good faith: the executor that `fusionctl join` would start, of which a test has the process.
  integration::Program Honest() {
    (void)Enrolled("honest");
    JoinOptions options;
    options.address = address_;
    const std::vector<std::string> command = ExecutorCommand(options, /*bin_folder=*/"", "honest", folder_ / "honest");
    return {"fusion-executor", {command.begin() + 1, command.end()}, HonestLog()};
  }
  std::string HonestLog() const { return folder_ / "honest.log"; }
  // Of the executor that the run itself has started.
  std::string LocalLog() const { return Out("run") + "/logs/local-0.log"; }
  std::unique_ptr<transport::GrpcRelayEndpoint> AtTheRelay(const services::Credentials& credentials) {
    transport::EndpointOptions options;
    options.name = "mallory";
    options.job_hash = credentials.job_hash;
    auto made = transport::GrpcRelayEndpoint::Create(options, {.address = address_, .credentials = credentials.channel});
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  // The messages of the run's plan, which has a stage for each of these devices.
  void PlannedMessages(const Fusionctl& run, const std::vector<std::string>& devices, std::vector<StageMessage>& messages) const {
    const auto job = job::ParseFusionJob(base::ReadWholeFile(job_), "job.yaml");
    ASSERT_TRUE(job.ok()) << job.status();
    const auto workload = workload::Resolve(*job, folder_ / "mine");
    ASSERT_TRUE(workload.ok()) << workload.status();
    const autodiff::TrainingGraph& training = (*workload)->training;
    const auto& lines = run.lines();
    const auto plan = std::find_if(lines.begin(), lines.end(), [](const auto& line) { return line.value("type", "") == "plan"; });
    ASSERT_NE(plan, lines.end());
    ASSERT_EQ((*plan)["stages"].size(), devices.size());
    std::vector<int> stage_of_op(static_cast<size_t>(training.forward_ops), 0);
    for (size_t stage = 0; stage < devices.size(); ++stage) {
      const nlohmann::json& planned = (*plan)["stages"][stage];
      ASSERT_EQ(planned["devices"][0], devices[stage]);
      for (const std::string& name : planned["ops"].get<std::vector<std::string>>()) {
        const opdag::OpId op = training.graph.FindOp(name);
        ASSERT_TRUE(op >= 0 && op < training.forward_ops) << name;
        stage_of_op[static_cast<size_t>(op)] = static_cast<int>(stage);
      }
    }
    messages = MessagesOf(**workload, stage_of_op, static_cast<int>(devices.size()));
  }
  // That the run and the machine that joined it in good faith came to the same losses as a run of one process.
  void ExpectUnharmed(Fusionctl& run, integration::Program& honest, const Fusionctl& alone) {
    EXPECT_EQ(run.Wait(), 0) << run.words() << base::ReadWholeFile(HonestLog());
    EXPECT_EQ(honest.Wait(), 0) << base::ReadWholeFile(HonestLog());
    EXPECT_EQ(run.LossBits(), alone.LossBits());
    for (const char* reason : {"ExecutorLost", "Recovering", "CheckpointFailed"}) {
      EXPECT_TRUE(run.Event(reason).is_null()) << run.Event(reason);
    }
  }
};

TEST_F(HostileExecutorTest, MessagesOfAnEnrolledNonMemberChangeNoLoss) {
  const auto alone = Alone(kLong);
  ASSERT_EQ(alone->Wait(), 0) << alone->words();
  ASSERT_THAT(alone->LossBits(), SizeIs(kSteps));
  const auto run = Listen(2, kLong);
  const services::Credentials credentials = Enrolled("mallory");
  integration::Program honest = Honest();
  const auto mallory = AtTheRelay(credentials);
  transport::testing::Mailbox answers;
  answers.Listen(*mallory);
  const std::vector<std::string> devices = {"local-0", "honest"};  // by stage: one of them has the data
  int64_t pings = 0;
  const auto ping = [&] {
    for (const std::string& device : devices) {
      transport::MessageHeader header{.job_hash = credentials.job_hash, .epoch = kProbeEpoch, .step = ++pings};
      header.direction = kPing;
      EXPECT_TRUE(mallory->Send(device, header, transport::Payload::Of("relay:mallory\n")).ok());
    }
  };
  ASSERT_TRUE(run->WaitForStep(1)) << run->words() << base::ReadWholeFile(HonestLog());
  ping();
  ASSERT_TRUE(answers.WaitForMessages(2)) << "she reaches both";
  // While one of the two stands still, both stand in the same step or the next, of which neither has had all messages: whatever step that
  // is, those that follow come before those of their owners, at a time when they would be taken.
  honest.Signal(SIGSTOP);
  std::vector<StageMessage> messages;
  PlannedMessages(*run, devices, messages);
  ASSERT_THAT(messages, Not(IsEmpty()));
  for (int64_t step = 1; step <= kSteps; ++step) {
    for (const StageMessage& message : messages) {
      for (int micro_batch = 0; micro_batch < message.micro_batches; ++micro_batch) {
        transport::MessageHeader header{.job_hash = credentials.job_hash, .epoch = 1, .step = step, .micro_batch = micro_batch};
        header.direction = static_cast<uint8_t>(message.kind);
        header.channel = static_cast<uint32_t>(message.id);
        const std::string& to = devices[static_cast<size_t>(message.to)];
        ASSERT_TRUE(mallory->Send(to, header, transport::Payload::Of(std::string(kForgedBytes, '\x40'))).ok());
      }
    }
  }
  ping();
  EXPECT_TRUE(answers.WaitForMessages(3)) << "the one that does not stand still has had all of it";
  honest.Signal(SIGCONT);
  EXPECT_TRUE(answers.WaitForMessages(4)) << "and so has the other";
  ExpectUnharmed(*run, honest, *alone);
  for (const std::string& log : {LocalLog(), HonestLog()}) {
    EXPECT_THAT(base::ReadWholeFile(log), HasSubstr("refused a message of mallory: it has no part in the plan"));
  }
}

}  // namespace
}  // namespace fusionllm::cli
