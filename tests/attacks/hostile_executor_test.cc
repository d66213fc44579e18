// A machine that a run has enrolled, against the run's real processes: as one that has no part in the plan and writes to the stages, as one
// that attends and reports what is not so, and as one with a stage that speaks for the others. These train what they would have trained
// without it.
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
#include "tests/attacks/probes.h"
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
  const std::vector<int> placement = autodiff::AssignStages(training, stage_of_op);
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
      if (shares && from != to) messages.push_back({from, to, MessageKind::kPerUseGradient, static_cast<int32_t>(use)});
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
    for (const nlohmann::json& line : run.lines()) {
      if (line.value("reason", "") == "ExecutorLost" && line.value("device", "") == "mallory") continue;  // she has no stage to lose
      for (const char* reason : {"ExecutorLost", "Recovering", "CheckpointFailed"}) EXPECT_NE(line.value("reason", ""), reason) << line;
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

TEST_F(HostileExecutorTest, ReportsOfAnExecutorWithoutAStageEndNothing) {
  const auto alone = Alone(kLong);
  ASSERT_EQ(alone->Wait(), 0) << alone->words();
  const auto run = Listen(2, kLong);
  const services::Credentials credentials = Enrolled("mallory");
  integration::Program honest = Honest();
  ASSERT_TRUE(run->WaitForStep(1)) << run->words() << base::ReadWholeFile(HonestLog());
  honest.Signal(SIGSTOP);  // so that the run is not over before all is said

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
  honest.Signal(SIGCONT);
  ExpectUnharmed(*run, honest, *alone);
}

// An executor put together as services/executor/main.cc does, in this process. It trains its stage as any other; but after each of the
// first steps it says to the other stages and to the broker what only others of the plan have to say.
class ForgingExecutor {
 public:
  // Of a checkpoint that the run saves.
  static constexpr int64_t kCheckpointStep = 10;
  static constexpr double kEvaluatedLoss = 0.0009765625;  // which no other evaluation has

  ForgingExecutor(const std::string& address, const services::Credentials& credentials, int64_t steps)
      : steps_(steps),
        data_plane_(*services::DataPlane::Create({.name = kName, .incarnation = incarnation_, .relay_address = address, .reachable = false},
                                                 credentials)),
        port_(data_plane_->Attach(0, {}, nullptr, nullptr)),
        checkpoints_({.address = address, .credentials = credentials.channel, .executor = kName}),
        session_({.address = address, .credentials = credentials.channel}),
        host_({.name = kName,
               .incarnation = incarnation_,
               .build_version = services::kBuildVersion,
               .device = kernels::ChooseDevice("auto")->backend,
               .access = {.closed = true}},
              *data_plane_, checkpoints_, executor_metrics_, [this](v1::ExecutorMessage report) { Report(std::move(report)); }),
        runner_([this] {
          status_ = session_.Run([this] { return host_.Hello(); }, [this](const v1::BrokerMessage& message) { OnMessage(message); });
        }) {}
  ~ForgingExecutor() {
    if (!runner_.joinable()) return;
    session_.Stop();
    (void)Wait();
  }
  // Until the broker has sent it home: OK.
  absl::Status Wait() {
    runner_.join();
    host_.Shutdown();
    data_plane_->Close();
    return status_;
  }
  // Since Wait.
  int64_t forged() const { return forged_; }

 private:
  static constexpr char kName[] = "mallory";

  // On the session's thread.
  void OnMessage(const v1::BrokerMessage& message) {
    if (message.has_welcome()) welcome_ = message.welcome();
    if (message.has_assign()) Study(message.assign());
    host_.OnMessage(message);  // which hands it to the stage's thread
  }
  void Study(const v1::Assign& assign) {
    const auto job = job::ParseFusionJob(welcome_.job_document(), "job.yaml");
    ASSERT_TRUE(job.ok()) << job.status();
    const auto workload = workload::Resolve(*job, welcome_.base_directory());
    ASSERT_TRUE(workload.ok()) << workload.status();
    const auto assigned = services::ReadAssignedPlan(assign, **workload);
    ASSERT_TRUE(assigned.ok()) << assigned.status();
    epoch_ = assign.epoch();
    stage_ = assign.stage();
    stages_ = assign.peers_size();
    of_others_ = MessagesOf(**workload, assigned->stage_of_op, stages_);
    std::erase_if(of_others_, [this](const StageMessage& message) { return message.from == stage_ || message.to == stage_; });
  }
  // On the stage's thread: no other stage ends the next step before this one has gone on.
  void Report(v1::ExecutorMessage report) {
    const bool stepped = report.has_times();
    const int64_t step = report.times().step();
    session_.Report(std::move(report));
    if (!stepped || step > kCheckpointStep) return;
    for (const int64_t ahead : {1, 2}) SpeakForStages(step + ahead);
    SpeakForStageZero(step + 1);
    if (step + 1 == kCheckpointStep) SpeakForShards();
    Evaluate(step + 1, 1.5);
    Evaluate(steps_ + step, 0.5);
  }
  void SpeakForStages(int64_t step) {
    for (const StageMessage& message : of_others_) {
      for (int micro_batch = 0; micro_batch < message.micro_batches; ++micro_batch) {
        const MessageKey key{.step = step, .kind = message.kind, .micro_batch = micro_batch, .id = message.id};
        if (port_.Send(message.to, key, runtime::Payload(kForgedBytes, std::byte{0x40})).ok()) ++forged_;
      }
    }
  }
  void SpeakForStageZero(int64_t step) {
    v1::ExecutorMessage message;
    v1::StepReport& done = *message.mutable_step();
    done.set_epoch(epoch_);
    done.set_step(step);
    done.set_loss(1000);
    done.set_gradient_norm(1);
    done.set_learning_rate(1);
    done.set_step_seconds(1);
    done.set_counted(1);
    session_.Report(std::move(message));
  }
  void SpeakForShards() {
    for (int stage = 0; stage < stages_; ++stage) {
      if (stage == stage_) continue;
      v1::ExecutorMessage message;
      v1::ShardReport& shard = *message.mutable_shard();
      shard.set_epoch(epoch_);
      shard.set_step(kCheckpointStep);
      shard.set_stage(stage);
      shard.set_error("the disk is full");
      session_.Report(std::move(message));
    }
  }
  void Evaluate(int64_t step, double accuracy) {
    v1::ExecutorMessage message;
    v1::EvaluationReport& evaluation = *message.mutable_evaluation();
    evaluation.set_epoch(epoch_);
    evaluation.set_step(step);
    evaluation.set_loss(kEvaluatedLoss);
    evaluation.set_accuracy(accuracy);
    session_.Report(std::move(message));
  }

  const int64_t steps_;  // of the run
  const uint64_t incarnation_ = static_cast<uint64_t>(absl::ToUnixNanos(absl::Now()));
  metrics::Registry registry_{"test", "0"};
  services::ExecutorMetrics executor_metrics_{registry_, kName};
  const std::unique_ptr<services::DataPlane> data_plane_;
  runtime::MessagePort& port_;
  services::CheckpointClient checkpoints_;
  services::BrokerSession session_;
  v1::Welcome welcome_;
  // Since Study; read after the host has been told of the same order.
  uint32_t epoch_ = 0;
  int stage_ = 0, stages_ = 0;
  std::vector<StageMessage> of_others_;
  std::atomic<int64_t> forged_ = 0;
  absl::Status status_;
  services::StageHost host_;
  std::thread runner_;
};

TEST_F(HostileExecutorTest, StageThatSpeaksForTheOthersChangesNoLoss) {
  constexpr int64_t kFewSteps = 20;
  const Settings settings = {absl::StrCat("spec.training.steps=", kFewSteps),
                             absl::StrCat("spec.checkpoint={path: checkpoints, everySteps: ", ForgingExecutor::kCheckpointStep, "}")};
  const auto alone = Alone(settings);
  ASSERT_EQ(alone->Wait(), 0) << alone->words();
  ASSERT_THAT(alone->LossBits(), SizeIs(kFewSteps));
  const auto run = Listen(3, settings);
  const services::Credentials credentials = Enrolled("mallory");
  integration::Program honest = Honest();
  ForgingExecutor mallory(address_, credentials, kFewSteps);
  ExpectUnharmed(*run, honest, *alone);
  const absl::Status sent_home = mallory.Wait();
  EXPECT_TRUE(sent_home.ok()) << sent_home;
  EXPECT_GT(mallory.forged(), 0);
  for (const std::string& log : {LocalLog(), HonestLog()}) {
    EXPECT_THAT(base::ReadWholeFile(log), HasSubstr("refused a message of mallory: "));
  }
  for (const nlohmann::json& line : run->lines()) {
    const bool is_forged = line.value("type", "") == "eval" && line["loss"] == ForgingExecutor::kEvaluatedLoss;
    EXPECT_FALSE(is_forged) << line;
  }
  for (const char* step : {"step-000010", "step-000020"}) {
    Fusionctl verify(folder_, "verify", {"checkpoint", "verify", absl::StrCat(Out("run"), "/checkpoints/", step)});
    EXPECT_EQ(verify.Wait(), 0) << verify.words();
  }
}

}  // namespace
}  // namespace fusionllm::cli
