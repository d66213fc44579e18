// What the fake does besides what every API server does: failing on request, and the work of the controllers that a real cluster has.
#include "lib/kube/testing/fake_api_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/kube/api/api_error.h"
#include "lib/kube/client/rest_client.h"
#include "lib/kube/testing/fake_clock.h"
#include "lib/kube/testing/fake_http_server.h"
#include "lib/kube/testing/fake_store.h"
#include "lib/kube/testing/objects.h"
#include "lib/kube/testing/watch_recorder.h"

namespace fusionllm::kube::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Resource kJobs = {"fusionllm.io", "v1alpha1", "fusionjobs", "FusionJob", true};

class FakeApiServerTest : public ::testing::Test {
 protected:
  FakeApiServerTest() { server_.Serve(kJobs); }

  static Json Object(const Resource& resource, const std::string& name, const std::string& owner_uid = "") {
    Json object = {{"apiVersion", resource.ApiVersion()}, {"kind", resource.kind}, {"metadata", {{"name", name}}}, {"spec", {{"x", 1}}}};
    if (!owner_uid.empty()) {
      object["metadata"]["ownerReferences"] =
          Json::array({{{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"name", "o"}, {"uid", owner_uid}}});
    }
    return object;
  }
  std::string Create(const Resource& resource, const Json& object) {
    return Parsed(api_.Create(resource, "default", object.dump()))["metadata"].value("uid", "");
  }
  std::vector<std::string> Objects() {
    std::vector<std::string> names;
    for (const std::string& name : server_.objects()) {
      if (!absl::StartsWith(name, "namespaces ")) names.push_back(name);
    }
    return names;
  }

  FakeClock clock_;
  FakeApiServer server_{clock_};
  RestClient client_{{server_.NewTransport(), StaticCredentials({}), "fake", "default"}, {.user_agent = "test/1"}, clock_};
  ApiClient& api_ = client_;
};

TEST_F(FakeApiServerTest, AListShowsObjectsAsTheyAreWhenItIsAskedFor) {
  const auto shown = [this] {
    const Json items = Parsed(api_.List(kJobs, "default"))["items"];
    std::vector<std::string> each;
    for (const Json& item : items) each.push_back(absl::StrCat(item["metadata"]["name"].get<std::string>(), " ", item["spec"]["x"].dump()));
    return each;
  };
  Create(kJobs, Object(kJobs, "a"));
  Create(kJobs, Object(kJobs, "b"));
  EXPECT_THAT(shown(), ElementsAre("a 1", "b 1"));
  EXPECT_THAT(shown(), ElementsAre("a 1", "b 1"));
  ASSERT_TRUE(api_.Patch(kJobs, {"default", "b"}, PatchType::kMerge, R"({"spec":{"x":2}})").ok());
  EXPECT_THAT(shown(), ElementsAre("a 1", "b 2"));
  ASSERT_TRUE(api_.Delete(kJobs, {"default", "b"}, {}).ok());
  EXPECT_THAT(shown(), ElementsAre("a 1"));
  Create(kJobs, Object(kJobs, "b"));
  EXPECT_THAT(shown(), ElementsAre("a 1", "b 1"));
}

TEST_F(FakeApiServerTest, TheGenerationCountsSpecsAlone) {
  Create(kJobs, Object(kJobs, "a"));
  const ObjectKey key = {"default", "a"};
  const auto generation = [](const absl::StatusOr<std::string>& answer) { return Parsed(answer)["metadata"]["generation"].get<int>(); };
  EXPECT_EQ(generation(api_.Patch(kJobs, key, PatchType::kMerge, R"({"metadata":{"labels":{"a":"b"}}})")), 1);
  EXPECT_EQ(generation(api_.Patch(kJobs, key, PatchType::kMerge, R"({"status":{"state":"Running"}})", {.subresource = "status"})), 1);
  EXPECT_EQ(generation(api_.Patch(kJobs, key, PatchType::kMerge, R"({"spec":{"x":2}})")), 2);
}

TEST_F(FakeApiServerTest, AnUpdateOfACustomObjectNeedsItsVersion) {
  Create(kJobs, Object(kJobs, "a"));
  EXPECT_TRUE(IsApiInvalid(api_.Update(kJobs, {"default", "a"}, Object(kJobs, "a").dump()).status()));
}

// Which lists are merged by what key, a server knows of its own kinds alone.
TEST_F(FakeApiServerTest, NoCustomObjectTakesAStrategicMergePatch) {
  Create(kJobs, Object(kJobs, "a"));
  const auto patch = [this](const std::string& media_type) {
    return server_.NewTransport()->Send({.method = "PATCH",
                                         .target = "/apis/fusionllm.io/v1alpha1/namespaces/default/fusionjobs/a",
                                         .headers = {{"Content-Type", media_type}},
                                         .body = R"({"spec":{"x":2}})"},
                                        {}, {});
  };
  EXPECT_EQ(patch("application/strategic-merge-patch+json")->code, 415);
  EXPECT_EQ(Parsed(api_.Get(kJobs, {"default", "a"}))["spec"]["x"], 1);
  EXPECT_EQ(patch("application/merge-patch+json")->code, 200);
}

TEST_F(FakeApiServerTest, WhatAnOwnerLeavesBehindIsCollected) {
  const std::string owner = Create(kConfigMaps, Object(kConfigMaps, "o"));
  const std::string middle = Create(kConfigMaps, Object(kConfigMaps, "m", owner));
  Create(kPods, Object(kPods, "p", middle));
  Create(kPods, Object(kPods, "free"));
  ASSERT_TRUE(api_.Delete(kConfigMaps, {"default", "o"}).ok());
  EXPECT_THAT(Objects(), ElementsAre("pods default/free"));
}

TEST_F(FakeApiServerTest, OrphansStay) {
  const std::string owner = Create(kConfigMaps, Object(kConfigMaps, "o"));
  Create(kPods, Object(kPods, "p", owner));
  ASSERT_TRUE(api_.Delete(kConfigMaps, {"default", "o"}, {.propagation = DeletionPropagation::kOrphan}).ok());
  EXPECT_THAT(Objects(), ElementsAre("pods default/p"));
}

TEST_F(FakeApiServerTest, AnOwnerOfAnotherClusterCountsAsGone) {
  // As a real garbage collector would: the hub's uids must not be put into a member's objects.
  Create(kPods, Object(kPods, "p", "uid-of-elsewhere"));
  EXPECT_THAT(Objects(), IsEmpty());
}

TEST_F(FakeApiServerTest, APodOnANodeGoesWhenItsKubeletSaysSo) {
  Json pod = Object(kPods, "p");
  pod["spec"]["nodeName"] = "n";
  Create(kPods, pod);
  const Json left = Parsed(api_.Delete(kPods, {"default", "p"}));
  EXPECT_TRUE(left["metadata"].contains("deletionTimestamp"));
  EXPECT_EQ(left["metadata"]["deletionGracePeriodSeconds"], 30);
  EXPECT_TRUE(api_.Get(kPods, {"default", "p"}).ok());
  // The kubelet's last status does not end it, its delete does.
  ASSERT_TRUE(api_.Patch(kPods, {"default", "p"}, PatchType::kMerge, R"({"status":{"phase":"Failed"}})", {.subresource = "status"}).ok());
  EXPECT_THAT(Objects(), ElementsAre("pods default/p"));
  ASSERT_TRUE(api_.Delete(kPods, {"default", "p"}, {.grace_period_seconds = 0}).ok());
  EXPECT_THAT(Objects(), IsEmpty());
}

TEST_F(FakeApiServerTest, ANamespaceThatEndsTakesNothingNew) {
  const Json ns = {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", "team"}}}};
  ASSERT_TRUE(api_.Create(kNamespaces, "", ns.dump()).ok());
  Json held = Object(kConfigMaps, "a");
  held["metadata"]["finalizers"] = {"x/y"};
  ASSERT_TRUE(api_.Create(kConfigMaps, "team", held.dump()).ok());
  ASSERT_TRUE(api_.Delete(kNamespaces, {"", "team"}).ok());
  EXPECT_TRUE(IsApiNamespaceTerminating(api_.Create(kConfigMaps, "team", Object(kConfigMaps, "b").dump()).status()));
  ASSERT_TRUE(api_.Patch(kConfigMaps, {"team", "a"}, PatchType::kMerge, R"({"metadata":{"finalizers":[]}})").ok());
  EXPECT_TRUE(IsApiNotFound(api_.Get(kNamespaces, {"", "team"}).status()));
}

TEST_F(FakeApiServerTest, FaultsHitTheRequestsTheyMatch) {
  server_.AddFault({.verb = "create", .target = "/pods", .skip = 1, .code = 503, .body = "busy"});
  EXPECT_TRUE(api_.Create(kConfigMaps, "default", Object(kConfigMaps, "a").dump()).ok());
  EXPECT_TRUE(api_.Create(kPods, "default", Object(kPods, "a").dump()).ok());
  EXPECT_TRUE(IsTransient(api_.Create(kPods, "default", Object(kPods, "b").dump()).status()));
  EXPECT_TRUE(api_.Create(kPods, "default", Object(kPods, "b").dump()).ok());
}

TEST_F(FakeApiServerTest, ALostAnswerIsAWriteAllTheSame) {
  server_.AddFault({.verb = "create", .kind = Fault::Kind::kBreakAfter});
  EXPECT_TRUE(absl::IsUnavailable(api_.Create(kPods, "default", Object(kPods, "a").dump()).status()));
  EXPECT_THAT(Objects(), ElementsAre("pods default/a"));
  server_.AddFault({.verb = "create", .kind = Fault::Kind::kBreakBefore});
  EXPECT_TRUE(absl::IsUnavailable(api_.Create(kPods, "default", Object(kPods, "b").dump()).status()));
  EXPECT_THAT(Objects(), ElementsAre("pods default/a"));
}

TEST_F(FakeApiServerTest, ABookmarkComesWhenAsked) {
  const std::string version = VersionOf(Parsed(api_.List(kPods, "default")));
  WatchRecorder watch(api_, kPods, "default", {.resource_version = version});
  ASSERT_TRUE(watch.WaitForOpen());
  server_.SendBookmarks();
  ASSERT_EQ(Brief(watch.WaitForEvents(1, /*with_bookmarks=*/true).at(0)), "BOOKMARK");
  server_.BreakWatches();
  EXPECT_TRUE(absl::IsUnavailable(watch.WaitForEnd()));
  EXPECT_EQ(server_.open_watches(), 0);
}

TEST_F(FakeApiServerTest, PagesFromBeforeACompactionAreExpired) {
  for (const char* name : {"a", "b", "c"}) Create(kPods, Object(kPods, name));
  const Json page = Parsed(api_.List(kPods, "default", {.limit = 2}));
  server_.Compact();
  EXPECT_TRUE(IsApiExpired(api_.List(kPods, "default", {.limit = 2, .continue_token = page["metadata"]["continue"]}).status()));
}

TEST_F(FakeApiServerTest, RequestsAreRecorded) {
  api_.Get(kPods, {"default", "a"}).IgnoreError();
  const std::vector<RecordedRequest> requests = server_.requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].verb, "get");
  EXPECT_EQ(requests[0].user_agent, "test/1");
  EXPECT_EQ(requests[0].code, 404);
  EXPECT_EQ(requests[0].at, clock_.Monotonic());
}

TEST_F(FakeApiServerTest, AServiceKeepsTheAddressAndPortsThatItIsGiven) {
  static const Resource kServices = {"", "v1", "services", "Service", true};
  const auto apply = [&](const char* type) {
    const Json ports = {{{"name", "broker"}, {"port", 7000}}};
    const Json object = {
        {"apiVersion", "v1"}, {"kind", "Service"}, {"metadata", {{"name", "a"}}}, {"spec", {{"type", type}, {"ports", ports}}}};
    return Parsed(api_.Apply(kServices, {"default", "a"}, object.dump(), {.field_manager = "test"}))["spec"];
  };
  const Json inside = apply("ClusterIP");
  EXPECT_TRUE(inside.contains("clusterIP"));
  EXPECT_FALSE(inside["ports"][0].contains("nodePort"));
  const Json outside = apply("NodePort");
  EXPECT_EQ(outside["clusterIP"], inside["clusterIP"]);
  EXPECT_GE(outside["ports"][0].value("nodePort", 0), 30'000);
  EXPECT_EQ(apply("NodePort"), outside);
}

TEST_F(FakeApiServerTest, FrozenServerAnswersAfterThaw) {
  FakeHttpServer front(server_);
  ClientConfig config;
  config.server = front.Url();
  auto access = OpenAccess(config, RealClock());
  ASSERT_TRUE(access.ok()) << access.status();
  RestClient client(*std::move(access), RestClientOptions(), RealClock());
  ASSERT_TRUE(client.Get(kNamespaces, {"", "default"}, {}).ok());
  front.Freeze(true);
  EXPECT_TRUE(absl::IsDeadlineExceeded(client.Get(kNamespaces, {"", "default"}, {.timeout = absl::Milliseconds(20)}).status()));
  front.Freeze(false);
  EXPECT_TRUE(client.Get(kNamespaces, {"", "default"}, {}).ok());
}

TEST_F(FakeApiServerTest, ListsWithKeysAreAppliedByItem) {
  const auto apply = [&](const std::string& manager, const Json& conditions) {
    const Json object = {
        {"apiVersion", kJobs.ApiVersion()}, {"kind", kJobs.kind}, {"metadata", {{"name", "a"}}}, {"status", {{"conditions", conditions}}}};
    return Parsed(api_.Apply(kJobs, {"default", "a"}, object.dump(), {.field_manager = manager, .subresource = "status"}))["status"];
  };
  Create(kJobs, Object(kJobs, "a"));
  const Json ready = {{"type", "Ready"}, {"status", "True"}};
  const Json failed = {{"type", "Failed"}, {"status", "False"}};
  apply("one", Json::array({ready}));
  EXPECT_EQ(apply("two", Json::array({failed}))["conditions"], Json::array({ready, failed}));
  EXPECT_EQ(apply("one", Json::array())["conditions"], Json::array({failed}));
}

}  // namespace
}  // namespace fusionllm::kube::testing
