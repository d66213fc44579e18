#include "lib/kube/watch/pod_demand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace fusionllm::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

Amounts Requests(const std::string& spec) {
  const auto requests = RequestsOfPod(absl::StrCat(R"({"spec":)", spec, "}"));
  EXPECT_TRUE(requests.ok()) << requests.status();
  return requests.value_or(Amounts());
}

TEST(PodDemandTest, ContainersAreCountedTogether) {
  EXPECT_EQ(
      Requests(R"({"containers":[{"resources":{"requests":{"cpu":"100m","memory":"1Ki"}}},{"resources":{"requests":{"cpu":2}}},{}]})"),
      (Amounts{{"cpu", 2100}, {"memory", 1024}, {"pods", 1}}));
}

TEST(PodDemandTest, ALimitWithoutARequestIsOne) {
  EXPECT_EQ(Requests(R"({"containers":[{"resources":{"limits":{"cpu":"2","nvidia.com/gpu":1},"requests":{"cpu":"1"}}}]})"),
            (Amounts{{"cpu", 1000}, {"nvidia.com/gpu", 1}, {"pods", 1}}));
}

TEST(PodDemandTest, InitContainersCountOneByOneBesideTheSidecarsBeforeThem) {
  EXPECT_EQ(Requests(R"({"initContainers":[
      {"resources":{"requests":{"cpu":"3"}}},
      {"restartPolicy":"Always","resources":{"requests":{"cpu":"1"}}},
      {"resources":{"requests":{"cpu":"4"}}}],
    "containers":[{"resources":{"requests":{"cpu":"2","memory":"5"}}}]})"),
            (Amounts{{"cpu", 5000}, {"memory", 5}, {"pods", 1}}));
}

TEST(PodDemandTest, OverheadIsAddedAndThePodsOwnRequestsGoFirst) {
  EXPECT_EQ(Requests(R"({"overhead":{"memory":"10"},"resources":{"requests":{"memory":"100"}},
    "containers":[{"resources":{"requests":{"memory":"70","cpu":"1"}}}]})"),
            (Amounts{{"cpu", 1000}, {"memory", 110}, {"pods", 1}}));
}

TEST(PodDemandTest, KeepsWhereItIsAndTheLabelsAskedFor) {
  const auto decoded = DecodePodDemand(R"({"metadata":{"name":"p","namespace":"n","resourceVersion":"1","labels":{"a":"1","b":"2"},
    "finalizers":["x/y"]},"spec":{"nodeName":"n1","containers":[]},"status":{"phase":"Succeeded"}})",
                                       {"b"});
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto& pod = dynamic_cast<const PodDemand&>(**decoded);
  EXPECT_EQ(pod.node, "n1");
  EXPECT_TRUE(pod.ended);
  EXPECT_THAT(pod.meta.labels, ElementsAre(Pair("b", "2")));
  EXPECT_THAT(pod.meta.finalizers, ElementsAre());
}

TEST(PodDemandTest, NoPodsAreRefused) {
  EXPECT_FALSE(DecodePodDemand("{}", {}).ok());
  EXPECT_FALSE(RequestsOfPod(R"({"spec":{"containers":3}})").ok());
}

}  // namespace
}  // namespace fusionllm::kube
