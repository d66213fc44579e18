// The orders of a broker, as a host takes them that cannot follow any.
#include "services/executor/stage_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <vector>

#include "lib/base/testing/temp_folder.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {
namespace {

using ::testing::HasSubstr;

class StageHostTest : public ::testing::Test {
 protected:
  // Waits for the report of this number, from 0.
  v1::ExecutorMessage Report(size_t number) {
    std::unique_lock lock(mutex_);
    const bool came = news_.wait_for(lock, std::chrono::seconds(60), [&] { return reports_.size() > number; });
    EXPECT_TRUE(came) << "report " << number;
    return came ? reports_[number] : v1::ExecutorMessage();
  }

  std::mutex mutex_;
  std::condition_variable news_;
  std::vector<v1::ExecutorMessage> reports_;

  const Credentials credentials_ = *LoadCredentials("", "a");
  const std::unique_ptr<DataPlane> data_plane_ = *DataPlane::Create({.name = "a"}, credentials_);
  CheckpointClient checkpoints_{{.address = "127.0.0.1:0", .credentials = credentials_.channel, .executor = "a"}};
  metrics::Registry registry_{"test", "0"};
  ExecutorMetrics executor_metrics_{registry_, "a"};
  StageHost host_{{.name = "a"}, *data_plane_, checkpoints_, executor_metrics_, [this](v1::ExecutorMessage message) {
                    const std::lock_guard lock(mutex_);
                    reports_.push_back(std::move(message));
                    news_.notify_all();
                  }};
};

TEST_F(StageHostTest, WhoCannotTakePartSaysSoToEveryBrokerThatWelcomesIt) {
  v1::BrokerMessage welcome;
  welcome.mutable_welcome()->set_job_document("spec: {}");
  host_.OnMessage(welcome);
  EXPECT_THAT(Report(0).calibration().error(), HasSubstr("job.yaml:1"));
  host_.OnMessage(welcome);  // from a broker that was started again: it does not know
  EXPECT_THAT(Report(1).calibration().error(), HasSubstr("job.yaml:1"));
}

class StageHostInASiteTest : public StageHostTest {
 protected:
  // A process of an executor that a broker has welcomed.
  std::unique_ptr<StageHost> Welcomed(uint64_t incarnation, const std::string& shards_id) {
    auto host = std::make_unique<StageHost>(HostOptions{.name = "a", .site_checkpoints = site_, .incarnation = incarnation}, *data_plane_,
                                            checkpoints_, executor_metrics_, [this](v1::ExecutorMessage message) {
                                              const std::lock_guard lock(mutex_);
                                              reports_.push_back(std::move(message));
                                              news_.notify_all();
                                            });
    v1::BrokerMessage welcome;
    welcome.mutable_welcome()->set_shards_id(shards_id);
    welcome.mutable_welcome()->set_job_document("spec: {}");  // it cannot take part, which changes nothing of what lies in the site
    host->OnMessage(welcome);
    return host;
  }

  const base::TempFolder folder_;
  const std::string site_ = folder_ / "site";
};

TEST_F(StageHostInASiteTest, AnOrderToRemoveThatWasMeantForAnotherLifeOfTheExecutorIsNotFollowed) {
  const std::string shard = folder_.Write("site/shards/0123456789abcdef/a/step-000010.fedcba9876543210/model.safetensors", "x");
  v1::BrokerMessage keep;
  keep.mutable_keep_shards()->set_epoch(1);
  keep.mutable_keep_shards()->set_step(5);
  keep.mutable_keep_shards()->set_incarnation(6);
  size_t reports = 0;
  for (const uint64_t incarnation : {uint64_t{7}, uint64_t{6}}) {
    const auto host = Welcomed(incarnation, "0123456789abcdef");
    Report(reports++);
    host->OnMessage(keep);
    host->Shutdown();
    EXPECT_EQ(std::filesystem::exists(shard), incarnation == 7);
  }
}

TEST_F(StageHostInASiteTest, ABrokerThatNamesAPathInsteadOfAnIdIsRefused) {
  const auto host = Welcomed(7, "../../elsewhere");
  EXPECT_THAT(Report(0).calibration().error(), HasSubstr("folder for shards"));
}

}  // namespace
}  // namespace fusionllm::services
