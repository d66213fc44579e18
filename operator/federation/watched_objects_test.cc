// On an API server in memory.
#include "operator/federation/watched_objects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "lib/kube/api/api_error.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kube/testing/fake_api_server.h"
#include "lib/kube/testing/fake_clock.h"
#include "lib/kube/watch/testing/objects.h"
#include "lib/kube/watch/testing/scripted_client.h"
#include "operator/manifests/resources.h"

namespace fusionllm::op::federation {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kNamespace[] = "default";
const kube::ObjectKey kParis{kNamespace, "paris"};

class WatchedObjectsTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& value) {
    const json secret = {
        {"apiVersion", "v1"}, {"kind", "Secret"}, {"metadata", {{"name", name}, {"namespace", kNamespace}}}, {"data", {{"value", value}}}};
    ASSERT_TRUE(api_->Apply(manifests::kSecrets, {kNamespace, name}, secret.dump(), {.field_manager = "test"}).ok());
  }
  std::string Value(const kube::ObjectKey& key) {
    const absl::StatusOr<std::string> text = secrets_->Read(key, {});
    return text.ok() ? json::parse(*text)["data"]["value"].get<std::string>() : std::string(text.status().message());
  }
  // Requests for the whole Secret.
  int64_t Reads() const {
    const auto requests = server_.requests();
    return std::count_if(requests.begin(), requests.end(), [](const auto& request) { return request.verb == "get"; });
  }
  bool Eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 60'000; ++i) {
      if (holds()) return true;
      clock_.WaitFor(absl::Milliseconds(1), {});
    }
    return false;
  }

  kube::Clock& clock_ = kube::RealClock();
  kube::testing::FakeApiServer server_{clock_};
  std::unique_ptr<kube::ApiClient> api_ = std::make_unique<kube::RestClient>(
      kube::ClusterAccess{.transport = server_.NewTransport(), .credentials = kube::StaticCredentials({}), .server = "test"},
      kube::RestClientOptions{}, clock_);
  std::atomic<int> changes_ = 0;
  std::unique_ptr<WatchedObjects> secrets_ =
      std::make_unique<WatchedObjects>(*api_, clock_, nullptr, manifests::kSecrets, [this](const kube::ObjectKey& key) {
        EXPECT_EQ(key, kParis);
        ++changes_;
      });
};

TEST_F(WatchedObjectsTest, WhatIsWatchedIsReadOnceUntilItChanges) {
  Write("paris", "one");
  EXPECT_EQ(Value(kParis), "one");
  ASSERT_TRUE(Eventually([&] { return secrets_->Watches(kParis); }));
  const int64_t reads = Reads();
  EXPECT_EQ(Value(kParis), "one");
  EXPECT_EQ(Reads(), reads);
  const int before = changes_;
  Write("paris", "two");
  EXPECT_TRUE(Eventually([&] { return changes_ > before; }));
  EXPECT_EQ(Value(kParis), "two");
  EXPECT_TRUE(Eventually([&] { return secrets_->Watches(kParis); }));
}

TEST_F(WatchedObjectsTest, OthersAreNeitherListedNorWatchedAndOfThisOneOnlyMetadata) {
  Write("paris", "one");
  Write("tokyo", "another");
  EXPECT_EQ(Value(kParis), "one");
  ASSERT_TRUE(Eventually([&] { return secrets_->Watches(kParis); }));
  const int before = changes_;
  Write("tokyo", "changed");
  Write("paris", "two");
  ASSERT_TRUE(Eventually([&] { return changes_ > before; })) << "of tokyo it would have told, and failed, before";
  for (const auto& request : server_.requests()) {
    if (request.verb != "list" && request.verb != "watch") continue;
    EXPECT_THAT(request.target, HasSubstr("fieldSelector=metadata.name%3Dparis")) << request.verb;
  }
}

TEST_F(WatchedObjectsTest, WhatIsNotThereIsNoticedWhenItComesAndWhenItGoes) {
  EXPECT_TRUE(kube::IsApiNotFound(secrets_->Read(kParis, {}).status()));
  ASSERT_TRUE(Eventually([&] { return server_.open_watches() == 1; }));
  int before = changes_;
  Write("paris", "one");
  EXPECT_TRUE(Eventually([&] { return changes_ > before; }));
  EXPECT_EQ(Value(kParis), "one");
  ASSERT_TRUE(Eventually([&] { return secrets_->Watches(kParis); }));
  before = changes_;
  ASSERT_TRUE(api_->Delete(manifests::kSecrets, kParis).ok());
  EXPECT_TRUE(Eventually([&] { return changes_ > before; }));
  EXPECT_TRUE(kube::IsApiNotFound(secrets_->Read(kParis, {}).status()));
}

TEST_F(WatchedObjectsTest, WhereNothingMayBeWatchedItIsReadWheneverSomebodyAsks) {
  constexpr char kForbidden[] = R"({"kind":"Status","code":403,"reason":"Forbidden","message":"may not list secrets"})";
  server_.AddFault({.verb = "list", .times = 1'000'000, .code = 403, .body = kForbidden});
  Write("paris", "one");
  EXPECT_EQ(Value(kParis), "one");
  Write("paris", "two");
  EXPECT_EQ(Value(kParis), "two");
  EXPECT_FALSE(secrets_->Watches(kParis));
}

TEST_F(WatchedObjectsTest, WhatIsKeptNoMoreIsNotWatched) {
  Write("paris", "one");
  EXPECT_EQ(Value(kParis), "one");
  ASSERT_TRUE(Eventually([&] { return server_.open_watches() == 1; }));
  secrets_->RetainOnly({kParis});
  EXPECT_EQ(server_.open_watches(), 1);
  secrets_->RetainOnly({});
  EXPECT_EQ(server_.open_watches(), 0);
  EXPECT_EQ(Value(kParis), "one") << "and is again when it is asked for";
  EXPECT_TRUE(Eventually([&] { return server_.open_watches() == 1; }));
}

// The hub and its standbys watch the same Secrets: what they draw by chance must not be the same for the same name.
TEST(WatchedObjectsTimes, NoTwoProcessesDrawTheSame) {
  const auto draws = [] {
    kube::testing::FakeClock clock;
    kube::testing::ScriptedClient client;
    client.OnList(kube::testing::ListJson({}, "10", "", "PartialObjectMetadataList"));
    for (int i = 0; i < 4; ++i) client.OnWatchOfASecond(kube::testing::BookmarkJson(std::to_string(11 + i)), clock);
    WatchedObjects secrets(client, clock, nullptr, manifests::kSecrets, [](const kube::ObjectKey&) {});
    EXPECT_FALSE(secrets.Read(kParis, {}).ok()) << "it is watched all the same";
    std::vector<absl::Duration> times;
    for (const kube::WatchOptions& watch : client.Watches(5)) times.push_back(watch.server_timeout);
    return times;
  };
  EXPECT_NE(draws(), draws());
}

// The connection breaks, and what happened meanwhile is not missed.
TEST_F(WatchedObjectsTest, AWatchThatBreaksMissesNothing) {
  Write("paris", "one");
  EXPECT_EQ(Value(kParis), "one");
  ASSERT_TRUE(Eventually([&] { return secrets_->Watches(kParis); }));
  server_.AddFault({.verb = "watch", .times = 1, .kind = kube::testing::Fault::Kind::kBreakBefore});
  const int before = changes_;
  server_.BreakWatches();
  Write("paris", "two");
  EXPECT_TRUE(Eventually([&] { return changes_ > before; }));
  EXPECT_EQ(Value(kParis), "two");
}

}  // namespace
}  // namespace fusionllm::op::federation
