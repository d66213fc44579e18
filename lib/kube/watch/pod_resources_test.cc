#include "lib/kube/watch/pod_resources.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace fusionllm::kube {
namespace {

ResourceList Requests(const std::string& spec) {
  const auto requests = RequestsOfPod(absl::StrCat(R"({"spec":)", spec, "}"));
  EXPECT_TRUE(requests.ok()) << requests.status();
  return requests.value_or(ResourceList());
}

TEST(PodResourcesTest, ContainersAreCountedTogether) {
  EXPECT_EQ(
      Requests(R"({"containers":[{"resources":{"requests":{"cpu":"100m","memory":"1Ki"}}},{"resources":{"requests":{"cpu":2}}},{}]})"),
      (ResourceList{{"cpu", 2100}, {"memory", 1024}, {"pods", 1}}));
}

TEST(PodResourcesTest, ALimitWithoutARequestIsOne) {
  EXPECT_EQ(Requests(R"({"containers":[{"resources":{"limits":{"cpu":"2","nvidia.com/gpu":1},"requests":{"cpu":"1"}}}]})"),
            (ResourceList{{"cpu", 1000}, {"nvidia.com/gpu", 1}, {"pods", 1}}));
}

TEST(PodResourcesTest, InitContainersCountOneByOneBesideTheSidecarsBeforeThem) {
  EXPECT_EQ(Requests(R"({"initContainers":[
      {"resources":{"requests":{"cpu":"3"}}},
      {"restartPolicy":"Always","resources":{"requests":{"cpu":"1"}}},
      {"resources":{"requests":{"cpu":"4"}}}],
    "containers":[{"resources":{"requests":{"cpu":"2","memory":"5"}}}]})"),
            (ResourceList{{"cpu", 5000}, {"memory", 5}, {"pods", 1}}));
}

TEST(PodResourcesTest, OverheadIsAddedAndThePodsOwnRequestsGoFirst) {
  EXPECT_EQ(Requests(R"({"overhead":{"memory":"10"},"resources":{"requests":{"memory":"100"}},
    "containers":[{"resources":{"requests":{"memory":"70","cpu":"1"}}}]})"),
            (ResourceList{{"cpu", 1000}, {"memory", 110}, {"pods", 1}}));
}

TEST(PodResourcesTest, SaysWhereItIsAndWhetherItHasEnded) {
  PodResources pod;
  ASSERT_TRUE(ReadPodResources(R"({"metadata":{"name":"p","namespace":"n","resourceVersion":"1"},"spec":{"nodeName":"n1","containers":[]},
    "status":{"phase":"Succeeded"}})",
                               pod)
                  .ok());
  EXPECT_EQ(pod.meta.name, "p");
  EXPECT_EQ(pod.node, "n1");
  EXPECT_TRUE(pod.ended);
}

TEST(PodResourcesTest, PodsThatRequestTheSameShareIt) {
  const auto read = [](int cpu) {
    PodResources pod;
    EXPECT_TRUE(ReadPodResources(absl::StrCat(R"({"metadata":{"name":"p","resourceVersion":"1"},"spec":{"containers":[
      {"resources":{"requests":{"cpu":)",
                                              cpu, "}}}]}}"),
                                 pod)
                    .ok());
    return pod.requests;
  };
  EXPECT_EQ(*read(2), (ResourceList{{"cpu", 2000}, {"pods", 1}}));
  const auto one = read(2);
  EXPECT_EQ(one, read(2));
  EXPECT_NE(one, read(3));
}

TEST(PodResourcesTest, NoPodsAreRefused) {
  PodResources pod;
  EXPECT_FALSE(ReadPodResources("{}", pod).ok());
  EXPECT_FALSE(RequestsOfPod(R"({"spec":{"containers":3}})").ok());
}

}  // namespace
}  // namespace fusionllm::kube
