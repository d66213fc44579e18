#include "operator/manifests/pod_references.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fusionllm::op::manifests {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> In(const json& spec) {
  std::vector<std::string> references;
  for (const PodReference& reference : ReferencesOf({{"spec", spec}})) {
    const std::string keys = reference.keys.empty() ? "" : absl::StrCat(", with ", absl::StrJoin(reference.keys, " "));
    references.push_back(absl::StrCat(reference.kind->kind, " ", reference.name, ": ", reference.use, keys));
  }
  return references;
}

TEST(PodReferencesTest, EveryWayToNameAnObjectIsSeen) {
  const json projected = {{{"configMap", {{"name", "c2"}}}}, {{"secret", {{"name", "s2"}}}}, {{"downwardAPI", json::object()}}};
  const json volumes = {{{"name", "a"}, {"configMap", {{"name", "c1"}}}},
                        {{"name", "b"}, {"secret", {{"secretName", "s1"}}}},
                        {{"name", "c"}, {"projected", {{"sources", projected}}}},
                        {{"name", "d"}, {"persistentVolumeClaim", {{"claimName", "claim"}}}},
                        {{"name", "e"}, {"emptyDir", json::object()}}};
  const json env = {{{"name", "X"}, {"value", "x"}},
                    {{"name", "Y"}, {"valueFrom", {{"configMapKeyRef", {{"name", "c3"}, {"key", "k"}}}}}},
                    {{"name", "Z"}, {"valueFrom", {{"secretKeyRef", {{"name", "s3"}, {"key", "k"}}}}}}};
  const json env_from = {{{"configMapRef", {{"name", "c4"}}}}, {{"secretRef", {{"name", "s4"}}}}};
  EXPECT_THAT(In({{"volumes", volumes},
                  {"initContainers", {{{"name", "first"}, {"envFrom", env_from}}}},
                  {"containers", {{{"name", "executor"}, {"env", env}}}}}),
              ElementsAre("ConfigMap c1: volume a", "Secret s1: volume b", "ConfigMap c2: volume c", "Secret s2: volume c",
                          "PersistentVolumeClaim claim: volume d", "ConfigMap c4: environment of container first",
                          "Secret s4: environment of container first", "ConfigMap c3: environment of container executor, with k",
                          "Secret s3: environment of container executor, with k"));
}

TEST(PodReferencesTest, KeysThatAreNamedAreThoseOfAllUses) {
  const json items = {{{"key", "README.md"}, {"path", "a"}}, {{"key", "b"}, {"path", "b"}}, {{"path", "c"}}, 1};
  const json volumes = {{{"name", "a"}, {"configMap", {{"name", "c"}, {"items", items}}}},
                        {{"name", "b"}, {"projected", {{"sources", {{{"configMap", {{"name", "c"}, {"items", {{{"key", "d"}}}}}}}}}}}}};
  const auto variable = [](const std::string& key, bool optional) {
    return json{{"name", "X"}, {"valueFrom", {{"configMapKeyRef", {{"name", "c"}, {"key", key}, {"optional", optional}}}}}};
  };
  EXPECT_THAT(In({{"volumes", volumes},
                  {"containers", {{{"name", "executor"}, {"env", {variable("b", false), variable("e", false), variable("f", true)}}}}}}),
              ElementsAre("ConfigMap c: volume a, with README.md b d e"));
}

TEST(PodReferencesTest, WhatIsOptionalIsLeftOut) {
  const json volumes = {{{"name", "a"}, {"configMap", {{"name", "c"}, {"optional", true}}}},
                        {{"name", "b"}, {"secret", {{"secretName", "s"}, {"optional", false}}}}};
  EXPECT_THAT(In({{"volumes", volumes}}), ElementsAre("Secret s: volume b"));
}

TEST(PodReferencesTest, AnObjectIsNamedOnceAndThereIsALimit) {
  json volumes = json::array();
  for (int i = 0; i < 1000; ++i) volumes.push_back({{"name", "v"}, {"configMap", {{"name", absl::StrCat("c", i % 500)}}}});
  EXPECT_EQ(In({{"volumes", volumes}}).size(), kMaxReferences);
  volumes = {{{"name", "v"}, {"configMap", {{"name", "c"}}}}, {{"name", "w"}, {"configMap", {{"name", "c"}}}}};
  EXPECT_THAT(In({{"volumes", volumes}}), ElementsAre("ConfigMap c: volume v"));
}

TEST(PodReferencesTest, WhatIsNoPodNamesNothing) {
  for (const char* text : {"null", "[]", R"({"spec": 1})", R"({"spec": {"volumes": {"configMap": {"name": "c"}}}})",
                           R"({"spec": {"volumes": [1, {"configMap": "c"}, {"secret": {"secretName": 1}}]}})"}) {
    EXPECT_THAT(ReferencesOf(json::parse(text)), IsEmpty()) << text;
  }
}

}  // namespace
}  // namespace fusionllm::op::manifests
