#include "operator/cache/pod_requirements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fusionllm::op::cache {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(PodRequirementsTest, SaysWhatAPodAsksOfANode) {
  const json pod = {
      {"spec",
       {{"containers", {{{"resources", {{"requests", {{"cpu", "2"}}}, {"limits", {{"nvidia.com/gpu", 1}}}}}}}},
        {"nodeSelector", {{"pool", "gpu"}}},
        {"tolerations", {{{"key", "gpu"}, {"operator", "Exists"}}, {{"operator", "Exists"}, {"effect", "NoExecute"}}}},
        {"affinity",
         {{"nodeAffinity",
           {{"requiredDuringSchedulingIgnoredDuringExecution",
             {{"nodeSelectorTerms", {{{"matchExpressions", {{{"key", "zone"}, {"operator", "In"}, {"values", {"a", "b"}}}}}}}}}}}}}}}}};
  const auto requirements = RequirementsOfPod(pod);
  ASSERT_TRUE(requirements.ok()) << requirements.status();
  EXPECT_EQ(requirements->requests, (kube::ResourceList{{"cpu", 2000}, {"nvidia.com/gpu", 1}, {"pods", 1}}));
  ASSERT_EQ(requirements->node_selector.size(), 1);
  EXPECT_EQ(requirements->node_selector[0].key, "pool");
  ASSERT_EQ(requirements->tolerations.size(), 2);
  EXPECT_EQ(requirements->tolerations[1].effect, "NoExecute");
  EXPECT_TRUE(requirements->has_affinity);
  ASSERT_EQ(requirements->affinity.size(), 1);
  EXPECT_EQ(requirements->affinity[0].labels[0].values, (std::vector<std::string>{"a", "b"}));
}

TEST(PodRequirementsTest, RequirementsHoldAsKubernetesSays) {
  const auto holds = [](const char* op, std::vector<std::string> values, std::optional<std::string> value) {
    return Holds({"key", op, std::move(values)}, value);
  };
  EXPECT_TRUE(holds("In", {"a", "b"}, "b"));
  EXPECT_FALSE(holds("In", {"a"}, std::nullopt));
  EXPECT_TRUE(holds("NotIn", {"a"}, std::nullopt));
  EXPECT_FALSE(holds("NotIn", {"a"}, "a"));
  EXPECT_TRUE(holds("Exists", {}, ""));
  EXPECT_TRUE(holds("DoesNotExist", {}, std::nullopt));
  EXPECT_TRUE(holds("Gt", {"79"}, "80"));
  EXPECT_FALSE(holds("Gt", {"80"}, "80"));
  EXPECT_TRUE(holds("Lt", {"80"}, "7"));
  EXPECT_FALSE(holds("Gt", {"x"}, "80"));
  EXPECT_FALSE(holds("Like", {"80"}, "80")) << "of a later Kubernetes: better no place than a wrong one";
}

TEST(PodRequirementsTest, LabelSelectorsAreChecked) {
  const auto read = ReadLabelSelector(
      {{"matchLabels", {{"tier", "gold"}}}, {"matchExpressions", {{{"key", "region"}, {"operator", "NotIn"}, {"values", {"eu"}}}}}});
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2);
  const auto complaint = [](const json& selector) { return std::string(ReadLabelSelector(selector).status().message()); };
  EXPECT_THAT(complaint({{"matchLabel", json::object()}}), HasSubstr("matchLabel:"));
  EXPECT_THAT(complaint({{"matchExpressions", {{{"key", "a"}, {"operator", "Gt"}, {"values", {"1"}}}}}}), HasSubstr("In, NotIn"));
  EXPECT_THAT(complaint({{"matchExpressions", {{{"key", "a"}, {"operator", "In"}}}}}), HasSubstr("a: In needs values"));
  EXPECT_THAT(complaint({{"matchExpressions", {{{"key", "a"}, {"operator", "Exists"}, {"values", {"1"}}}}}}), HasSubstr("takes no values"));
}

}  // namespace
}  // namespace fusionllm::op::cache
