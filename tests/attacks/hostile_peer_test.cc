// A peer with a certificate of the run says to an executor's data plane what it has no business to say: as one that has no part in the
// plan, and as a stage that speaks for another one.
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/parse.h"
#include "lib/runtime/testing/small_networks.h"
#include "lib/security/credential_files.h"
#include "lib/transport/grpc/grpc_endpoint.h"
#include "lib/transport/testing/mailbox.h"
#include "lib/wire/plan_json.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/executor/data_plane.h"
#include "services/executor/stage_epoch.h"
#include "tests/attacks/probes.h"

namespace fusionllm::services {
namespace {

using runtime::MessageKey;
using runtime::MessageKind;
using transport::testing::Mailbox;

constexpr uint32_t kEpoch = 3;
constexpr int64_t kStep = 7;

constexpr char kJob[] = R"(apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: small}
spec:
  model: {family: mlp, config: {layers: [192, 16, 16, 4]}}
  data: {kind: shapes, shapes: {samples: 16, imageSize: 8, numClasses: 4}}
  training: {steps: 2, globalBatchSize: 8, microBatchSize: 2}
)";

class HostilePeerTest : public ::testing::Test {
 protected:
  HostilePeerTest() : victim_(Member("victim")), stage_1_(Endpoint("stage-1")), mallory_(Endpoint("mallory")) {
    stage_1_mail_.Listen(*stage_1_);
    mallory_mail_.Listen(*mallory_);
    Attach();
  }

  // A certificate of the run's authority, as each enrolled name has one.
  Credentials Enrolled(const std::string& name) {
    EXPECT_TRUE(security::WriteCredentials(folder_ / "tls", name, *security::IssueCredentials(authority_, name)).ok());
    return *LoadCredentials(folder_ / "tls", name);
  }
  std::unique_ptr<DataPlane> Member(const std::string& name) {
    const Credentials credentials = Enrolled(name);
    job_hash_ = credentials.job_hash;
    auto made = DataPlane::Create({.name = name, .incarnation = 1}, credentials);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  // Says what it is told to, by hand.
  std::unique_ptr<transport::GrpcEndpoint> Endpoint(const std::string& name) {
    const Credentials credentials = Enrolled(name);
    transport::EndpointOptions options;
    options.name = name;
    options.job_hash = credentials.job_hash;
    auto made =
        transport::GrpcEndpoint::Create(options, {.server_credentials = credentials.server, .channel_credentials = credentials.channel});
    EXPECT_TRUE(made.ok()) << made.status();
    (*made)->SetPeerAddress("victim", victim_->address());
    return *std::move(made);
  }
  // The victim runs stage 0 of two.
  void Attach() {
    const std::vector<int> placement = autodiff::AssignStages(training_, runtime::testing::ContiguousStages(training_, 2));
    const auto program = runtime::BuildStageProgram(training_, placement, 0, 2, runtime::Recompute::kNone);
    ASSERT_TRUE(program.ok()) << program.status();
    gradient_ = program->backward.receives.front().value;
    runtime::testing::ExpectMessages(training_, /*stage=*/0, /*stages=*/2, /*replicas=*/1, kStep, *inbox_);
    victim_->SetPeer("stage-1", Address(*stage_1_));
    victim_->SetPeer("mallory", Address(*mallory_));
    victim_->Attach(kEpoch, {"victim", "stage-1"}, inbox_, [this](const std::string&) { ++losses_; });
  }
  static std::string Address(const transport::GrpcEndpoint& endpoint) { return "127.0.0.1:" + std::to_string(endpoint.port()); }

  transport::MessageHeader Header(const MessageKey& key) const {
    transport::MessageHeader header{.job_hash = job_hash_, .epoch = kEpoch, .step = key.step, .micro_batch = key.micro_batch};
    header.channel = static_cast<uint32_t>(key.id);
    header.direction = static_cast<uint8_t>(key.kind);
    return header;
  }
  void Say(transport::GrpcEndpoint& who, const MessageKey& key, size_t bytes) {
    ASSERT_TRUE(who.Send("victim", Header(key), transport::Payload::Of(std::string(bytes, 'x'))).ok());
  }
  // All that `who` has said before has been received: a probe goes behind it.
  void Settle(transport::GrpcEndpoint& who, Mailbox& mail) {
    transport::MessageHeader ping{.job_hash = job_hash_, .epoch = kProbeEpoch, .step = ++pings_};
    ping.direction = kPing;
    ASSERT_TRUE(who.Send("victim", ping, transport::Payload::Of(Address(who) + "\n")).ok());
    const size_t before = answered_[&who];
    ASSERT_TRUE(mail.WaitForMessages(before + 1)) << "no answer to a probe";
    answered_[&who] = before + 1;
  }
  bool Holds(const MessageKey& key) const {
    const MessageKey keys[] = {key};
    return inbox_->HasAll(keys);
  }

  const base::TempFolder folder_;
  const security::CertificateAuthority authority_ = *security::CertificateAuthority::Create();
  const autodiff::TrainingGraph training_ = runtime::testing::SmallGpt2(/*tied=*/false);
  const std::shared_ptr<runtime::Inbox> inbox_ = std::make_shared<runtime::Inbox>();
  std::atomic<int> losses_ = 0;
  opdag::ValueId gradient_ = 0;
  int64_t pings_ = 0;
  uint64_t job_hash_ = 0;
  std::map<transport::GrpcEndpoint*, size_t> answered_;
  Mailbox stage_1_mail_, mallory_mail_;
  std::unique_ptr<DataPlane> victim_;
  std::unique_ptr<transport::GrpcEndpoint> stage_1_, mallory_;
};

TEST_F(HostilePeerTest, AReportOfAnEnrolledNonMemberGivesWayToTheTrueOne) {
  const MessageKey report{.step = kStep, .kind = MessageKind::kReport, .id = 1};
  Say(*mallory_, report, 100);
  Settle(*mallory_, mallory_mail_);
  EXPECT_FALSE(Holds(report));
  Say(*stage_1_, report, 40);
  const auto taken = inbox_->Take(report, absl::Now() + absl::Seconds(60));
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->size(), 40u);
  EXPECT_EQ(losses_, 0) << "a stranger's word is no loss of a peer";
}

TEST_F(HostilePeerTest, NoMessageOfAnEnrolledNonMemberIsHeld) {
  for (int kind = 0; kind < runtime::kMessageKinds; ++kind) {
    const MessageKey key{.step = kStep, .kind = static_cast<MessageKind>(kind), .id = kind == 0 ? gradient_ : 1};
    Say(*mallory_, key, 64);
    Settle(*mallory_, mallory_mail_);
    EXPECT_FALSE(Holds(key)) << kind;
  }
}

TEST_F(HostilePeerTest, AStageCannotFillTheMemoryOfAnother) {
  constexpr size_t kLarge = size_t{8} << 20;
  for (int64_t step = kStep + 2; step < kStep + 8; ++step) {
    const MessageKey key{.step = step, .kind = MessageKind::kValue, .id = gradient_};
    Say(*stage_1_, key, 64);
    Settle(*stage_1_, stage_1_mail_);
    EXPECT_FALSE(Holds(key)) << "step " << step;
  }
  const MessageKey large{.step = kStep, .kind = MessageKind::kValue, .id = gradient_};
  Say(*stage_1_, large, kLarge);
  Settle(*stage_1_, stage_1_mail_);
  EXPECT_FALSE(Holds(large));
  // And the connection is as well as before.
  Say(*stage_1_, large, 64);
  EXPECT_TRUE(inbox_->Take(large, absl::Now() + absl::Seconds(60)).ok());
}

// adr/0036: also where something else of it was refused before.
TEST_F(HostilePeerTest, AReplicaThatSendsMoreThanItsShareBreaksTheEpochAfterAnEarlierRefusal) {
  const auto inbox = std::make_shared<runtime::Inbox>();
  runtime::testing::ExpectMessages(training_, /*stage=*/0, /*stages=*/1, /*replicas=*/2, kStep, *inbox);
  victim_->Attach(kEpoch, {"victim", "victim", "stage-1"}, inbox, [this](const std::string&) { ++losses_; });
  Say(*stage_1_, {.step = kStep, .kind = MessageKind::kReplica, .id = 0}, 64);  // as replica 0
  Settle(*stage_1_, stage_1_mail_);
  EXPECT_EQ(losses_, 0);
  const MessageKey large{.step = kStep, .kind = MessageKind::kReplica, .id = 1};
  Say(*stage_1_, large, size_t{160} << 20);
  EXPECT_TRUE(absl::IsUnavailable(inbox->Take(large, absl::Now() + absl::Seconds(60)).status()));
  EXPECT_EQ(losses_, 1);
}

// As an executor builds one from its broker's order.
TEST_F(HostilePeerTest, AnEpochThatWasAssignedTakesAStagesMessagesFromThatStageAlone) {
  constexpr uint32_t kAssigned = kEpoch + 1;
  const auto job = job::ParseFusionJob(kJob, "job.yaml");
  ASSERT_TRUE(job.ok()) << job.status();
  const auto workload = workload::Resolve(*job, "/");
  ASSERT_TRUE(workload.ok()) << workload.status();
  const autodiff::TrainingGraph& training = (*workload)->training;
  plan::Plan plan{.strategy = "op-fence",
                  .micro_batches = 4,
                  .micro_batch_size = 2,
                  .graph_hash = absl::StrFormat("%016x", (*workload)->graph_hash),
                  .replicas = 1};
  plan.stages.resize(2);
  for (int op = 0; op < training.forward_ops; ++op) {
    plan.stages[op < training.forward_ops / 2 ? 0 : 1].ops.push_back(training.graph.op(op).name);
  }
  v1::Assign assign;
  assign.set_epoch(kAssigned);
  assign.set_first_step(1);
  const std::vector<std::pair<std::string, std::string>> members = {{"victim", victim_->address()}, {"stage-1", Address(*stage_1_)}};
  for (const auto& [name, address] : members) {
    plan.stages[static_cast<size_t>(assign.peers_size())].index = assign.peers_size();
    plan.stages[static_cast<size_t>(assign.peers_size())].devices = {name};
    v1::PeerAddress& peer = *assign.add_peers();
    peer.set_name(name);
    peer.set_address(address);
  }
  plan.links = {{.src = "victim", .dst = "stage-1", .src_stage = 0, .dst_stage = 1, .codec = "fp32"},
                {.src = "stage-1", .dst = "victim", .src_stage = 1, .dst_stage = 0, .backward = true, .codec = "fp32"}};
  assign.set_plan_document(wire::PrintPlan(plan::PlanResult(plan)));

  const std::string name = "victim";
  const auto backend = *kernels::CreateBackend("cpu", {.threads = 1});
  CheckpointClient checkpoints({.address = "127.0.0.1:0", .credentials = grpc::InsecureChannelCredentials(), .executor = name});
  const StageRestorer restorer({}, checkpoints);
  std::unique_ptr<workload::DatasetSource> source;
  const StageContext setting{.name = name,
                             .workload = **workload,
                             .backend = *backend,
                             .data_plane = *victim_,
                             .restorer = restorer,
                             .source = source,
                             .open_data = [&] { return workload::DatasetSource::Open(**workload); }};
  StageEpoch epoch(assign);
  const absl::Status built = BuildStage(setting, assign, {}, epoch);
  ASSERT_TRUE(built.ok()) << built;
  const MessageKey report{.step = 1, .kind = MessageKind::kReport, .id = 1};
  const auto say = [&](transport::GrpcEndpoint& who, const MessageKey& key) {
    transport::MessageHeader header = Header(key);
    header.epoch = kAssigned;
    ASSERT_TRUE(who.Send("victim", header, transport::Payload::Of(std::string(40, 'x'))).ok());
  };
  say(*mallory_, report);
  Settle(*mallory_, mallory_mail_);
  say(*stage_1_, {.step = 1, .kind = MessageKind::kDecision});  // which is stage 0's own to make
  say(*stage_1_, {.step = 3, .kind = MessageKind::kReport, .id = 1});
  Settle(*stage_1_, stage_1_mail_);
  for (const MessageKey& key :
       {report, MessageKey{.step = 1, .kind = MessageKind::kDecision}, MessageKey{.step = 3, .kind = MessageKind::kReport, .id = 1}}) {
    const MessageKey keys[] = {key};
    EXPECT_FALSE(epoch.inbox->HasAll(keys)) << static_cast<int>(key.kind) << " of step " << key.step;
  }
  say(*stage_1_, report);
  EXPECT_TRUE(epoch.inbox->Take(report, absl::Now() + absl::Seconds(60)).ok());
  victim_->Detach(kAssigned);
}

// As an executor is between Attach and what its plan makes of it, were the order of these another one.
TEST_F(HostilePeerTest, AnInboxOfWhichNothingIsKnownTakesNothing) {
  const auto unknown = std::make_shared<runtime::Inbox>();
  victim_->Attach(kEpoch, {"victim", "stage-1"}, unknown, nullptr);
  const MessageKey key{.step = kStep, .kind = MessageKind::kValue, .id = gradient_};
  Say(*stage_1_, key, 64);
  Settle(*stage_1_, stage_1_mail_);
  const MessageKey keys[] = {key};
  EXPECT_FALSE(unknown->HasAll(keys));
}

// A ping says where its sender is met; a victim that believed any address would dial it.
TEST_F(HostilePeerTest, APingThatNamesAnotherPlaceThanItsSendersIsNotFollowed) {
  for (const std::string& address : {std::string("unix:/run/docker.sock"), std::string("relay:stage-1"), std::string("lab:0")}) {
    transport::MessageHeader ping{.job_hash = job_hash_, .epoch = kProbeEpoch, .step = 1000 + pings_};
    ping.direction = kPing;
    ASSERT_TRUE(mallory_->Send("victim", ping, transport::Payload::Of(address + "\n")).ok());
  }
  Settle(*mallory_, mallory_mail_);
  EXPECT_EQ(mallory_mail_.messages().size(), 1u) << "the answer to the last one alone";
}

// What is not expected is not even received: no memory is taken for it. A receiver that looked at whole messages alone would answer this.
TEST_F(HostilePeerTest, APingLargerThanAnyProbeIsNotReceived) {
  transport::MessageHeader ping{.job_hash = job_hash_, .epoch = kProbeEpoch, .step = 1000};
  ping.direction = kPing;
  std::string large = Address(*mallory_) + "\n";
  large.resize(size_t{9} << 20);
  ASSERT_TRUE(mallory_->Send("victim", ping, transport::Payload::Of(std::move(large))).ok());
  Settle(*mallory_, mallory_mail_);
  EXPECT_EQ(mallory_mail_.messages().size(), 1u) << "the answer to the last one alone";
}

TEST_F(HostilePeerTest, AnAnswerToAProbeCountsFromTheProbedPeerAlone) {
  std::mutex mutex;
  std::vector<transport::MessageHeader> unanswered;
  bool answers = false;
  std::condition_variable asked;
  const auto answer = [&](transport::MessageHeader header) {
    header.direction = kPong;
    EXPECT_TRUE(stage_1_->Send("victim", header, transport::Payload::Of(std::string(8, '\0'))).ok());
  };
  stage_1_->SetReceiver([&](absl::string_view, const transport::MessageHeader& ping, transport::Payload) {
    const std::lock_guard lock(mutex);
    if (answers) return answer(ping);
    unanswered.push_back(ping);
    asked.notify_all();
  });
  std::thread probe([&] { EXPECT_TRUE(victim_->Probe("stage-1").ok()); });
  {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(asked.wait_for(lock, std::chrono::seconds(30), [&] { return !unanswered.empty(); }));
  }
  for (int64_t number = 1; number < 40; ++number) {
    transport::MessageHeader pong{.job_hash = job_hash_, .epoch = kProbeEpoch, .step = number};
    pong.direction = kPong;
    ASSERT_TRUE(mallory_->Send("victim", pong, transport::Payload::Of(std::string(8, '\0'))).ok());
  }
  Settle(*mallory_, mallory_mail_);
  {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(unanswered.size(), 1u) << "its first round trip is not over";
    answers = true;
    for (const transport::MessageHeader& ping : unanswered) answer(ping);
  }
  probe.join();
}

}  // namespace
}  // namespace fusionllm::services
