// The orders of a broker, as a host takes them that cannot follow any.
#include "services/executor/stage_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <vector>

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
  StageProbe probe_{registry_, "a"};
  StageHost host_{{.name = "a"}, *data_plane_, checkpoints_, probe_, [this](v1::ExecutorMessage message) {
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

}  // namespace
}  // namespace fusionllm::services
