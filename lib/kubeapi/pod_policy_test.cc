// What is asked of an API server; what it makes of that, e2e/scenarios/member_by_command.sh tries.
#include "lib/kubeapi/pod_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fusionllm::kubeapi {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

const PolicySubject kSubject{"hubs", "north", {"s3-reader"}};

TEST(PodPolicyTest, BindsTheAccountAndNobodyElse) {
  for (const Json& spec : {PodPolicySpec(kSubject), PlacePolicySpec(kSubject)}) {
    EXPECT_EQ(spec["failurePolicy"], "Fail");
    ASSERT_EQ(spec["matchConditions"].size(), 1);
    EXPECT_EQ(spec["matchConditions"][0]["expression"], "request.userInfo.username == 'system:serviceaccount:hubs:north'");
  }
}

TEST(PodPolicyTest, NamesEachWayFromAPodToItsNode) {
  std::string all;
  const Json spec = PodPolicySpec(kSubject);
  for (const Json& validation : spec["validations"]) {
    EXPECT_FALSE(validation["message"].get<std::string>().empty());
    EXPECT_EQ(validation["reason"], "Forbidden");
    all += validation["expression"].get<std::string>() + "\n";
  }
  for (const char* way : {"hostNetwork", "hostPID", "hostIPC", "v.hostPath", "securityContext.privileged", "capabilities.add",
                          "hostProcess", "serviceAccountName in ['', 'default', 's3-reader']"}) {
    EXPECT_THAT(all, HasSubstr(way));
  }
  EXPECT_THAT(all, HasSubstr("initContainers.all(c, ")) << "those that run before, too";
}

TEST(PodPolicyTest, NoPlaceOfKubernetesOrOfTheOperatorIsForJobs) {
  for (const char* own : {"kube-system", "kube-public", "kube-node-lease", "kube-x"}) EXPECT_TRUE(IsSystemNamespace(own)) << own;
  for (const char* other : {"default", "training", "mykube-system", "kube"}) EXPECT_FALSE(IsSystemNamespace(other)) << other;
  const Json spec = PlacePolicySpec(kSubject);
  EXPECT_THAT(spec["validations"][0]["expression"].get<std::string>(), HasSubstr("startsWith('kube-')"));
  EXPECT_THAT(spec["validations"][1]["expression"].get<std::string>(), HasSubstr("request.namespace != 'hubs'"));
}

}  // namespace
}  // namespace fusionllm::kubeapi
