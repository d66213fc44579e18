// What is asked of an API server; what it makes of that, e2e/scenarios/member_by_command.sh tries.
#include "lib/kubeapi/pod_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fusionllm::kubeapi {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const PolicySubject kSubject{"hubs", "north", {"s3-reader"}};

TEST(PodPolicyTest, BindsOnlyTheAccount) {
  for (const Json& spec :
       {PodPolicySpec(kSubject), PlacePolicySpec(kSubject), ChangePolicySpec(kSubject), TokenPolicySpec(kSubject, "north-token", 600)}) {
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

TEST(PodPolicyTest, TokenRenewalMayChangeLabelledSecretsOnly) {
  PolicySubject subject = kSubject;
  const auto own = [&] { return PlacePolicySpec(subject)["validations"][1]["expression"].get<std::string>(); };
  EXPECT_THAT(own(), Not(HasSubstr("'secrets'")));
  subject.renews_tokens = true;
  EXPECT_THAT(own(), AllOf(HasSubstr("request.operation == 'UPDATE'"),
                           HasSubstr("oldObject.metadata.labels['fusionllm.io/renew-token'] == 'true'")));
}

TEST(PodPolicyTest, WhatIsChangedOrDeletedIsOfAnOperator) {
  PolicySubject subject = kSubject;
  const auto rule = [&] { return ChangePolicySpec(subject)["validations"][0]["expression"].get<std::string>(); };
  EXPECT_EQ(rule(), "(has(oldObject.metadata.labels) && 'fusionllm.io/origin' in oldObject.metadata.labels)");
  const Json match = ChangePolicySpec(subject)["matchConstraints"]["resourceRules"][0];
  EXPECT_EQ(match["operations"], Json::array({"UPDATE", "DELETE"}));
  EXPECT_EQ(match["resources"], Json::array({"pods", "services", "secrets", "configmaps"}));
  subject.renews_tokens = true;
  EXPECT_THAT(rule(), HasSubstr("request.namespace == 'hubs' && has(oldObject.metadata.labels) && 'fusionllm.io/renew-token'"));
}

TEST(PodPolicyTest, TokensEndInTimeAndWithTheirSecret) {
  const Json spec = TokenPolicySpec(kSubject, "north-token", 600);
  EXPECT_EQ(spec["matchConstraints"]["resourceRules"][0]["resources"], Json::array({"serviceaccounts/token"}));
  EXPECT_THAT(spec["validations"][0]["expression"].get<std::string>(),
              AllOf(HasSubstr("boundObjectRef.kind == 'Secret'"), HasSubstr("boundObjectRef.name == 'north-token'")));
  EXPECT_EQ(spec["validations"][1]["expression"], "object.spec.expirationSeconds <= 600");
}

}  // namespace
}  // namespace fusionllm::kubeapi
