// The verbs; watches are in api_conformance_watch.cc.
#include "lib/kube/testing/api_conformance.h"

#include <gmock/gmock.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lib/kube/api/api_error.h"

namespace fusionllm::kube::testing {

using ::testing::HasSubstr;

void ApiConformance::SetUp() {
  server_ = GetParam().make();
  if (server_ == nullptr) GTEST_SKIP() << GetParam().skipped_because;
  const Json made = Parsed(
      api().Create(kNamespaces, "",
                   Json({{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"generateName", "fusionllm-conformance-"}}}}).dump()));
  ns_ = made["metadata"]["name"];
}

void ApiConformance::TearDown() {
  if (server_ == nullptr) return;
  EXPECT_TRUE(api().Delete(kNamespaces, {"", ns_}).ok());
}

nlohmann::json ApiConformance::ConfigMap(const std::string& name, const std::string& value, const Json& labels) {
  Json object = {{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", name}}}, {"data", {{"k", value}}}};
  // An empty map is owned but not stored: one who applies it after another changes the other's field.
  if (!labels.empty()) object["metadata"]["labels"] = labels;
  return object;
}

nlohmann::json ApiConformance::Pod(const std::string& name) {
  Json container = {{"name", "c"}, {"image", "none.invalid/none"}};
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"name", name}}},
          {"spec", {{"schedulerName", "nobody"}, {"containers", Json::array({container})}}}};
}

nlohmann::json ApiConformance::CreateConfigMap(const std::string& name, const std::string& value, const Json& labels) {
  return Parsed(api().Create(kConfigMaps, ns_, ConfigMap(name, value, labels).dump()));
}

nlohmann::json ApiConformance::GetConfigMap(const std::string& name) { return Parsed(api().Get(kConfigMaps, Key(name))); }

absl::StatusOr<std::string> ApiConformance::Apply(const std::string& manager, const Json& object, bool force) {
  return api().Apply(kConfigMaps, Key(object["metadata"]["name"]), object.dump(), {.field_manager = manager, .force = force});
}

namespace {

TEST_P(ApiConformance, AnObjectIsCreatedReadChangedAndDeleted) {
  const Json made = CreateConfigMap("a", "1");
  EXPECT_EQ(made["metadata"]["namespace"], ns_);
  EXPECT_FALSE(made["metadata"]["uid"].get<std::string>().empty());
  Json read = GetConfigMap("a");
  EXPECT_EQ(read["data"]["k"], "1");
  EXPECT_EQ(VersionOf(read), VersionOf(made));
  read["data"]["k"] = "2";
  const Json changed = Parsed(api().Update(kConfigMaps, Key("a"), read.dump()));
  EXPECT_EQ(changed["data"]["k"], "2");
  EXPECT_NE(VersionOf(changed), VersionOf(made));
  EXPECT_EQ(changed["metadata"]["uid"], made["metadata"]["uid"]);
  EXPECT_TRUE(api().Delete(kConfigMaps, Key("a")).ok());
  EXPECT_TRUE(IsApiNotFound(api().Get(kConfigMaps, Key("a")).status()));
}

TEST_P(ApiConformance, ANameThatIsTakenIsNoConflict) {
  CreateConfigMap("a", "1");
  const absl::Status again = api().Create(kConfigMaps, ns_, ConfigMap("a", "2").dump()).status();
  EXPECT_TRUE(IsApiAlreadyExists(again)) << again;
  EXPECT_FALSE(IsApiConflict(again));
  EXPECT_EQ(GetConfigMap("a")["data"]["k"], "1");
}

TEST_P(ApiConformance, TheServerMakesNames) {
  Json object = ConfigMap("", "1");
  object["metadata"] = {{"generateName", "a-"}};
  const std::string name = Parsed(api().Create(kConfigMaps, ns_, object.dump()))["metadata"]["name"];
  EXPECT_THAT(name, ::testing::StartsWith("a-"));
  EXPECT_GT(name.size(), 2u);
}

TEST_P(ApiConformance, WhatIsNotThereIsNotFound) {
  const ObjectKey key = Key("a");
  EXPECT_TRUE(IsApiNotFound(api().Get(kConfigMaps, key).status()));
  EXPECT_TRUE(IsApiNotFound(api().Delete(kConfigMaps, key).status()));
  EXPECT_TRUE(IsApiNotFound(api().Patch(kConfigMaps, key, PatchType::kMerge, "{}").status()));
  EXPECT_TRUE(IsApiNotFound(api().Create(kConfigMaps, "fusionllm-no-such-namespace", ConfigMap("a", "1").dump()).status()));
  EXPECT_TRUE(IsApiNotFound(api().Get({"fusionllm.io", "v9", "nothings", "Nothing", true}, key).status()));
}

TEST_P(ApiConformance, WritesFromAnOldVersionConflict) {
  const Json old = CreateConfigMap("a", "1");
  Json next = old;
  next["data"]["k"] = "2";
  ASSERT_TRUE(api().Update(kConfigMaps, Key("a"), next.dump()).ok());
  next["data"]["k"] = "3";
  const absl::Status update = api().Update(kConfigMaps, Key("a"), next.dump()).status();
  EXPECT_TRUE(IsApiConflict(update)) << update;
  EXPECT_FALSE(IsApiAlreadyExists(update));
  const Json patch = {{"metadata", {{"resourceVersion", VersionOf(old)}}}, {"data", {{"k", "4"}}}};
  EXPECT_TRUE(IsApiConflict(api().Patch(kConfigMaps, Key("a"), PatchType::kMerge, patch.dump()).status()));
  EXPECT_EQ(GetConfigMap("a")["data"]["k"], "2");
}

TEST_P(ApiConformance, WhatIsInvalidNamesTheField) {
  const absl::Status status = api().Create(kConfigMaps, ns_, ConfigMap("Not_A_Name", "1").dump()).status();
  EXPECT_TRUE(IsApiInvalid(status)) << status;
  const std::optional<ApiError> error = ApiErrorOf(status);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, 422);
  ASSERT_FALSE(error->causes.empty());
  EXPECT_EQ(error->causes[0].field, "metadata.name");
  const absl::Status garbage = api().Create(kConfigMaps, ns_, "{\"kind\":").status();
  EXPECT_EQ(ApiErrorOf(garbage)->code, 400) << garbage;
  Json pod = Pod("a");
  EXPECT_EQ(ApiErrorOf(api().Create(kConfigMaps, ns_, pod.dump()).status())->code, 400);
}

TEST_P(ApiConformance, AMergePatchChangesAndTakesOutFields) {
  CreateConfigMap("a", "1");
  const Json patched = Parsed(api().Patch(kConfigMaps, Key("a"), PatchType::kMerge, R"({"data":{"k":null,"l":"2"}})"));
  EXPECT_EQ(patched["data"], Json({{"l", "2"}}));
}

TEST_P(ApiConformance, AJsonPatchHoldsItsTests) {
  const std::string uid = CreateConfigMap("a", "1")["metadata"]["uid"];
  const auto patch = [&](const std::string& expected, const std::string& value) {
    return api().Patch(kConfigMaps, Key("a"), PatchType::kJson,
                       Json::array({{{"op", "test"}, {"path", "/metadata/uid"}, {"value", expected}},
                                    {{"op", "replace"}, {"path", "/data/k"}, {"value", value}}})
                           .dump());
  };
  const absl::Status other = patch("another", "2").status();
  EXPECT_TRUE(IsApiInvalid(other)) << other;
  EXPECT_EQ(GetConfigMap("a")["data"]["k"], "1");
  EXPECT_EQ(Parsed(patch(uid, "3"))["data"]["k"], "3");
}

TEST_P(ApiConformance, AJsonPatchThatIsNoneIsABadRequest) {
  CreateConfigMap("a", "1");
  for (const char* patch : {"{}", "[7]", "[{"}) {
    const absl::Status status = api().Patch(kConfigMaps, Key("a"), PatchType::kJson, patch).status();
    EXPECT_EQ(ApiErrorOf(status).value_or(ApiError()).code, 400) << patch << ": " << status;
  }
  EXPECT_EQ(GetConfigMap("a")["data"]["k"], "1");
}

TEST_P(ApiConformance, ApplyMakesChangesAndTakesBackWhatItsManagerOwns) {
  Json object = ConfigMap("a", "1");
  object["data"]["l"] = "x";
  const Json made = Parsed(Apply("one", object));
  EXPECT_EQ(made["data"], Json({{"k", "1"}, {"l", "x"}}));
  object["data"] = {{"k", "2"}};
  const Json changed = Parsed(Apply("one", object));
  EXPECT_EQ(changed["data"], Json({{"k", "2"}}));
  EXPECT_EQ(changed["metadata"]["uid"], made["metadata"]["uid"]);
}

TEST_P(ApiConformance, ApplyLeavesTheFieldsOfOthersAlone) {
  Json other = ConfigMap("a", "1");
  other["data"] = {{"theirs", "1"}};
  ASSERT_TRUE(Apply("other", other).ok());
  ASSERT_TRUE(Apply("one", ConfigMap("a", "1")).ok());
  Json less = ConfigMap("a", "");
  less.erase("data");
  const Json left = Parsed(Apply("one", less));
  EXPECT_EQ(left["data"], Json({{"theirs", "1"}}));
}

TEST_P(ApiConformance, ApplyOfAnothersFieldIsAConflictUnlessForced) {
  ASSERT_TRUE(Apply("one", ConfigMap("a", "1")).ok());
  const absl::Status refused = Apply("two", ConfigMap("a", "2"), /*force=*/false).status();
  EXPECT_TRUE(IsApiConflict(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("\"one\""));
  // The same value is no conflict: both own it.
  EXPECT_TRUE(Apply("two", ConfigMap("a", "1"), /*force=*/false).ok());
  EXPECT_EQ(Parsed(Apply("two", ConfigMap("a", "2"), /*force=*/true))["data"]["k"], "2");
}

TEST_P(ApiConformance, ApplyThatChangesNothingIsNoWrite) {
  const Json first = Parsed(Apply("one", ConfigMap("a", "1")));
  EXPECT_EQ(VersionOf(Parsed(Apply("one", ConfigMap("a", "1")))), VersionOf(first));
  EXPECT_EQ(VersionOf(Parsed(api().Patch(kConfigMaps, Key("a"), PatchType::kMerge, R"({"data":{"k":"1"}})"))), VersionOf(first));
}

TEST_P(ApiConformance, TheStatusIsWrittenByItsOwnPathAlone) {
  ASSERT_TRUE(api().Create(kPods, ns_, Pod("a").dump()).ok());
  const std::string patch = R"({"metadata":{"labels":{"x":"y"}},"status":{"message":"hello"}})";
  EXPECT_FALSE(Parsed(api().Patch(kPods, Key("a"), PatchType::kMerge, patch))["status"].contains("message"));
  const Json spec = Parsed(api().Get(kPods, Key("a")))["spec"];
  const Json changed =
      Parsed(api().Patch(kPods, Key("a"), PatchType::kMerge, R"({"status":{"message":"hello"},"spec":{"activeDeadlineSeconds":5}})",
                         {.subresource = "status"}));
  EXPECT_EQ(changed["status"]["message"], "hello");
  EXPECT_EQ(changed["spec"], spec);
}

TEST_P(ApiConformance, TheStatusCanBeApplied) {
  ASSERT_TRUE(api().Create(kPods, ns_, Pod("a").dump()).ok());
  const auto apply = [&](const Json& status) {
    const Json object = {{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", {{"name", "a"}}}, {"status", status}};
    return Parsed(api().Apply(kPods, Key("a"), object.dump(), {.field_manager = "status-writer", .subresource = "status"}));
  };
  const Json first = apply({{"message", "one"}, {"reason", "Why"}});
  EXPECT_EQ(first["status"]["message"], "one");
  const Json second = apply({{"message", "two"}});
  EXPECT_EQ(second["status"]["message"], "two");
  EXPECT_FALSE(second["status"].contains("reason"));
  EXPECT_EQ(second["spec"]["containers"][0]["name"], "c");
}

TEST_P(ApiConformance, DeleteHoldsItsPreconditions) {
  const Json made = CreateConfigMap("a", "1");
  const absl::Status other = api().Delete(kConfigMaps, Key("a"), {.uid = "another"}).status();
  EXPECT_TRUE(IsApiConflict(other)) << other;
  EXPECT_TRUE(IsApiConflict(api().Delete(kConfigMaps, Key("a"), {.resource_version = "1"}).status()));
  EXPECT_TRUE(api().Get(kConfigMaps, Key("a")).ok());
  EXPECT_TRUE(api().Delete(kConfigMaps, Key("a"), {.uid = made["metadata"]["uid"], .resource_version = VersionOf(made)}).ok());
  EXPECT_TRUE(IsApiNotFound(api().Get(kConfigMaps, Key("a")).status()));
}

TEST_P(ApiConformance, AFinalizerHoldsTheObject) {
  Json object = ConfigMap("a", "1");
  object["metadata"]["finalizers"] = {"fusionllm.io/test"};
  ASSERT_TRUE(api().Create(kConfigMaps, ns_, object.dump()).ok());
  ASSERT_TRUE(api().Delete(kConfigMaps, Key("a")).ok());
  const Json held = GetConfigMap("a");
  EXPECT_TRUE(held["metadata"].contains("deletionTimestamp"));
  ASSERT_TRUE(api().Patch(kConfigMaps, Key("a"), PatchType::kMerge, R"({"metadata":{"finalizers":null}})").ok());
  EXPECT_TRUE(IsApiNotFound(api().Get(kConfigMaps, Key("a")).status()));
}

TEST_P(ApiConformance, ADryRunChangesNothing) {
  EXPECT_TRUE(api().Create(kConfigMaps, ns_, ConfigMap("a", "1").dump(), {.dry_run = true}).ok());
  EXPECT_TRUE(IsApiNotFound(api().Get(kConfigMaps, Key("a")).status()));
  CreateConfigMap("b", "1");
  EXPECT_EQ(Parsed(api().Apply(kConfigMaps, Key("b"), ConfigMap("b", "2").dump(), {.field_manager = "one", .dry_run = true}))["data"]["k"],
            "2");
  EXPECT_TRUE(api().Delete(kConfigMaps, Key("b"), {.dry_run = true}).ok());
  EXPECT_EQ(GetConfigMap("b")["data"]["k"], "1");
}

TEST_P(ApiConformance, ListsFollowTheirSelectors) {
  CreateConfigMap("a", "1", {{"app", "x"}, {"tier", "1"}});
  CreateConfigMap("b", "1", {{"app", "y"}});
  CreateConfigMap("c", "1", {{"app", "z"}, {"old", ""}});
  const auto names = [&](const ListOptions& options) {
    std::set<std::string> found;
    const Json list = Parsed(api().List(kConfigMaps, ns_, options));
    for (const Json& item : list["items"]) found.insert(item["metadata"]["name"]);
    found.erase("kube-root-ca.crt");  // of the real server's own
    return found;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(names({}), (Names{"a", "b", "c"}));
  EXPECT_EQ(names({.label_selector = "app=x"}), (Names{"a"}));
  EXPECT_EQ(names({.label_selector = "app in (x,y),!tier"}), (Names{"b"}));
  EXPECT_EQ(names({.label_selector = "app,app!=x,!old"}), (Names{"b"}));
  EXPECT_EQ(names({.label_selector = "app notin (x, y)", .field_selector = "metadata.name!=d"}), (Names{"c"}));
  EXPECT_EQ(names({.field_selector = "metadata.name=b"}), (Names{"b"}));
  EXPECT_EQ(ApiErrorOf(api().List(kConfigMaps, ns_, {.label_selector = "a b c"}).status())->code, 400);
}

TEST_P(ApiConformance, PagesTogetherAreOneMoment) {
  for (const char* name : {"a", "b", "c", "d", "e"}) CreateConfigMap(name, "1", {{"paged", "yes"}});
  std::vector<std::string> names;
  std::set<std::string> versions;
  std::string token;
  int pages = 0;
  do {
    const Json list = Parsed(api().List(kConfigMaps, ns_, {.label_selector = "paged=yes", .limit = 2, .continue_token = token}));
    if (!list.contains("metadata")) return;
    for (const Json& item : list["items"]) names.push_back(item["metadata"]["name"]);
    versions.insert(VersionOf(list));
    token = list["metadata"].value("continue", "");
    // In between, so that only a snapshot holds the same objects as the first page's moment.
    if (++pages == 1) {
      CreateConfigMap("bb", "1", {{"paged", "yes"}});
      ASSERT_TRUE(api().Delete(kConfigMaps, Key("e")).ok());
    }
  } while (!token.empty() && pages < 10);
  EXPECT_EQ(pages, 3);
  EXPECT_THAT(names, ::testing::ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_EQ(versions.size(), 1u);
}

TEST_P(ApiConformance, AContinueTokenThatIsNoneIsRefused) {
  const absl::Status status = api().List(kConfigMaps, ns_, {.limit = 2, .continue_token = "garbage"}).status();
  EXPECT_EQ(ApiErrorOf(status)->code, 400) << status;
}

TEST_P(ApiConformance, AVersionFromTheFutureIsNotYetThere) {
  const absl::Status status =
      api().List(kConfigMaps, ns_, {.resource_version = "999999999999", .resource_version_match = "NotOlderThan"}).status();
  EXPECT_TRUE(IsApiResourceVersionTooLarge(status)) << status;
  EXPECT_TRUE(IsTransient(status));
}

TEST_P(ApiConformance, MetadataAloneIsListed) {
  CreateConfigMap("a", "1", {{"meta", "yes"}});
  const Json list = Parsed(api().List(kConfigMaps, ns_, {.label_selector = "meta=yes", .metadata_only = true}));
  EXPECT_EQ(list["kind"], "PartialObjectMetadataList");
  ASSERT_EQ(list["items"].size(), 1u);
  EXPECT_EQ(list["items"][0]["metadata"]["name"], "a");
  EXPECT_FALSE(list["items"][0].contains("data"));
}

TEST_P(ApiConformance, MetadataAloneOfOneObjectIsRead) {
  CreateConfigMap("a", "1");
  const Json object = Parsed(api().GetMetadata(kConfigMaps, Key("a")));
  EXPECT_EQ(object["kind"], "PartialObjectMetadata");
  EXPECT_EQ(object["metadata"]["name"], "a");
  EXPECT_FALSE(object.contains("data"));
  EXPECT_TRUE(IsApiNotFound(api().GetMetadata(kConfigMaps, Key("b")).status()));
}

TEST_P(ApiConformance, ItSaysWhoItIs) {
  EXPECT_EQ(Parsed(api().GetPath("/version"))["major"], "1");
  EXPECT_EQ(*api().GetPath("/readyz"), "ok");
}

}  // namespace
}  // namespace fusionllm::kube::testing
