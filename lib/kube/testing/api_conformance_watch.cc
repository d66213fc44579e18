#include <gmock/gmock.h>

#include "lib/kube/api/api_error.h"
#include "lib/kube/testing/api_conformance.h"
#include "lib/kube/testing/watch_recorder.h"

namespace fusionllm::kube::testing {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> Briefs(const std::vector<nlohmann::json>& events) {
  std::vector<std::string> briefs;
  for (const nlohmann::json& event : events) briefs.push_back(Brief(event));
  return briefs;
}

TEST_P(ApiConformance, AWatchTellsWhatHappensAfterItsVersion) {
  CreateConfigMap("before", "1", {{"w", "yes"}});
  const std::string version = VersionOf(Parsed(api().List(kConfigMaps, ns_)));
  WatchRecorder watch(api(), kConfigMaps, ns_, {.label_selector = "w=yes", .resource_version = version});
  ASSERT_TRUE(watch.WaitForOpen());
  CreateConfigMap("a", "1", {{"w", "yes"}});
  CreateConfigMap("unseen", "1");
  ASSERT_TRUE(api().Patch(kConfigMaps, Key("a"), PatchType::kMerge, R"({"data":{"k":"2"}})").ok());
  ASSERT_TRUE(api().Delete(kConfigMaps, Key("a")).ok());
  const std::vector<Json> events = watch.WaitForEvents(3);
  ASSERT_THAT(Briefs(events), ElementsAre("ADDED a", "MODIFIED a", "DELETED a"));
  EXPECT_EQ(events[1]["object"]["data"]["k"], "2");
  // Each has a version of its own, a deletion that of the deletion.
  EXPECT_NE(VersionOf(events[1]["object"]), VersionOf(events[2]["object"]));
  EXPECT_TRUE(absl::IsCancelled(watch.Stop()));
}

TEST_P(ApiConformance, AWatchMissesNothingFromBeforeItWasOpen) {
  const std::string version = VersionOf(Parsed(api().List(kConfigMaps, ns_)));
  CreateConfigMap("a", "1", {{"w", "yes"}});
  ASSERT_TRUE(api().Delete(kConfigMaps, Key("a")).ok());
  WatchRecorder watch(api(), kConfigMaps, ns_, {.label_selector = "w=yes", .resource_version = version});
  EXPECT_THAT(Briefs(watch.WaitForEvents(2)), ElementsAre("ADDED a", "DELETED a"));
}

TEST_P(ApiConformance, WhatLeavesTheSelectorIsDeletedForTheWatch) {
  CreateConfigMap("a", "1", {{"w", "yes"}});
  const std::string version = VersionOf(Parsed(api().List(kConfigMaps, ns_)));
  WatchRecorder watch(api(), kConfigMaps, ns_, {.label_selector = "w=yes", .resource_version = version});
  ASSERT_TRUE(watch.WaitForOpen());
  ASSERT_TRUE(api().Patch(kConfigMaps, Key("a"), PatchType::kMerge, R"({"metadata":{"labels":{"w":"no"}}})").ok());
  ASSERT_TRUE(api().Patch(kConfigMaps, Key("a"), PatchType::kMerge, R"({"metadata":{"labels":{"w":"yes"}}})").ok());
  EXPECT_THAT(Briefs(watch.WaitForEvents(2)), ElementsAre("DELETED a", "ADDED a"));
}

TEST_P(ApiConformance, AWatchWithoutAVersionBeginsWithWhatThereIs) {
  CreateConfigMap("a", "1", {{"w", "yes"}});
  WatchRecorder watch(api(), kConfigMaps, ns_, {.label_selector = "w=yes", .resource_version = "0"});
  EXPECT_THAT(Briefs(watch.WaitForEvents(1)), ElementsAre("ADDED a"));
}

TEST_P(ApiConformance, TheServerEndsAWatchAfterItsTime) {
  WatchRecorder watch(api(), kConfigMaps, ns_,
                      {.resource_version = VersionOf(Parsed(api().List(kConfigMaps, ns_))), .server_timeout = absl::Seconds(1)});
  EXPECT_TRUE(watch.WaitForEnd().ok()) << watch.WaitForEnd();
}

TEST_P(ApiConformance, AVersionThatIsTooOldIsGone) {
  if (!server_->ForgetHistory()) GTEST_SKIP() << "this server forgets when it likes";
  WatchRecorder watch(api(), kConfigMaps, ns_, {.resource_version = "1"});
  // By the code of HTTP, or as an event of the stream.
  if (watch.WaitForOpen()) {
    const std::vector<Json> events = watch.WaitForEvents(1);
    ASSERT_THAT(Briefs(events), ElementsAre("ERROR"));
    EXPECT_TRUE(IsApiExpired(ToStatus(ParseApiError(200, events[0]["object"].dump()))));
  } else {
    EXPECT_TRUE(IsApiExpired(watch.WaitForEnd())) << watch.WaitForEnd();
  }
}

TEST_P(ApiConformance, MetadataAloneIsWatched) {
  CreateConfigMap("a", "1", {{"w", "yes"}});
  WatchRecorder watch(api(), kConfigMaps, ns_, {.label_selector = "w=yes", .resource_version = "0", .metadata_only = true});
  const std::vector<Json> events = watch.WaitForEvents(1);
  ASSERT_THAT(Briefs(events), ElementsAre("ADDED a"));
  EXPECT_EQ(events[0]["object"]["kind"], "PartialObjectMetadata");
  EXPECT_FALSE(events[0]["object"].contains("data"));
}

TEST_P(ApiConformance, AStuckWatchHoldsUpNoWrite) {
  // More watches than unary connections are kept.
  std::vector<std::unique_ptr<WatchRecorder>> watches;
  for (int i = 0; i < 12; ++i) {
    watches.push_back(
        std::make_unique<WatchRecorder>(api(), kConfigMaps, ns_, WatchOptions{.label_selector = "w=yes", .resource_version = "0"}));
  }
  for (const auto& watch : watches) ASSERT_TRUE(watch->WaitForOpen());
  CreateConfigMap("a", "1", {{"w", "yes"}});
  for (const auto& watch : watches) EXPECT_THAT(Briefs(watch->WaitForEvents(1)), ElementsAre("ADDED a"));
}

}  // namespace
}  // namespace fusionllm::kube::testing
