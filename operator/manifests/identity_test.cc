// The longest names that a job's objects may have.
#include "operator/manifests/identity.h"

#include <gtest/gtest.h>

#include <limits>

#include "lib/job/fusion_job.h"
#include "lib/job/name.h"
#include "lib/kubeapi/crd.h"

namespace fusionllm::op::manifests {
namespace {

constexpr size_t kMaxDnsLabel = 63, kMaxDnsName = 253;

TEST(IdentityTest, TheLongestNamesAreNamesStill) {
  const JobIdentity job = {.name = std::string(job::kMaxJobName, 'j'), .ns = "team", .uid = "u", .origin = "hub"};
  const ExecutorSlot last = {std::string(kubeapi::kMaxClusterName, 'c'), static_cast<int>(job::kMaxExecutors) - 1, false};
  const std::string device = DeviceName(last);
  EXPECT_LE(device.size(), kMaxDnsLabel) << "a label's value, and a name in a certificate";
  for (const std::string& name : {ExecutorServiceName(job, device), BrokerServiceName(job)}) EXPECT_LE(name.size(), kMaxDnsLabel) << name;
  constexpr int64_t kMany = std::numeric_limits<int64_t>::max();
  for (const std::string& name :
       {ExecutorPodName(job, last, kMany), BrokerPodName(job, kMany), OwnerConfigMapName(job), JobDocumentName(job), BrokerSecretName(job),
        ExecutorSecretName(job, last.index), AuthoritySecretName(job)}) {
    EXPECT_LE(name.size(), kMaxDnsName) << name;
  }
  for (const auto& [label, value] : JobLabels(job)) EXPECT_LE(value.size(), kMaxDnsLabel) << label;
}

TEST(IdentityTest, TheLastExecutorIsFoundInThePlacement) {
  const std::vector<ExecutorSlot> slots = {{"c", static_cast<int>(job::kMaxExecutors) - 1, true}};
  EXPECT_EQ(ParsePlacement(3, PlacementText(3, slots)), slots);
}

}  // namespace
}  // namespace fusionllm::op::manifests
