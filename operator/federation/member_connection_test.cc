// The connection to a member, by a clock that the test moves.
#include "operator/federation/member_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <mutex>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_clock.h"
#include "lib/metrics/registry.h"
#include "operator/manifests/identity.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::federation {
namespace {

using nlohmann::json;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class MemberConnectionTest : public ::testing::Test {
 protected:
  MemberConnectionTest() {
    context_.origin = "hub";
    context_.clock = &clock_;
    context_.changed = [](const kube::ObjectKey&, bool) {};
    context_.controller_metrics = &controller_metrics_;
    context_.collect = [this](cache::Member&, std::stop_token) {
      ++rounds_;
      return kube::ReconcileResult::RequeueAfter(absl::Minutes(1));
    };
  }
  std::unique_ptr<kube::ApiClient> Client() {
    return std::make_unique<kube::RestClient>(
        kube::ClusterAccess{.transport = server_.NewTransport(), .credentials = kube::StaticCredentials({}), .server = "test"},
        kube::RestClientOptions{}, real_);
  }
  bool Eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 60'000 && !holds(); ++i) real_.WaitFor(absl::Milliseconds(1), {});
    return holds();
  }
  // That round has ended and its next run is queued (AddAfter comes before the gauge falls): the clock may move on.
  bool RoundDone(int round) {
    const std::string idle = absl::StrCat("controller_runtime_active_workers{controller=\"", kMemberQueue, "paris\"} 0\n");
    return rounds_ == round && absl::StrContains(registry_.Text(), idle);
  }
  // The paths of what was listed as of the very version at which a cache stands.
  std::vector<std::string> Compared() {
    std::vector<std::string> paths;
    for (const auto& request : server_.requests()) {
      if (!absl::StrContains(request.target, "resourceVersionMatch=Exact")) continue;
      paths.push_back(request.target.substr(0, request.target.find('?')));
    }
    return paths;
  }

  kube::Clock& real_ = kube::RealClock();
  kube::testing::FakeClock clock_;
  kube::testing::FakeApiServer server_{real_};
  metrics::Registry registry_{"test", "1"};
  kube::ControllerMetrics controller_metrics_{registry_};
  std::atomic<int> rounds_ = 0;  // of the work that belongs to no job
  MemberContext context_;
};

TEST_F(MemberConnectionTest, ItsCachesAreComparedWithTheServerEveryTenMinutes) {
  MemberConnection connection("paris", Client(), context_, [] {});
  connection.Admit();
  ASSERT_TRUE(Eventually([&] { return RoundDone(1) && connection.reachable(); }));
  for (int minute = 1; minute <= 20; ++minute) {
    clock_.Advance(absl::Minutes(1));
    ASSERT_TRUE(Eventually([&] { return RoundDone(minute + 1) && connection.reachable(); }));
    if (minute % 10 != 0) {
      EXPECT_THAT(Compared(), IsEmpty()) << "after " << minute << " minutes";
      continue;
    }
    EXPECT_THAT(Compared(), UnorderedElementsAre("/api/v1/pods", "/api/v1/configmaps"));
    server_.ForgetRequests();
  }
}

TEST_F(MemberConnectionTest, AJobThatHasJustChangedIsLookedAtBeforeThoseOfTheFirstList) {
  const std::unique_ptr<kube::ApiClient> paris = Client();
  const auto create_owner_config_map = [&](const std::string& job) {
    const json labels = {{manifests::kOriginLabel, "hub"},
                         {manifests::kRoleLabel, manifests::kOwnerConfigMapRole},
                         {manifests::kJobLabel, job},
                         {manifests::kJobUidLabel, job + "-uid"}};
    const json owner_config_map = {
        {"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", job + "-anchor"}, {"labels", labels}}}};
    ASSERT_TRUE(paris->Create(manifests::kConfigMaps, "default", owner_config_map.dump()).ok());
  };
  std::atomic<int> changes = 0;
  std::latch open(1);
  std::mutex mutex;
  std::vector<std::string> looked_at;
  context_.changed = [&](const kube::ObjectKey&, bool) { ++changes; };
  context_.reconcile = [&](const kube::WorkKey& key, std::stop_token) {
    {
      const std::lock_guard lock(mutex);
      looked_at.push_back(key.name);
    }
    open.wait();
    return kube::ReconcileResult::Done();
  };
  constexpr int kOld = 40;
  for (int i = 0; i < kOld; ++i) create_owner_config_map(absl::StrCat("old-", i));
  MemberConnection connection("paris", Client(), context_, [] {});
  connection.Admit();
  EXPECT_TRUE(Eventually([&] { return changes == kOld; }));
  create_owner_config_map("new");
  EXPECT_TRUE(Eventually([&] { return changes == kOld + 1; }));
  open.count_down();
  const auto all = [&] {
    const std::lock_guard lock(mutex);
    return looked_at.size() == kOld + 1;
  };
  ASSERT_TRUE(Eventually(all));
  const auto place = std::find(looked_at.begin(), looked_at.end(), "new") - looked_at.begin();
  // Not before what the workers had begun, nor before a key whose turn it is although it is not urgent.
  EXPECT_LE(place, 4);
}

}  // namespace
}  // namespace fusionllm::op::federation
