// Shards that stay in their sites, in one process: the broker's exchange and fetcher, and executors of two sites with a folder each.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/archive/folder_mirror_target.h"
#include "lib/archive/mirror.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/catalog.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/reader.h"
#include "lib/checkpoint/testing/sample.h"
#include "proto/fusionllm/v1/broker.pb.h"
#include "services/broker/checkpoint_exchange.h"
#include "services/broker/shard_fetcher.h"
#include "services/broker/testing/held_tensors.h"
#include "services/executor/checkpoint_io.h"
#include "services/executor/site_shard_server.h"

namespace fusionllm::services {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
namespace fs = std::filesystem;

constexpr char kId[] = "0123456789abcdef";
constexpr char kFile[] = "model-00002-of-00002.safetensors";

// An executor outside of the broker's folder.
struct Executor {
  Executor(const std::string& address, const std::string& name, const std::string& folder)
      : client({.address = address, .credentials = grpc::InsecureChannelCredentials(), .executor = name}),
        store(folder, kId, name),
        restorer(SharedFiles(), client, &store) {
    keeper.emplace(store, client);
  }
  CheckpointClient client;
  checkpoint::SiteStore store;
  StageRestorer restorer;
  std::optional<SiteShardServer> keeper;
};

class SiteShardsTest : public ::testing::Test {
 protected:
  SiteShardsTest() {
    exchange_ =
        std::make_unique<CheckpointExchange>(CheckpointExchangeOptions{.checkpoint_directory = root_,
                                                                       .total_steps = 100,
                                                                       .require_certificate = false,
                                                                       .shard_fetcher = &fetcher_,
                                                                       .free_bytes = [this](const std::string&) { return room_.load(); }});
    exchange_->OnProgress([this] { ++progress_; });
    exchange_->OnUnusable([this](uint32_t epoch, const std::string& path, const absl::Status& why) {
      const std::lock_guard lock(mutex_);
      unusable_.push_back(absl::StrCat(epoch, " ", fs::path(path).filename().string(), ": ", std::string(why.message())));
    });
    fetcher_.OnFetched([this](const checkpoint::FileEntry& file, const std::string& executor) {
      const std::lock_guard lock(mutex_);
      recalled_.push_back(absl::StrCat(file.name, " by ", executor));
    });
    fetcher_.SendBy([this](const std::string& name, const v1::BrokerMessage& order) {
      ++asked_;
      if (breaks_ > 0) {
        --breaks_;
        return false;
      }
      if (mute_.contains(name)) return true;
      executors_.at(name)->keeper->OnSend(order.send_shard());
      return true;
    });
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(exchange_.get());
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
    for (const std::string name : {"paris-0", "paris-1", "tokyo-0"}) {
      executors_[name] = std::make_unique<Executor>(address_, name, SiteFolder(name));
    }
    fetcher_.AddExecutor("paris-0", "paris");
    fetcher_.AddExecutor("tokyo-0", "tokyo");
  }
  ~SiteShardsTest() override {
    fetcher_.Close();
    exchange_->Close();
    for (const auto& [name, executor] : executors_) executor->client.Cancel(std::numeric_limits<uint32_t>::max());
    executors_.clear();
    server_->Shutdown();
  }

  std::string SiteFolder(const std::string& executor) const { return folder_ / executor.substr(0, executor.find('-')); }

  // Stage 0 beside the broker, stage 1 by paris-0 in its site; then the epoch that restores it.
  std::string Save(int64_t step) {
    checkpoint::Manifest manifest = checkpoint::SampleManifest(step);
    manifest.files = *checkpoint::WriteShard(root_, step, 0, 2, SampleShard(tensors_, step, 0));
    auto files = *executors_.at("paris-0")->store.Write(1, step, 1, 2, SampleShard(tensors_, step, 1));
    for (checkpoint::FileEntry& file : files) {
      file.site = "paris";
      manifest.files.push_back(file);
    }
    const auto committed = checkpoint::CommitCheckpoint(root_, manifest, 0);
    EXPECT_TRUE(committed.ok()) << committed.status();
    exchange_->Open({.number = 2,
                     .devices = {"local-0", "paris-0", "paris-1", "tokyo-0"},
                     .restore_from = committed->path,
                     .tensors = Held({{"layer.0.weight"}, {"layer.1.weight"}, {"layer.1.weight"}, {"layer.1.weight"}})});
    return committed->path;
  }

  static StageRestorer::SiteFiles FilesIn(const std::string& site, const std::string& checkpoint) {
    StageRestorer::SiteFiles files;
    const checkpoint::Manifest manifest = *checkpoint::LoadManifest(checkpoint);
    for (const checkpoint::FileEntry& file : manifest.files) {
      if (file.site != site) continue;
      v1::SiteFile& out = *files.Add();
      out.set_name(file.name);
      out.set_site_folder(file.site_folder);
      out.set_bytes(file.bytes);
      out.set_sha256(file.sha256);
    }
    return files;
  }

  // The tensors of stage 1, by an executor; the first value of each, or the error.
  absl::StatusOr<std::vector<float>> Restore(const std::string& executor, const std::string& checkpoint) {
    tensor::Tensor weight({tensor::DType::kF32, {2, 3}}), moment({tensor::DType::kF32, {2, 3}});
    const std::string site = executor.substr(0, executor.find('-'));
    const auto position = executors_.at(executor)->restorer.Read(
        2, checkpoint, FilesIn(site, checkpoint), {{"layer.1.weight", weight.view()}, {"layer.1.weight.exp_avg", moment.view()}});
    if (!position.ok()) return position.status();
    EXPECT_EQ(position->step, 20);
    EXPECT_EQ(position->samples_consumed, 640);
    return std::vector<float>{weight.f32()[0], moment.f32()[0]};
  }

  std::string PathIn(const std::string& site, const std::string& checkpoint) const {
    for (const v1::SiteFile& file : FilesIn(site, checkpoint)) {
      if (file.name() == kFile) return absl::StrCat(folder_ / site, "/shards/", file.site_folder(), "/", kFile);
    }
    return "";
  }

  const base::TempFolder folder_;
  const std::string root_ = folder_ / "run/checkpoints";
  checkpoint::SampleTensors tensors_;
  std::atomic<int64_t> room_ = int64_t{1} << 40;
  std::atomic<int> progress_ = 0, asked_ = 0;
  std::atomic<int> breaks_ = 0;  // orders that do not arrive
  std::mutex mutex_;
  std::vector<std::string> unusable_, recalled_;
  std::set<std::string> mute_;
  ShardFetcher fetcher_{{.absence_timeout = std::chrono::milliseconds(0),
                         .silence_timeout = std::chrono::milliseconds(2000),
                         .round_pause = std::chrono::milliseconds(1)}};
  std::unique_ptr<CheckpointExchange> exchange_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::map<std::string, std::unique_ptr<Executor>> executors_;
};

TEST_F(SiteShardsTest, AnExecutorReadsWhatLiesInItsSiteAndNothingCrosses) {
  const std::string saved = Save(20);
  EXPECT_FALSE(fs::exists(absl::StrCat(saved, "/", kFile)));
  for (const char* executor : {"paris-0", "paris-1"}) {
    const auto read = Restore(executor, saved);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_THAT(*read, ElementsAre(20010, 20110)) << executor << ": two of a site share its folder";
  }
  EXPECT_EQ(progress_, 0) << "no byte of a tensor came from the broker";
  EXPECT_EQ(asked_, 0);
  EXPECT_FALSE(fs::exists(absl::StrCat(saved, "/", kFile)));
}

TEST_F(SiteShardsTest, WhatLiesInAnotherSiteIsAskedForOnceAndServed) {
  const std::string saved = Save(20);
  for (int i = 0; i < 2; ++i) {
    const auto read = Restore("tokyo-0", saved);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_THAT(*read, ElementsAre(20010, 20110));
  }
  EXPECT_THAT(recalled_, ElementsAre("model-00002-of-00002.safetensors by paris-0", "optimizer-00002-of-00002.safetensors by paris-0"));
  EXPECT_THAT(checkpoint::CheckpointReader::Open(saved, checkpoint::SiteFilesPolicy::kSkip)->files_in_other_sites(), SizeIs(1))
      << "the residuals";
  EXPECT_TRUE(unusable_.empty());
}

TEST_F(SiteShardsTest, AFileThatIsDamagedThereMakesTheCheckpointUnusableWithItsNameAndSite) {
  const std::string saved = Save(20);
  std::fstream file(PathIn("paris", saved), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\x55');
  file.close();
  for (const char* executor : {"paris-0", "tokyo-0"}) {
    unusable_.clear();
    const absl::Status status = Restore(executor, saved).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr(kFile), HasSubstr("step-000020 lies in site paris"), HasSubstr("paris-0"), HasSubstr("checksum")));
    EXPECT_THAT(unusable_, ElementsAre(AllOf(HasSubstr("2 step-000020: "), HasSubstr(kFile), HasSubstr("site paris"))));
  }
  EXPECT_FALSE(fs::exists(absl::StrCat(saved, "/", kFile)));
}

TEST_F(SiteShardsTest, AMissingFileIsReportedInTheReadersWords) {
  const std::string saved = Save(20);
  ASSERT_GT(fs::remove_all(folder_ / "paris"), 0u);
  const absl::Status status = Restore("paris-0", saved).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(status.message(), AllOf(HasSubstr("site paris"), HasSubstr("paris-0: "), HasSubstr("No such file")));
  EXPECT_THAT(unusable_, SizeIs(1));
}

// Root reads all files: a link to itself cannot be opened by anyone.
TEST_F(SiteShardsTest, ReportsUnreadableSiteFileWithoutBlockingOthers) {
  const std::string saved = Save(20), path = PathIn("paris", saved);
  fs::remove(path);
  fs::create_symlink(kFile, path);
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status status = Restore("tokyo-0", saved).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(status.message(), AllOf(HasSubstr("paris-0: "), HasSubstr(path), HasSubstr("symbolic links")));
  const auto next = checkpoint::CheckpointReader::Open(saved, checkpoint::SiteFilesPolicy::kSkip)->files_in_other_sites().at(1);
  const absl::Status brought = fetcher_.FetchShard(saved, next, [] { return false; });
  EXPECT_TRUE(brought.ok()) << brought;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60)) << "far from the patience with a broker that is away";
}

TEST_F(SiteShardsTest, WhatIsNoFileIsReportedAndNotWaitedFor) {
  const std::string saved = Save(20), path = PathIn("paris", saved);
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  for (const char* executor : {"paris-0", "tokyo-0"}) {
    const absl::Status status = Restore(executor, saved).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("paris-0: "), HasSubstr(path), HasSubstr("not a regular file")));
  }
}

TEST_F(SiteShardsTest, AReadErrorIsNotTriedAgainAndComesWithWhatTheBrokerSays) {
  const std::string path = folder_ / "loop";
  fs::create_symlink("loop", path);
  const absl::Status unasked = executors_.at("paris-0")->client.SendFile(77, kFile, path);
  EXPECT_THAT(unasked.message(), AllOf(HasSubstr("symbolic links"), HasSubstr("the broker says: "), HasSubstr("was not asked")));
}

TEST_F(SiteShardsTest, AFileThatStopsBeingReadableIsReportedInTheReadersWords) {
  const std::string saved = Save(20);
  mute_.insert("paris-0");
  auto read = std::async(std::launch::async, [&] { return Restore("tokyo-0", saved); });
  while (asked_ == 0) std::this_thread::yield();
  const auto stub =
      v1::CheckpointExchange::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));  // says what a file system might
  grpc::ClientContext context;
  v1::ShardFileReceipt receipt;
  const auto writer = stub->PutShardFile(&context, &receipt);
  v1::ShardFilePiece piece;
  piece.mutable_header()->set_executor("paris-0");
  piece.mutable_header()->set_recall(1);
  piece.mutable_header()->set_name(kFile);
  piece.mutable_header()->set_bytes(static_cast<int64_t>(fs::file_size(PathIn("paris", saved))));
  writer->Write(piece);
  piece.Clear();
  piece.set_data("some");
  writer->Write(piece);
  piece.Clear();
  piece.mutable_header()->set_error("cannot read it: Input/output error");
  writer->Write(piece);
  writer->WritesDone();
  EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_THAT(std::string(read.get().status().message()), HasSubstr("paris-0: cannot read it: Input/output error"));
  EXPECT_EQ(asked_, 1) << "it would say so again";
}

TEST_F(SiteShardsTest, ASiteWithoutExecutorsIsWaitedForOnceAndNotAgain) {
  const std::string saved = Save(20);
  fetcher_.RemoveExecutor("paris-0");
  const absl::Status status = Restore("tokyo-0", saved).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(status.message(), AllOf(HasSubstr("site paris"), HasSubstr("no executor of that site")));
  EXPECT_THAT(unusable_, SizeIs(1));
  fetcher_.AddExecutor("paris-1", "paris");
  EXPECT_TRUE(Restore("tokyo-0", saved).ok()) << "another of the site has come";
  EXPECT_THAT(recalled_, ElementsAre(HasSubstr("by paris-1"), HasSubstr("by paris-1")));
}

TEST_F(SiteShardsTest, WhoIsSilentIsPassedOverForAnotherOfItsSite) {
  const std::string saved = Save(20);
  mute_.insert("paris-0");
  fetcher_.AddExecutor("paris-1", "paris");
  const auto read = Restore("tokyo-0", saved);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(*read, ElementsAre(20010, 20110));
}

TEST_F(SiteShardsTest, AConnectionThatBreaksSaysNothingAboutTheFile) {
  const std::string saved = Save(20);
  breaks_ = 2;
  const auto read = Restore("tokyo-0", saved);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(unusable_.empty());
  const checkpoint::FileEntry residuals =
      checkpoint::CheckpointReader::Open(saved, checkpoint::SiteFilesPolicy::kSkip)->files_in_other_sites().at(0);
  breaks_ = 100;
  const absl::Status broken = fetcher_.FetchShard(saved, residuals, [] { return false; });
  EXPECT_TRUE(absl::IsUnavailable(broken)) << broken << ": a copy of the checkpoint is tried again";
  EXPECT_THAT(broken.message(), AllOf(HasSubstr("site paris"), HasSubstr("paris-0: it is not connected")));
}

TEST_F(SiteShardsTest, AnEpochThatEndsEndsTheWaiting) {
  const std::string saved = Save(20);
  mute_.insert("paris-0");
  auto read = std::async(std::launch::async, [&] { return Restore("tokyo-0", saved); });
  while (asked_ == 0) std::this_thread::yield();
  exchange_->Close();
  EXPECT_TRUE(absl::IsCancelled(read.get().status()));
  EXPECT_TRUE(unusable_.empty()) << "nothing is known of the checkpoint";
}

TEST_F(SiteShardsTest, ADiskThatIsFullHereSaysNothingAboutTheCheckpoint) {
  const std::string saved = Save(20);
  room_ = 10;
  const absl::Status status = Restore("tokyo-0", saved).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(unusable_.empty());
}

TEST_F(SiteShardsTest, AFolderThatCannotBeWrittenHereSaysNothingAboutTheCheckpoint) {
  const std::string saved = Save(20);
  fs::create_directories(absl::StrCat(saved, "/.", kFile, ".recalled/in-the-way"));  // where the file would come to
  const absl::Status status = Restore("tokyo-0", saved).status();
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr(".recalled"));
  EXPECT_TRUE(unusable_.empty());
}

TEST_F(SiteShardsTest, NothingIsTakenThatWasNotAskedFor) {
  const std::string saved = Save(20), path = PathIn("paris", saved);
  EXPECT_TRUE(absl::IsPermissionDenied(executors_.at("paris-0")->client.SendFile(77, kFile, path)));
  mute_.insert("paris-0");
  auto read = std::async(std::launch::async, [&] { return Restore("tokyo-0", saved); });
  while (asked_ == 0) std::this_thread::yield();
  EXPECT_TRUE(absl::IsPermissionDenied(executors_.at("tokyo-0")->client.SendFile(1, kFile, path))) << "another was asked";
  const absl::Status other = executors_.at("paris-0")->client.SendFile(1, "optimizer-00002-of-00002.safetensors", path);
  EXPECT_TRUE(absl::IsDataLoss(other)) << other;
  EXPECT_FALSE(read.get().ok());
  EXPECT_FALSE(fs::exists(absl::StrCat(saved, "/", kFile)));
}

TEST_F(SiteShardsTest, AReplicaIsWholeWithFilesOfAllSites) {
  const std::string saved = Save(20);
  {
    archive::Mirror mirror(
        [&](archive::Transfer transfer) { return std::make_unique<archive::FolderMirrorTarget>(folder_ / "replica", transfer); },
        {.initial_backoff = absl::Milliseconds(10)});
    mirror.GatherBy([&](const std::string& folder, const std::vector<checkpoint::FileEntry>& files, const std::stop_token& stop,
                        const std::function<void()>& moved) {
      for (const checkpoint::FileEntry& file : files) {
        const absl::Status brought = fetcher_.FetchShard(
            folder, file, [&stop] { return stop.stop_requested(); }, moved);
        if (!brought.ok()) return brought;
      }
      return absl::OkStatus();
    });
    mirror.Offer(saved, 20);
    const absl::Status copied = mirror.Finish(absl::Seconds(60), {});
    ASSERT_TRUE(copied.ok()) << copied;
  }
  EXPECT_THAT(recalled_, SizeIs(3));
  const std::string copy = folder_ / "replica/step-000020";
  ASSERT_GT(fs::remove_all(folder_ / "paris"), 0u);
  EXPECT_TRUE(checkpoint::VerifyCheckpoint(copy).ok()) << checkpoint::VerifyCheckpoint(copy);
}

// By then there may be devices, and checkpoints, of which it knows nothing.
TEST_F(SiteShardsTest, AnOrderToRemoveDoesNotWaitBehindAFileThatIsBeingSent) {
  const std::string saved = Save(20);
  const std::string path = PathIn("paris", saved);
  const int silent = socket(AF_INET, SOCK_STREAM, 0);  // connections are taken, and nothing is said
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(silent, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(silent, 4), 0);
  ASSERT_EQ(getsockname(silent, reinterpret_cast<sockaddr*>(&address), &size), 0);
  Executor executor(absl::StrCat("127.0.0.1:", ntohs(address.sin_port)), "paris-0", SiteFolder("paris-0"));
  v1::SendShard send;
  send.set_recall(1);
  *send.mutable_file() = FilesIn("paris", saved).Get(0);
  executor.keeper->OnSend(send);
  v1::KeepShards keep;
  keep.set_epoch(1);
  keep.set_step(30);
  executor.keeper->OnKeep(keep);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (fs::exists(path) && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_FALSE(fs::exists(path));
  executor.client.Cancel(std::numeric_limits<uint32_t>::max());
  executor.keeper.reset();
  close(silent);
}

TEST_F(SiteShardsTest, OrdersToRemoveAreCarriedOutBeforeTheEnd) {
  const std::string saved = Save(20);
  const std::string path = PathIn("paris", saved);
  ASSERT_TRUE(fs::exists(path));
  v1::KeepShards keep;
  keep.set_epoch(1);
  keep.set_step(30);
  Executor& executor = *executors_.at("paris-0");
  executor.keeper->OnKeep(keep);
  executor.keeper.reset();
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace fusionllm::services
