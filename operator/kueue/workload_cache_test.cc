#include "operator/kueue/workload_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <nlohmann/json.hpp>

#include "lib/kube/client/rest_client.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_clock.h"
#include "operator/kueue/kueue_workload.h"
#include "operator/manifests/identity.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::kueue {
namespace {

using nlohmann::json;

class WorkloadCacheTest : public ::testing::Test {
 protected:
  ~WorkloadCacheTest() override { cache_.Stop(); }
  // What comes from threads of the cache, within a limit.
  template <class Holds>
  bool Eventually(const Holds& holds) {
    std::unique_lock lock(mutex_);
    for (int i = 0; i < 1000; ++i) {
      if (holds()) return true;
      changed_.wait_for(lock, std::chrono::milliseconds(10));
    }
    return false;
  }
  void Create(const std::string& name, const std::string& job) {
    // Without its owner it would be collected at once.
    server_.Serve(manifests::kFusionJobs);
    const json owner = {
        {"apiVersion", manifests::kFusionJobs.ApiVersion()}, {"kind", manifests::kFusionJobs.kind}, {"metadata", {{"name", job}}}};
    const auto owned_by = static_cast<kube::ApiClient&>(client_).Create(manifests::kFusionJobs, "default", owner.dump());
    ASSERT_TRUE(owned_by.ok()) << owned_by.status();
    const json uid = json::parse(*owned_by)["metadata"]["uid"];
    const json workload = {
        {"apiVersion", "kueue.x-k8s.io/v1beta2"},
        {"kind", "Workload"},
        {"metadata",
         {{"name", name},
          {"labels", {{manifests::kJobUidLabel, "u1"}}},
          {"ownerReferences",
           {{{"apiVersion", "fusionllm.io/v1alpha1"}, {"kind", "FusionJob"}, {"name", job}, {"uid", uid}, {"controller", true}}}}}}};
    const auto created = static_cast<kube::ApiClient&>(client_).Create(kWorkloads, "default", workload.dump());
    ASSERT_TRUE(created.ok()) << created.status();
    version_ = json::parse(*created)["metadata"]["resourceVersion"];
  }

  kube::Clock& real_ = kube::RealClock();
  kube::testing::FakeClock clock_;  // of the cache
  kube::testing::FakeApiServer server_{real_};
  kube::RestClient client_{
      kube::ClusterAccess{.transport = server_.NewTransport(), .credentials = kube::StaticCredentials({}), .server = "test"},
      kube::RestClientOptions{.max_retries = 0}, real_};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> jobs_;
  std::string version_;
  WorkloadCache cache_{{}, client_, clock_, nullptr, [this](const kube::ObjectKey& job, bool) {
                         const std::lock_guard lock(mutex_);
                         jobs_.push_back(job.ToString());
                         changed_.notify_all();
                       }};
};

TEST_F(WorkloadCacheTest, AServerWithoutKueueIsAskedAgainAfterAWhileAndNothingIsWatched) {
  EXPECT_EQ(cache_.Access("default"), WorkloadAccess::kMissing);
  const size_t asked = server_.requests().size();
  EXPECT_EQ(cache_.Access("default"), WorkloadAccess::kMissing);
  EXPECT_EQ(server_.requests().size(), asked);
  EXPECT_EQ(server_.open_watches(), 0);
  server_.Serve(kWorkloads);
  clock_.Advance(kKueueDiscoveryPeriod);
  EXPECT_TRUE(Eventually([&] { return cache_.Access("default") == WorkloadAccess::kListed; }));
}

TEST_F(WorkloadCacheTest, AnAnswerThatSaysNothingIsNoSignThatKueueIsMissing) {
  server_.AddFault({.target = "/apis/kueue", .code = 503});
  EXPECT_EQ(cache_.Access("default"), WorkloadAccess::kUnknown);
}

TEST_F(WorkloadCacheTest, ReportsForbiddenList) {
  server_.Serve(kWorkloads);
  server_.AddFault({.target = "/workloads", .times = 1000, .code = 403});
  EXPECT_TRUE(Eventually([&] { return cache_.Access("default") == WorkloadAccess::kForbidden; }));
}

TEST_F(WorkloadCacheTest, AWorkloadTellsOfItsJobAndIsFound) {
  server_.Serve(kWorkloads);
  EXPECT_TRUE(Eventually([&] { return cache_.Access("default") == WorkloadAccess::kListed; }));
  ASSERT_NO_FATAL_FAILURE(Create("fusionjob-train-12345", "train"));
  const kube::ObjectKey key{"default", "fusionjob-train-12345"};
  cache_.Wrote(key, version_);
  EXPECT_TRUE(Eventually([&] { return jobs_ == std::vector<std::string>{"default/train"}; }));
  EXPECT_TRUE(cache_.SeenWrites(key));
  const auto found = cache_.Find(key);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ((*found)["metadata"]["name"], "fusionjob-train-12345");
  EXPECT_EQ(cache_.Find({"default", "another"}), nullptr);
}

}  // namespace
}  // namespace fusionllm::op::kueue
