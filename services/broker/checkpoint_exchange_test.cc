#include "services/broker/checkpoint_exchange.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <limits>
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/source_file.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/testing/sample.h"
#include "lib/security/credential_files.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/broker/testing/held_tensors.h"
#include "services/credentials.h"

namespace fusionllm::services {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr char kModel[] = "model-00002-of-00002.safetensors";

std::string Sum(absl::string_view text) {
  checkpoint::Sha256 hash;
  hash.Update(std::as_bytes(std::span(text.data(), text.size())));
  return hash.HexDigest();
}

class CheckpointExchangeTest : public ::testing::Test {
 protected:
  CheckpointExchangeTest() { Serve({}, grpc::InsecureServerCredentials(), grpc::InsecureChannelCredentials()); }
  ~CheckpointExchangeTest() override { server_->Shutdown(); }

  void Serve(CheckpointExchangeOptions options, const std::shared_ptr<grpc::ServerCredentials>& server,
             const std::shared_ptr<grpc::ChannelCredentials>& channel) {
    if (server_ != nullptr) server_->Shutdown();
    options.checkpoint_directory = root_;
    options.total_steps = 100;
    options.require_certificate = channel != nullptr && secure_;
    exchange_ = std::make_unique<CheckpointExchange>(std::move(options));
    exchange_->OnProgress([this] { ++progress_; });
    exchange_->Open({.number = 3,
                     .devices = {"local-0", "lab"},
                     .memory_bytes = {0, 1 << 20},
                     .restore_from = restore_from_,
                     .tensors = Held({{"layer.0.weight", "tied"}, {"layer.1.weight", "tied", "big", "layer.9.weight"}})});
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", server, &port);
    builder.RegisterService(exchange_.get());
    server_ = builder.BuildAndStart();
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("broker");
    stub_ = v1::CheckpointExchange::NewStub(grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port), channel, arguments));
  }
  void ServeInsecure(CheckpointExchangeOptions options = {}) {
    Serve(std::move(options), grpc::InsecureServerCredentials(), grpc::InsecureChannelCredentials());
  }

  struct Sent {
    std::string executor = "lab", name = kModel, text = "some bytes";
    uint32_t epoch = 3;
    int64_t step = 50;
    int stage = 1;
    std::optional<int64_t> bytes;    // announced; the text's
    std::optional<std::string> sum;  // the text's
  };
  grpc::Status Put(const Sent& sent) {
    grpc::ClientContext context;
    v1::ShardFileReceipt receipt;
    const auto writer = stub_->PutShardFile(&context, &receipt);
    v1::ShardFilePiece piece;
    v1::ShardFileHeader& header = *piece.mutable_header();
    header.set_executor(sent.executor);
    header.set_epoch(sent.epoch);
    header.set_step(sent.step);
    header.set_stage(sent.stage);
    header.set_name(sent.name);
    header.set_bytes(sent.bytes.value_or(static_cast<int64_t>(sent.text.size())));
    writer->Write(piece);
    piece.Clear();
    piece.set_data(sent.text);
    piece.set_sha256(sent.sum.value_or(Sum(sent.text)));
    writer->Write(piece);
    writer->WritesDone();
    return writer->Finish();
  }
  void ExpectRefused(const Sent& sent, grpc::StatusCode code, const std::string& words) {
    const grpc::Status status = Put(sent);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(words));
    EXPECT_TRUE(!fs::exists(root_) || fs::is_empty(root_)) << words << ": something was left";
    EXPECT_FALSE(fs::exists(folder_ / "evil")) << words;
  }

  std::pair<grpc::Status, std::vector<v1::TensorPiece>> Fetch(v1::FetchTensorsRequest::Source source, const std::vector<std::string>& names,
                                                              const std::string& executor = "lab", uint32_t epoch = 3) {
    grpc::ClientContext context;
    v1::FetchTensorsRequest request;
    request.set_executor(executor);
    request.set_epoch(epoch);
    request.set_source(source);
    for (const std::string& name : names) request.add_names(name);
    const auto reader = stub_->FetchTensors(&context, request);
    std::vector<v1::TensorPiece> pieces;
    v1::TensorPiece piece;
    while (reader->Read(&piece)) pieces.push_back(piece);
    return {reader->Finish(), pieces};
  }

  const base::TempFolder folder_;
  const std::string root_ = folder_ / "checkpoints";
  std::string restore_from_;
  bool secure_ = false;
  std::atomic<int> progress_ = 0;
  std::unique_ptr<CheckpointExchange> exchange_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::CheckpointExchange::Stub> stub_;
};

TEST_F(CheckpointExchangeTest, AFileAppearsWhereTheCommitterLooks) {
  const grpc::Status status = Put({});
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(*base::ReadSmallFile(checkpoint::StagingFolder(root_, 50) + "/" + kModel, 100), "some bytes");
  EXPECT_GE(progress_, 1);
}

TEST_F(CheckpointExchangeTest, NamesThatAreNoneOfTheStagesFilesAreRefused) {
  for (const std::string name :
       {"../../evil", "/tmp/evil", "", ".", "manifest.json", "latest", "model-00001-of-00002.safetensors",
        "model-00002-of-00003.safetensors", "model-00002-of-00002.safetensors/../../../evil", "model.safetensors"}) {
    ExpectRefused({.name = name}, grpc::StatusCode::INVALID_ARGUMENT, "stage 1 of 2 has no file called");
  }
  ExpectRefused({.name = std::string("model-00002-of-00002.safetensors\0evil", 37)}, grpc::StatusCode::INVALID_ARGUMENT, "no file called");
}

TEST_F(CheckpointExchangeTest, LengthsAndChecksumsAreVerified) {
  ExpectRefused({.bytes = 9}, grpc::StatusCode::OUT_OF_RANGE, "more than the 9 bytes");
  ExpectRefused({.bytes = 11}, grpc::StatusCode::DATA_LOSS, "after 10 of the 11 bytes");
  ExpectRefused({.sum = Sum("other bytes")}, grpc::StatusCode::DATA_LOSS, "checksum");
  ExpectRefused({.sum = "no checksum"}, grpc::StatusCode::DATA_LOSS, "checksum");
  for (const int64_t absurd : {int64_t{-1}, int64_t{0}, int64_t{1} << 50, std::numeric_limits<int64_t>::max()}) {
    ExpectRefused({.bytes = absurd}, grpc::StatusCode::INVALID_ARGUMENT, "files of stage 1 have from 1 to");
  }
  ExpectRefused({.step = -1}, grpc::StatusCode::INVALID_ARGUMENT, "step -1 of a run of 100");
  ExpectRefused({.step = 101}, grpc::StatusCode::INVALID_ARGUMENT, "step 101");
}

TEST_F(CheckpointExchangeTest, OnlyTheEpochsDevicesAreHeardAndEachForItsStage) {
  ExpectRefused({.executor = "stranger"}, grpc::StatusCode::PERMISSION_DENIED, "'stranger' runs no stage");
  ExpectRefused({.name = "model-00001-of-00002.safetensors", .stage = 0}, grpc::StatusCode::PERMISSION_DENIED, "runs stage 1, not stage 0");
  ExpectRefused({.epoch = 2}, grpc::StatusCode::ABORTED, "plan epoch 2 is not in force");
  exchange_->Close();
  ExpectRefused({}, grpc::StatusCode::ABORTED, "plan epoch 3 is not in force");
  EXPECT_EQ(Fetch(v1::FetchTensorsRequest::INIT, {}).first.error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(CheckpointExchangeTest, AStageCannotFillTheDiskWithStepsThatNoCheckpointHas) {
  ServeInsecure({.settle_timeout = absl::ZeroDuration()});
  for (const int64_t step : {50, 60, 70, 80}) ASSERT_TRUE(Put({.step = step}).ok()) << step;
  EXPECT_TRUE(Put({.step = 80}).ok()) << "again, as after a lost answer";
  const grpc::Status status = Put({.step = 90});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("files of stage 1 for 4 steps are here that no checkpoint has yet"));
  exchange_->Settled(50);
  EXPECT_TRUE(Put({.step = 90}).ok());
}

TEST_F(CheckpointExchangeTest, AStageThatSavesFasterThanCheckpointsAreCommittedWaits) {
  for (const int64_t step : {50, 60, 70, 80}) ASSERT_TRUE(Put({.step = step}).ok()) << step;
  std::future<grpc::Status> fifth = std::async(std::launch::async, [&] { return Put({.step = 90}); });
  EXPECT_EQ(fifth.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  exchange_->Settled(50);
  const grpc::Status status = fifth.get();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(CheckpointExchangeTest, ClosingTheEpochEndsAWaitForRoom) {
  for (const int64_t step : {50, 60, 70, 80}) ASSERT_TRUE(Put({.step = step}).ok()) << step;
  std::future<grpc::Status> fifth = std::async(std::launch::async, [&] { return Put({.step = 90}); });
  EXPECT_EQ(fifth.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  exchange_->Close();
  EXPECT_EQ(fifth.get().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(CheckpointExchangeTest, ATensorIsAskedForOnce) {
  const auto [status, pieces] = Fetch(v1::FetchTensorsRequest::INIT, {"big", "tied", "big"});
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("'big' is asked for twice"));
}

TEST_F(CheckpointExchangeTest, AnExecutorIsGivenNothingButWhatItsStageHolds) {
  restore_from_ = *checkpoint::SaveSample(folder_ / "elsewhere", 10, 2);
  ServeInsecure({.init_from = restore_from_});
  using Request = v1::FetchTensorsRequest;
  const auto refused = [&](Request::Source source, const std::string& name, const std::string& executor) {
    const auto [status, pieces] = Fetch(source, {name}, executor);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << name << " " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("plan epoch 3, which holds no tensor")) << name;
    EXPECT_TRUE(pieces.empty()) << name;
  };
  for (const char* name : {"layer.0.weight", "layer.0.weight.exp_avg", "edge.0", "", "no.such.tensor", "residual:s0.p0:0->s1.p0:4"}) {
    refused(Request::RESTORE, name, "lab");
    refused(Request::INIT, name, "lab");
  }
  refused(Request::RESTORE, "layer.1.weight", "local-0");
  refused(Request::INIT, "layer.1.weight.exp_avg", "lab");
  refused(Request::RESTORE, std::string(100'000, 'x'), "lab");
  EXPECT_TRUE(Fetch(Request::RESTORE, {"layer.1.weight", "layer.1.weight.exp_avg"}).first.ok());
  EXPECT_TRUE(Fetch(Request::RESTORE, {"layer.0.weight"}, "local-0").first.ok());
  EXPECT_TRUE(Fetch(Request::INIT, {"layer.1.weight"}).first.ok());
}

TEST_F(CheckpointExchangeTest, AStageOfAnotherPlanIsGivenWhatThatPlanGivesItAndReplicasAlike) {
  restore_from_ = *checkpoint::SaveSample(folder_ / "elsewhere", 10, 2);  // by two stages
  exchange_->Open({.number = 4,
                   .devices = {"lab", "a"},
                   .replicas = 2,
                   .restore_from = restore_from_,
                   .tensors = Held({{"layer.0.weight", "layer.1.weight"}})});
  for (const char* executor : {"lab", "a"}) {
    EXPECT_TRUE(Fetch(v1::FetchTensorsRequest::RESTORE, {"layer.0.weight", "layer.1.weight.exp_avg"}, executor, 4).first.ok()) << executor;
  }
}

TEST_F(CheckpointExchangeTest, OfSeveralReplicasTheFirstIsHeardAndAllAreGivenWhatTheyStartFrom) {
  exchange_->Open({.number = 3, .devices = {"local-0", "lab", "a", "b"}, .memory_bytes = {0, 1 << 20, 0, 0}, .replicas = 2});
  ExpectRefused({.executor = "b"}, grpc::StatusCode::PERMISSION_DENIED, "'b' runs stage 1 of replica 1: what is saved is replica 0's");
  EXPECT_TRUE(Put({}).ok()) << "as one of two stages";
  for (const char* executor : {"lab", "b"}) {  // both are heard
    EXPECT_THAT(Fetch(v1::FetchTensorsRequest::INIT, {}, executor).first.error_message(), HasSubstr("no spec.model.init.from")) << executor;
  }
}

TEST_F(CheckpointExchangeTest, AFullDiskIsReportedBeforeTheFirstByte) {
  ServeInsecure({.free_bytes = [](const std::string&) { return 9; }});
  ExpectRefused({}, grpc::StatusCode::RESOURCE_EXHAUSTED, "No space left for model-00002-of-00002.safetensors of 10 bytes from lab: 9 are");
}

TEST_F(CheckpointExchangeTest, ATransferEndsWithItsEpoch) {
  grpc::ClientContext context;
  v1::ShardFileReceipt receipt;
  const auto writer = stub_->PutShardFile(&context, &receipt);
  v1::ShardFilePiece piece;
  piece.mutable_header()->set_executor("lab");
  piece.mutable_header()->set_epoch(3);
  piece.mutable_header()->set_step(50);
  piece.mutable_header()->set_stage(1);
  piece.mutable_header()->set_name(kModel);
  piece.mutable_header()->set_bytes(10);
  ASSERT_TRUE(writer->Write(piece));
  piece.Clear();
  piece.set_data("some ");
  ASSERT_TRUE(writer->Write(piece));
  for (const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
       progress_ == 0 && std::chrono::steady_clock::now() < deadline;) {
    std::this_thread::yield();
  }
  ASSERT_GE(progress_, 1) << "the first bytes have arrived";
  exchange_->Close();
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  server_->Shutdown();  // its handlers have returned
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(CheckpointExchangeTest, SecondHeadersAndMissingOnesAreRefused) {
  for (const int headers : {0, 2}) {
    grpc::ClientContext context;
    v1::ShardFileReceipt receipt;
    const auto writer = stub_->PutShardFile(&context, &receipt);
    v1::ShardFilePiece piece;
    piece.set_data("x");
    if (headers == 2) {
      piece.mutable_header()->set_executor("lab");
      piece.mutable_header()->set_epoch(3);
      piece.mutable_header()->set_stage(1);
      piece.mutable_header()->set_name(kModel);
      piece.mutable_header()->set_bytes(10);
    }
    writer->Write(piece);
    writer->Write(piece);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("header"));
  }
}

TEST_F(CheckpointExchangeTest, TensorsComeByNameAsTheyAreStored) {
  restore_from_ = *checkpoint::SaveSample(folder_ / "elsewhere", 10, 2);
  ServeInsecure();
  const auto [status, pieces] = Fetch(v1::FetchTensorsRequest::RESTORE, {"layer.1.weight", "layer.1.weight.exp_avg"});
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(pieces.size(), 3);
  EXPECT_EQ(pieces[0].checkpoint().path(), restore_from_);
  EXPECT_EQ(pieces[0].checkpoint().step(), 10);
  EXPECT_EQ(pieces[0].checkpoint().samples_consumed(), 320);
  EXPECT_EQ(pieces[1].tensor().name(), "layer.1.weight");
  EXPECT_EQ(pieces[1].tensor().dtype(), "F32");
  ASSERT_EQ(pieces[1].tensor().shape_size(), 2);
  ASSERT_EQ(pieces[1].data().size(), 24);
  EXPECT_EQ(*reinterpret_cast<const float*>(pieces[1].data().data()), 10010);
  EXPECT_EQ(pieces[1].sha256(), Sum(pieces[1].data()));
}

TEST_F(CheckpointExchangeTest, LargeTensorsComeInPieces) {
  checkpoint::SampleTensors tensors;
  const std::string file = folder_ / "one.safetensors";
  ASSERT_TRUE(checkpoint::WriteSafetensors(file, tensors.Make({"big", "empty"}, 1, {1000, 1000})).ok());
  ServeInsecure({.init_from = file});
  const auto [status, pieces] = Fetch(v1::FetchTensorsRequest::INIT, {"big"});
  ASSERT_TRUE(status.ok()) << status.error_message();
  std::string data;
  for (const v1::TensorPiece& piece : pieces) {
    EXPECT_LE(piece.data().size(), 256 << 10);
    data += piece.data();
  }
  EXPECT_EQ(data.size(), 4'000'000);
  EXPECT_EQ(pieces.back().sha256(), Sum(data));
}

TEST_F(CheckpointExchangeTest, WhatIsNotThereIsNamed) {
  EXPECT_THAT(Fetch(v1::FetchTensorsRequest::RESTORE, {}).first.error_message(), HasSubstr("restores no checkpoint"));
  EXPECT_THAT(Fetch(v1::FetchTensorsRequest::INIT, {}).first.error_message(), HasSubstr("no spec.model.init.from"));
  EXPECT_EQ(Fetch(v1::FetchTensorsRequest::UNKNOWN, {}).first.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Fetch(v1::FetchTensorsRequest::INIT, {}, "stranger").first.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  restore_from_ = folder_ / "gone/step-000010";
  ServeInsecure();
  grpc::Status status = Fetch(v1::FetchTensorsRequest::RESTORE, {"tied"}).first;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("gone/step-000010 does not exist"));
  restore_from_ = *checkpoint::SaveSample(folder_ / "elsewhere", 10, 2);
  ServeInsecure();
  status = Fetch(v1::FetchTensorsRequest::RESTORE, {"layer.1.weight", "layer.9.weight"}).first;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("step-000010"), HasSubstr("no tensor 'layer.9.weight'")));
}

TEST_F(CheckpointExchangeTest, TheCertificateSaysWhoSends) {
  const auto authority = *security::CertificateAuthority::Create();
  const std::string tls = folder_ / "tls";
  for (const char* name : {"broker", "lab", "other"}) {
    ASSERT_TRUE(security::WriteCredentials(tls, name, *security::IssueCredentials(authority, name)).ok());
  }
  secure_ = true;
  const Credentials broker = *LoadCredentials(tls, "broker");
  Serve({}, broker.enrolling_server, LoadCredentials(tls, "lab")->channel);
  EXPECT_TRUE(Put({}).ok());
  Serve({}, broker.enrolling_server, LoadCredentials(tls, "other")->channel);
  EXPECT_EQ(Put({}).error_code(), grpc::StatusCode::PERMISSION_DENIED) << "a certificate of the job, but another's name";
  Serve({}, broker.enrolling_server, grpc::SslCredentials({.pem_root_certs = authority.certificate_pem()}));
  EXPECT_EQ(Put({}).error_code(), grpc::StatusCode::PERMISSION_DENIED) << "no certificate, as who enrolls";
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  v1::ShardFileReceipt receipt;
  EXPECT_EQ(stub_->PutShardFile(&context, &receipt)->Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED)
      << "it need not have said anything";
}

}  // namespace
}  // namespace fusionllm::services
