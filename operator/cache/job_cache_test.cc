// The hub's jobs, cached from an API server in memory.
#include "operator/cache/job_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_clock.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::cache {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::UnorderedElementsAre;

class JobCacheTest : public ::testing::Test {
 protected:
  JobCacheTest() { server_.Serve(manifests::kFusionJobs); }
  ~JobCacheTest() override { cache_.Stop(); }

  std::string Create(const std::string& name) {
    const json job = {{"apiVersion", manifests::kFusionJobs.ApiVersion()},
                      {"kind", manifests::kFusionJobs.kind},
                      {"metadata", {{"name", name}}},
                      {"spec", {}}};
    return client_.Create(manifests::kFusionJobs, "default", job.dump(), {}, {}).value();
  }
  void Start() {
    cache_.Start();
    ASSERT_TRUE(cache_.WaitForSync(absl::Minutes(1)));
  }
  bool Eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 60'000 && !holds(); ++i) real_.WaitFor(absl::Milliseconds(1), {});
    return holds();
  }
  // What was reported since the last call, once that is so much.
  std::vector<std::string> TakeChanges(size_t most) {
    EXPECT_TRUE(Eventually([&] {
      const std::lock_guard lock(mutex_);
      return changes_.size() >= most;
    }));
    const std::lock_guard lock(mutex_);
    return std::exchange(changes_, {});
  }

  std::mutex mutex_;
  std::vector<std::string> changes_;  // guarded by mutex_
  kube::Clock& real_ = kube::RealClock();
  kube::testing::FakeClock clock_;  // of the cache
  kube::testing::FakeApiServer server_{real_};
  kube::RestClient client_{{.transport = server_.NewTransport(), .credentials = kube::StaticCredentials({}), .server = "test"}, {}, real_};
  JobCache cache_{{}, "hub", "hub-uid", client_, clock_, nullptr, [this](const kube::ObjectKey& job, bool urgent) {
                    const std::lock_guard lock(mutex_);
                    changes_.push_back(absl::StrCat(job.name, urgent ? " now" : ""));
                  }};
};

TEST_F(JobCacheTest, OnlyWhatHasJustChangedIsUrgent) {
  Create("a");
  Create("b");
  Start();
  EXPECT_THAT(TakeChanges(2), UnorderedElementsAre("a", "b")) << "that were there before";
  Create("c");
  EXPECT_THAT(TakeChanges(1), UnorderedElementsAre("c now"));
  cache_.ResyncAll();
  EXPECT_THAT(TakeChanges(3), UnorderedElementsAre("a", "b", "c"));
  clock_.Advance(absl::Hours(10));
  EXPECT_THAT(TakeChanges(3), UnorderedElementsAre("a", "b", "c")) << "told again for safety";
}

TEST_F(JobCacheTest, ACacheThatIsRightIsLeftAlone) {
  Create("a");
  Start();
  ASSERT_TRUE(Eventually([&] { return server_.open_watches() == 1; }));
  server_.ForgetRequests();
  EXPECT_TRUE(cache_.CompareWithServer({}).ok());
  ASSERT_EQ(server_.requests().size(), 1);
  EXPECT_EQ(server_.requests()[0].verb, "list");
}

TEST_F(JobCacheTest, InconsistentCacheIsRelisted) {
  // A proxy on the way gives the list of a server that lags behind for the newest one: the job is never delivered.
  const std::string version = json::parse(Create("a"))["metadata"]["resourceVersion"];
  const json list = {{"apiVersion", manifests::kFusionJobs.ApiVersion()},
                     {"kind", "FusionJobList"},
                     {"metadata", {{"resourceVersion", version}}},
                     {"items", json::array()}};
  server_.AddFault({.verb = "list", .target = "fusionjobs", .code = 200, .body = list.dump()});
  Start();
  ASSERT_TRUE(Eventually([&] { return server_.open_watches() == 1; }));
  EXPECT_EQ(cache_.Find({"default", "a"}), nullptr);
  EXPECT_TRUE(cache_.CompareWithServer({}).ok());
  EXPECT_TRUE(Eventually([&] { return cache_.Find({"default", "a"}) != nullptr; }));
}

}  // namespace
}  // namespace fusionllm::op::cache
