#include "services/executor/data_plane.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "lib/base/testing/port_forwarder.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/parse.h"
#include "lib/runtime/testing/small_networks.h"
#include "lib/security/grpc_messages/testing/compressed_call.h"
#include "lib/transport/shared_buckets.h"
#include "services/grpc_server.h"

namespace fusionllm::services {
namespace {

TEST(DataPlaneTest, AnswersHealthChecks) {
  const auto credentials = LoadCredentials("", "a");
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  auto data_plane = DataPlane::Create({.name = "a", .incarnation = 1}, *credentials);
  ASSERT_TRUE(data_plane.ok()) << data_plane.status();
  const auto channel = grpc::CreateChannel((*data_plane)->address(), grpc::InsecureChannelCredentials());
  const absl::Status health = CheckHealth(*channel, absl::Seconds(60));
  EXPECT_TRUE(health.ok()) << health;
  (*data_plane)->Close();
  EXPECT_FALSE(CheckHealth(*channel, absl::Seconds(60)).ok());
}

TEST(DataPlaneTest, ACompressedCallIsRefused) {
  const auto credentials = LoadCredentials("", "a");
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  const auto data_plane = DataPlane::Create({.name = "a", .incarnation = 1}, *credentials);
  ASSERT_TRUE(data_plane.ok()) << data_plane.status();
  EXPECT_EQ(security::CodeOfCompressedCall((*data_plane)->address()), grpc::StatusCode::UNIMPLEMENTED);
}

class AdvertisedTest : public ::testing::Test {
 protected:
  // Listens somewhere, and is to be dialled at `port`.
  std::unique_ptr<DataPlane> Behind(base::PortForwarder& port, const std::string& name) {
    auto data_plane = DataPlane::Create({.name = name, .advertised_address = port.address(), .incarnation = 1}, credentials_);
    EXPECT_TRUE(data_plane.ok()) << data_plane.status();
    if (!data_plane.ok()) return nullptr;
    const std::string listening = (*data_plane)->site_address();
    int target = 0;
    EXPECT_TRUE(absl::SimpleAtoi(listening.substr(listening.rfind(':') + 1), &target)) << listening;
    port.To(target);
    return *std::move(data_plane);
  }
  const Credentials credentials_ = *LoadCredentials("", "");
  base::PortForwarder to_a_, to_b_;
};

TEST_F(AdvertisedTest, PeersDialWhatIsAdvertisedBothWays) {
  const auto a = Behind(to_a_, "a"), b = Behind(to_b_, "b");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_EQ(b->address(), to_b_.address());
  a->SetPeer("b", b->address());
  EXPECT_TRUE(a->Probe("b").ok());
  EXPECT_GT(to_b_.bytes(), 128 << 10) << "what a asked";
  EXPECT_GT(to_a_.bytes(), 0) << "what b answered, which was told by a alone where a is";
}

TEST_F(AdvertisedTest, PeersOfTheSameSiteDoNotGoRoundByIt) {
  const auto a = Behind(to_a_, "a"), b = Behind(to_b_, "b");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  a->SetPeer("b", b->site_address(), /*same_site=*/true);
  EXPECT_TRUE(a->Probe("b").ok());
  EXPECT_EQ(to_a_.bytes() + to_b_.bytes(), 0);
}

TEST_F(AdvertisedTest, WhoListensOnAllAddressesHasOneForAllPeers) {
  const auto a =
      DataPlane::Create({.name = "a", .listen_address = "0.0.0.0:0", .advertised_address = "lab.example.org:7001"}, credentials_);
  ASSERT_TRUE(a.ok()) << a.status();
  EXPECT_EQ((*a)->address(), "lab.example.org:7001");
  EXPECT_EQ((*a)->site_address(), "");
  const auto plain = DataPlane::Create({.name = "a"}, credentials_);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ((*plain)->site_address(), "");
}

TEST_F(AdvertisedTest, AddressesThatCannotBeDialedAreNotAdvertised) {
  const auto a = DataPlane::Create({.name = "a", .advertised_address = "lab:0"}, credentials_);
  EXPECT_EQ(a.status().code(), absl::StatusCode::kInvalidArgument) << a.status();
}

// What the stages of an epoch say to each other; the step of their first messages is the epoch's number.
std::shared_ptr<runtime::Inbox> InboxOf(int stage, int stages, uint32_t epoch) {
  static const autodiff::TrainingGraph training = runtime::testing::SmallGpt2(/*tied=*/false);
  auto inbox = std::make_shared<runtime::Inbox>();
  runtime::testing::ExpectMessages(training, stage, stages, /*replicas=*/1, epoch, *inbox);
  return inbox;
}

// A stage's part in one epoch.
struct Attached {
  Attached(DataPlane& data_plane, uint32_t epoch, int stage, const std::vector<std::string>& stages)
      : inbox(InboxOf(stage, static_cast<int>(stages.size()), epoch)),
        port(data_plane.Attach(epoch, stages, inbox, [losses = losses](const std::string&) { ++*losses; })) {}

  const std::shared_ptr<runtime::Inbox> inbox;
  const std::shared_ptr<std::atomic<int>> losses = std::make_shared<std::atomic<int>>(0);
  runtime::MessagePort& port;
};

// A peer that is started again under its name, while the connections to its former process may seem well.
class RestartedPeerTest : public ::testing::Test {
 protected:
  std::unique_ptr<DataPlane> Make(const std::string& name, uint64_t incarnation) {
    auto made = DataPlane::Create({.name = name, .incarnation = incarnation}, credentials_);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  // Both say something, which arrives.
  static void ExpectTheyTalk(Attached& a, Attached& b, int64_t step) {
    const runtime::MessageKey report{.step = step, .kind = runtime::MessageKind::kReport, .id = 1};
    const runtime::MessageKey decision{.step = step, .kind = runtime::MessageKind::kDecision};
    ASSERT_TRUE(b.port.Send(0, report, runtime::Payload(10)).ok());
    ASSERT_TRUE(a.port.Send(1, decision, runtime::Payload(10)).ok());
    ASSERT_TRUE(a.inbox->Take(report).ok()) << a.inbox->status();
    EXPECT_TRUE(b.inbox->Take(decision).ok()) << b.inbox->status();
    EXPECT_EQ(*a.losses + *b.losses, 0);
  }
  // In epoch 1, which is over then.
  void TalkToTheFormerProcess() {
    a_->SetPeer("b", former_->address(), false, 1);
    former_->SetPeer("a", a_->address(), false, 1);
    Attached a(*a_, 1, 0, {"a", "b"}), b(*former_, 1, 1, {"a", "b"});
    ExpectTheyTalk(a, b, 1);
    a_->Detach(1);
  }
  void TalkToTheNewProcess(uint32_t epoch) {
    a_->SetPeer("b", b_->address(), false, 2);
    b_->SetPeer("a", a_->address(), false, 1);
    Attached a(*a_, epoch, 0, {"a", "b"}), b(*b_, epoch, 1, {"a", "b"});
    ExpectTheyTalk(a, b, epoch);
  }
  const Credentials credentials_ = *LoadCredentials("", "");
  const std::unique_ptr<DataPlane> a_ = Make("a", 1), former_ = Make("b", 1), b_ = Make("b", 2);
};

TEST_F(RestartedPeerTest, MessagesOfEvaluationsAreCountedByThemselvesInEachEpoch) {
  a_->SetPeer("b", b_->address(), false, 2);
  const auto send = [](Attached& a, runtime::MessageKind kind, size_t bytes) {
    ASSERT_TRUE(a.port.Send(1, {.step = 1, .kind = kind}, runtime::Payload(bytes)).ok());
  };
  {
    Attached a(*a_, 1, 0, {"a", "b"});
    send(a, runtime::MessageKind::kValue, 1000);
    EXPECT_EQ(a_->evaluation_bytes("b"), 0);
    send(a, runtime::MessageKind::kEvaluation, 30);
    send(a, runtime::MessageKind::kEvaluation, 4);
    EXPECT_EQ(a_->evaluation_bytes("b"), 34);
    EXPECT_EQ(a_->evaluation_bytes("nobody"), 0);
  }
  Attached again(*a_, 2, 0, {"a", "b"});
  EXPECT_EQ(a_->evaluation_bytes("b"), 0);
}

TEST_F(RestartedPeerTest, AnEpochWithTheNewProcessDoesNotTakeItsFirstWordForALoss) {
  TalkToTheFormerProcess();
  TalkToTheNewProcess(/*epoch=*/2);
}

TEST_F(RestartedPeerTest, ANewProcessThatHasAlreadyProbedKeepsItsConnection) {
  TalkToTheFormerProcess();
  Attached without_b(*a_, 2, 0, {"a"});
  b_->SetPeer("a", a_->address(), false, 1);
  const auto probed = b_->Probe("a");
  ASSERT_TRUE(probed.ok()) << probed.status();
  EXPECT_EQ(*without_b.losses, 0);
  a_->Detach(2);
  TalkToTheNewProcess(/*epoch=*/3);
}

// The worker sets the emulation up; the network is in use by then.
TEST(DataPlaneTest, EmulationComesOrFailsWhileTheNetworkIsInUse) {
  const auto credentials = LoadCredentials("", "a");
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  const auto a = DataPlane::Create({.name = "a", .incarnation = 1}, *credentials);
  const auto b = DataPlane::Create({.name = "b", .incarnation = 1}, *credentials);
  ASSERT_TRUE(a.ok() && b.ok());
  const auto topology = job::ParseTopology(R"(
apiVersion: fusionllm.io/v1alpha1
kind: Topology
metadata: {name: pair}
spec:
  sites:
  - name: here
    devices: [{name: a, memory: 1Gi}, {name: b, memory: 1Gi}]
    internal: {bandwidth: 10Gbit, latency: 1us}
)",
                                           "topology.yaml");
  ASSERT_TRUE(topology.ok()) << topology.status();
  const auto links = job::LinkTable::Create(*topology);
  ASSERT_TRUE(links.ok()) << links.status();
  (*a)->SetPeer("b", (*b)->address());

  base::TempFolder folder;
  ASSERT_TRUE(transport::SharedBuckets::Create(folder / "empty", std::vector<transport::BucketSpec>{{"else", 1e6}}).ok());
  EXPECT_FALSE((*a)->Emulate(*links, folder / "empty").ok());
  EXPECT_TRUE((*a)->Probe("b").ok()) << "as before";

  std::vector<transport::BucketSpec> buckets;
  for (const auto& [from, to] : {std::pair("a", "b"), std::pair("b", "a")}) {
    const auto link = links->Between(from, to);
    ASSERT_TRUE(link.ok()) << link.status();
    for (const job::LinkResource& resource : link->path) {
      const auto same = [&](const transport::BucketSpec& bucket) { return bucket.name == resource.name; };
      if (std::none_of(buckets.begin(), buckets.end(), same)) buckets.push_back({.name = resource.name, .bytes_per_s = 1e9});
    }
  }
  ASSERT_TRUE(transport::SharedBuckets::Create(folder / "links", buckets).ok());
  {
    std::atomic<bool> over = false;
    const std::jthread session([&] {
      for (uint32_t epoch = 1; !over; ++epoch) (*a)->Detach(epoch % 100);
    });
    EXPECT_TRUE((*a)->Emulate(*links, folder / "links").ok());
    EXPECT_TRUE((*b)->Emulate(*links, folder / "links").ok());
    EXPECT_TRUE((*a)->Probe("b").ok());
    over = true;
  }
}

}  // namespace
}  // namespace fusionllm::services
