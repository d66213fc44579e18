#include "services/executor/checkpoint_client.h"

#include <filesystem>
#include <future>
#include <limits>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/reader.h"
#include "lib/checkpoint/testing/sample.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/broker/checkpoint_exchange.h"
#include "services/broker/testing/held_tensors.h"

namespace fusionllm::services {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A broker under which a file becomes shorter when its header has come.
class ShorteningBroker final : public v1::CheckpointExchange::Service {
 public:
  explicit ShorteningBroker(std::string path) : path_(std::move(path)) {}
  grpc::Status PutShardFile(grpc::ServerContext*, grpc::ServerReader<v1::ShardFilePiece>* reader, v1::ShardFileReceipt*) override {
    ++calls;
    v1::ShardFilePiece piece;
    reader->Read(&piece);
    std::filesystem::resize_file(path_, 0);
    while (reader->Read(&piece)) last_error = piece.header().error();
    return {grpc::StatusCode::RESOURCE_EXHAUSTED, "this disk is full"};
  }
  std::string last_error;
  int calls = 0;

 private:
  const std::string path_;
};

class CheckpointClientTest : public ::testing::Test {
 protected:
  ~CheckpointClientTest() override { Hide(); }

  // The broker, where it was before if it was anywhere.
  void Show(const std::string& restore_from = "", const std::string& init_from = "") {
    exchange_ = std::make_unique<CheckpointExchange>(
        CheckpointExchangeOptions{.checkpoint_directory = root_, .init_from = init_from, .total_steps = 100, .require_certificate = false});
    exchange_->Open({.number = 1,
                     .devices = {"local-0", "lab"},
                     .memory_bytes = {0, 0},
                     .restore_from = restore_from,
                     .tensors = Held({{"first"}, {"layer.0.weight", "layer.1.weight", "w", "v", "a.count", "z.count"}})});
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port_), grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(exchange_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    if (!client_.has_value()) {
      client_.emplace(CheckpointClientOptions{
          .address = absl::StrCat("127.0.0.1:", port_), .credentials = grpc::InsecureChannelCredentials(), .executor = "lab"});
    }
  }
  void Hide() {
    if (server_ != nullptr) server_->Shutdown();
    server_.reset();
  }

  const base::TempFolder folder_;
  const std::string root_ = folder_ / "checkpoints";
  int port_ = 0;
  std::unique_ptr<CheckpointExchange> exchange_;
  std::unique_ptr<grpc::Server> server_;
  std::optional<CheckpointClient> client_;
  checkpoint::SampleTensors tensors_;
};

TEST_F(CheckpointClientTest, ShardsOfTwoMachinesMakeOneCheckpointThatIsReadBackByName) {
  Show();
  checkpoint::Manifest manifest = checkpoint::SampleManifest(20);
  manifest.files = *checkpoint::WriteShard(root_, 20, 0, 2, SampleShard(tensors_, 20, 0));
  const auto sent = client_->PutShard(1, 20, 1, 2, SampleShard(tensors_, 20, 1));
  ASSERT_TRUE(sent.ok()) << sent.status();
  ASSERT_EQ(sent->size(), 3);
  EXPECT_THAT((*sent)[1].tensors, ElementsAre("layer.1.weight.exp_avg", "layer.1.weight.exp_avg_sq"));
  manifest.files.insert(manifest.files.end(), sent->begin(), sent->end());
  const auto committed = checkpoint::CommitCheckpoint(root_, manifest, 0);
  ASSERT_TRUE(committed.ok()) << committed.status();
  EXPECT_TRUE(checkpoint::VerifyCheckpoint(committed->path).ok());

  Hide();
  Show(committed->path);
  tensor::Tensor weight({tensor::DType::kF32, {2, 3}}), moment({tensor::DType::kF32, {2, 3}});
  const auto position =
      client_->Fetch(1, v1::FetchTensorsRequest::RESTORE, {{"layer.0.weight", weight.view()}, {"layer.1.weight.exp_avg", moment.view()}});
  ASSERT_TRUE(position.ok()) << position.status();
  EXPECT_EQ(position->step, 20);
  EXPECT_EQ(position->samples_consumed, 640);
  EXPECT_EQ(weight.f32()[5], 20005);
  EXPECT_EQ(moment.f32()[0], 20110);
}

TEST_F(CheckpointClientTest, ACounterThatAStartLacksStaysAsItIsAndOfACheckpointItIsMissed) {
  const std::vector<float> values = {1, 2, 3};
  const std::string file = folder_ / "old.safetensors";
  ASSERT_TRUE(
      checkpoint::WriteSafetensors(file, std::vector<checkpoint::NamedTensor>{{"w", {{tensor::DType::kF32, {3}}, values.data()}}}).ok());
  Show(file, file);
  tensor::Tensor weight({tensor::DType::kF32, {3}}), first({tensor::DType::kI64, {}}), last({tensor::DType::kI64, {}});
  *last.as<int64_t>() = 7;
  const CheckpointClient::Wanted wanted = {{"a.count", first.view()}, {"w", weight.view()}, {"z.count", last.view()}};
  const auto fetched = client_->Fetch(1, v1::FetchTensorsRequest::INIT, wanted);
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(weight.f32()[2], 3);
  EXPECT_EQ(*last.as<int64_t>(), 7);
  EXPECT_TRUE(absl::IsNotFound(client_->Fetch(1, v1::FetchTensorsRequest::RESTORE, wanted).status()));
}

TEST_F(CheckpointClientTest, HalfWidthsAreWidenedAndOtherShapesRefused) {
  const std::vector<uint16_t> halves = {0x3C00, 0xC000, 0x0000};
  const std::string file = folder_ / "half.safetensors";
  ASSERT_TRUE(
      checkpoint::WriteSafetensors(file, std::vector<checkpoint::NamedTensor>{{"w", {{tensor::DType::kF16, {3}}, halves.data()}}}).ok());
  Show("", file);
  tensor::Tensor whole({tensor::DType::kF32, {3}}), wrong({tensor::DType::kF32, {4}});
  ASSERT_TRUE(client_->Fetch(1, v1::FetchTensorsRequest::INIT, {{"w", whole.view()}}).ok());
  EXPECT_EQ(whole.f32()[1], -2);
  const absl::Status status = client_->Fetch(1, v1::FetchTensorsRequest::INIT, {{"w", wrong.view()}}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("half.safetensors on the broker's machine is F16[3] but f32[4] is wanted"));
  EXPECT_TRUE(absl::IsNotFound(client_->Fetch(1, v1::FetchTensorsRequest::INIT, {{"v", whole.view()}}).status()));
}

TEST_F(CheckpointClientTest, AShardOutlivesItsBroker) {
  Show();
  Hide();
  auto sent = std::async(std::launch::async, [&] { return client_->PutShard(1, 20, 1, 2, SampleShard(tensors_, 20, 1)); });
  ASSERT_EQ(sent.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout) << "nobody is there to take it";
  Show();
  EXPECT_TRUE(sent.get().ok());
}

TEST_F(CheckpointClientTest, AFileOfTheSiteIsOfferedUntilTheBrokerCanBeReached) {
  folder_.Write("file", "bytes");
  Show();
  Hide();
  auto sent = std::async(std::launch::async, [&] { return client_->SendFile(1, "file", folder_ / "file"); });
  ASSERT_EQ(sent.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout) << "nobody is there to take it";
  Show();
  const absl::Status refused = sent.get();
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused << ": this broker has asked for none";
}

TEST_F(CheckpointClientTest, ReportsFileReadErrorOnceWithBrokersMessage) {
  const std::string path = folder_.Write("file", "");
  std::filesystem::resize_file(path, 256 << 20);  // more than is on its way at a time
  ShorteningBroker broker(path);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&broker);
  const auto server = builder.BuildAndStart();
  CheckpointClient client(
      {.address = absl::StrCat("127.0.0.1:", port), .credentials = grpc::InsecureChannelCredentials(), .executor = "lab"});
  const absl::Status sent = client.SendFile(1, "file", path);
  server->Shutdown();
  EXPECT_TRUE(absl::IsDataLoss(sent)) << sent;
  EXPECT_THAT(sent.message(), AllOf(HasSubstr("ends at byte"), HasSubstr("the broker says: this disk is full")));
  EXPECT_THAT(broker.last_error, HasSubstr("ends at byte"));
  EXPECT_EQ(broker.calls, 1);
}

TEST_F(CheckpointClientTest, WhoEndsOffersNoFileAnyMore) {
  folder_.Write("file", "bytes");
  Show();
  Hide();
  auto sent = std::async(std::launch::async, [&] { return client_->SendFile(1, "file", folder_ / "file"); });
  client_->Cancel(std::numeric_limits<uint32_t>::max());
  const absl::Status ended = sent.get();
  EXPECT_TRUE(absl::IsCancelled(ended)) << ended;
}

TEST_F(CheckpointClientTest, CancelEndsWhatWaitsAndWhatComesLater) {
  Show();
  Hide();
  auto sent = std::async(std::launch::async, [&] { return client_->PutShard(1, 20, 1, 2, SampleShard(tensors_, 20, 1)); });
  client_->Cancel(1);
  EXPECT_TRUE(absl::IsCancelled(sent.get().status()));
  Show();
  EXPECT_TRUE(absl::IsCancelled(client_->PutShard(1, 20, 1, 2, SampleShard(tensors_, 20, 1)).status()));
  EXPECT_TRUE(absl::IsCancelled(client_->Fetch(1, v1::FetchTensorsRequest::INIT, {}).status()));
}

TEST_F(CheckpointClientTest, AnEpochThatTheBrokerHasEndedCountsAsCancelled) {
  Show();
  exchange_->Close();
  EXPECT_TRUE(absl::IsCancelled(client_->PutShard(1, 20, 1, 2, SampleShard(tensors_, 20, 1)).status()));
}

TEST_F(CheckpointClientTest, ARefusalIsTheBrokersSentence) {
  Show();
  const absl::Status status = client_->PutShard(1, 101, 1, 2, SampleShard(tensors_, 101, 1)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("step 101 of a run of 100"));
}

}  // namespace
}  // namespace fusionllm::services
