#include "operator/controller/endpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "lib/kubeapi/fusion_job_status_fields.h"

namespace fusionllm::op::controller {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

class EndpointsTest : public ::testing::Test {
 protected:
  EndpointsTest() {
    job_.spec.network.mode = job::NetworkMode::kDirect;
    for (int i = 0; i < 2; ++i) slots_.push_back({"tokyo", i, false});
    slots_.push_back({"tokyo", 2, true});
    slots_.push_back({"paris", 0, false});
    AddPod(0, "10.9.0.1");
    AddPod(1, "10.9.0.2");
  }
  lifecycle::PodView& AddPod(int index, const std::string& address) {
    return tokyo_.pods.emplace_back(lifecycle::PodView{.name = absl::StrCat("e", index),
                                                       .role = manifests::kExecutorRole,
                                                       .cluster = "tokyo",
                                                       .index = index,
                                                       .attempt = 3,
                                                       .address = address});
  }
  std::string Endpoint() {
    ways_.job = &job_;
    ways_.slots = &slots_;
    return ExecutorEndpoint(ways_, tokyo_, served_).value_or("as before");
  }

  job::FusionJob job_;
  std::vector<manifests::ExecutorSlot> slots_;
  lifecycle::ClusterView tokyo_{.name = "tokyo"};
  std::map<std::string, std::string> served_;
  EndpointInputs ways_{.attempt = 3};
};

TEST_F(EndpointsTest, WithoutServicesTheyAreTheAddressesOfPods) {
  EXPECT_EQ(Endpoint(), "10.9.0.1:7001, 10.9.0.2:7001");
  AddPod(2, "2001:db8::1");
  EXPECT_EQ(Endpoint(), "10.9.0.1:7001, 10.9.0.2:7001, [2001:db8::1]:7001") << "a spare's, when it has one";
  served_ = {{"tokyo-0", "192.0.2.1:30001"}, {"tokyo-1", "192.0.2.1:30002"}};
  job_.spec.network.mode = job::NetworkMode::kNodePort;
  EXPECT_EQ(Endpoint(), "192.0.2.1:30001, 192.0.2.1:30002");
}

TEST_F(EndpointsTest, ReportsAddressesTogether) {
  tokyo_.pods[1].address = "";
  EXPECT_EQ(Endpoint(), "as before");
  tokyo_.pods[1] = {.name = "b", .role = manifests::kBrokerRole, .attempt = 3, .address = "10.9.0.9"};
  EXPECT_EQ(Endpoint(), "as before") << "that is the broker's";
  tokyo_.pods.clear();
  EXPECT_EQ(Endpoint(), "") << "nobody is there to be dialled";
  AddPod(0, "10.9.0.1").attempt = 2;
  EXPECT_EQ(Endpoint(), "") << "of an earlier attempt";
}

TEST_F(EndpointsTest, WhatIsNoAddressIsNotPassedOn) {
  tokyo_.pods[0].address = "nowhere, or somewhere";
  tokyo_.pods[1].address = std::string(300, 'x');
  EXPECT_EQ(Endpoint(), "");
}

TEST_F(EndpointsTest, ThoseWithoutRoomAreCounted) {
  tokyo_.pods.clear();
  slots_.clear();
  slots_.push_back({"paris", 0, false});
  for (int i = 0; i < 100; ++i) {
    slots_.push_back({"tokyo", i, false});
    AddPod(i, absl::StrCat("10.9.0.", i));
  }
  EXPECT_THAT(Endpoint(), StartsWith("10.9.0.0:7001, 10.9.0.1:7001, "));
  EXPECT_THAT(Endpoint(), EndsWith("10.9.0.13:7001, 10.9.0.14:7001, and 85 more"));
  EXPECT_LE(Endpoint().size(), kubeapi::kMaxShortText);
  job_.spec.network.mode = job::NetworkMode::kLoadBalancer;
  for (int i = 0; i < 100; ++i) served_[absl::StrCat("tokyo-", i)] = absl::StrCat(std::string(250, 'a'), ":", 1000 + i);
  EXPECT_THAT(Endpoint(), EndsWith(", and 99 more"));
  EXPECT_LE(Endpoint().size(), kubeapi::kMaxShortText);
}

TEST_F(EndpointsTest, WhereTheyOnlyDialOutItIsTheRelay) {
  ways_.egress_only = {"tokyo"};
  EXPECT_EQ(Endpoint(), "");
  ways_.relay = "192.0.2.1:7000";
  EXPECT_EQ(Endpoint(), "relay 192.0.2.1:7000");
  ways_.egress_only.clear();
  job_.spec.network.mode = job::NetworkMode::kAuto;
  EXPECT_EQ(Endpoint(), "relay 192.0.2.1:7000") << "the job does not say that they are routed";
  slots_.pop_back();
  EXPECT_EQ(Endpoint(), "") << "the job is in one cluster alone";
}

}  // namespace
}  // namespace fusionllm::op::controller
