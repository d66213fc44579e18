// What a cache keeps of pods and owner ConfigMaps says the same as the objects that it was read from.
#include "operator/cache/cached_objects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lib/kube/testing/mutations.h"
#include "operator/manifests/identity.h"

namespace fusionllm::op::cache {
namespace {

using kube::testing::Mutations;
using nlohmann::json;

lifecycle::PodView ViewOf(const kube::ObjectPtr& pod) { return static_cast<const CachedPod&>(*pod).View("paris"); }
OwnerConfigMapView ViewOfOwnerConfigMap(const kube::ObjectPtr& owner_config_map) {
  return static_cast<const CachedOwnerConfigMap&>(*owner_config_map).View();
}

// With a value of its own in each field that a view has.
json FailedBroker() {
  const json report = {{"step", 7}, {"loss", 2.5}, {"reason", "InsufficientMemory"}, {"error", "needs 8 GiB"}};
  const json terminated = {{"exitCode", 3}, {"reason", "Error"}, {"message", report.dump()}};
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata",
           {{"name", "train-broker-r2"},
            {"namespace", "default"},
            {"uid", "u1"},
            {"resourceVersion", "41"},
            {"deletionTimestamp", "2026-11-21T10:00:00Z"},
            {"ownerReferences", {{{"kind", "ConfigMap"}, {"name", "train-anchor"}, {"uid", "u2"}, {"controller", true}}}},
            {"labels",
             {{manifests::kJobLabel, "train"},
              {manifests::kJobUidLabel, "j"},
              {manifests::kRoleLabel, manifests::kBrokerRole},
              {manifests::kAttemptLabel, "2"}}}}},
          {"spec", {{"nodeName", "n1"}, {"containers", {{{"name", "broker"}, {"resources", {{"requests", {{"cpu", "1"}}}}}}}}}},
          {"status",
           {{"phase", "Failed"},
            {"podIP", "10.0.0.7"},
            {"conditions", {{{"type", "DisruptionTarget"}, {"status", "True"}, {"reason", "PreemptionByScheduler"}}}},
            {"containerStatuses",
             {{{"name", "broker"},
               {"restartCount", 4},
               {"state", {{"terminated", terminated}}},
               {"lastState", {{"terminated", {{"exitCode", 137}, {"reason", "OOMKilled"}}}}}}}}}}};
}

json RunningExecutor() {
  json pod = FailedBroker();
  pod["metadata"]["name"] = "train-paris-1-r2";
  pod["metadata"].erase("deletionTimestamp");
  pod["metadata"]["labels"][manifests::kRoleLabel] = manifests::kExecutorRole;
  pod["metadata"]["labels"][manifests::kIndexLabel] = "1";
  pod["metadata"]["labels"][manifests::kClusterLabel] = "paris";
  pod["status"] = {{"phase", "Running"}, {"podIP", "10.0.0.8"}, {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}};
  return pod;
}

json WaitingExecutor() {
  json pod = RunningExecutor();
  pod["status"] = {
      {"phase", "Pending"},
      {"conditions", {{{"type", "PodScheduled"}, {"status", "False"}, {"reason", "Unschedulable"}, {"message", "0/1 nodes"}}}}};
  return pod;
}

json OwnerConfigMap() {
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata",
           {{"name", "train-run"},
            {"namespace", "default"},
            {"uid", "u2"},
            {"resourceVersion", "42"},
            {"deletionTimestamp", "2026-11-21T10:00:00Z"},
            {"labels",
             {{manifests::kJobLabel, "train"},
              {manifests::kJobUidLabel, "j"},
              {manifests::kHubLabel, "h"},
              {manifests::kRoleLabel, manifests::kOwnerConfigMapRole}}},
            {"annotations",
             {{manifests::kEpochAnnotation, "5"},
              {manifests::kPreservedAnnotation, "true"},
              {manifests::kPreparedAnnotation, "abc"},
              {manifests::kBrokerAnnotation, "10.0.0.7:7000"},
              {manifests::kRemoteBrokerAnnotation, "192.0.2.1:7000"},
              {manifests::kPlacementAnnotation, "2 paris:0"},
              {manifests::kWantedAnnotation, "3"},
              {manifests::kExecutorAddressesAnnotation, manifests::AddressesText({{"paris-0", "192.0.2.1:7001"}})},
              {manifests::kWaitingAnnotation, "a load balancer"}}}}}};
}

TEST(CachedPodTest, SaysWhatThePodSays) {
  for (const json& whole : {FailedBroker(), RunningExecutor(), WaitingExecutor()}) {
    int same = 0;
    for (const json& pod : Mutations(whole).All()) {
      const absl::StatusOr<kube::ObjectPtr> cached = CachedPod::Decode(pod.dump());
      if (!cached.ok()) continue;
      const absl::StatusOr<lifecycle::PodView> read = ReadPod(pod.dump(), "paris");
      ASSERT_TRUE(read.ok()) << read.status() << "\n" << pod.dump(1);
      ASSERT_EQ(ViewOf(*cached), *read) << pod.dump(1);
      ++same;
    }
    EXPECT_GT(same, 100) << "most of them can be read";
  }
}

TEST(CachedPodTest, KeepsEveryFieldOfAView) {
  const lifecycle::PodView broker = ViewOf(CachedPod::Decode(FailedBroker().dump()).value());
  EXPECT_EQ(broker.name, "train-broker-r2");
  EXPECT_EQ(broker.ns, "default");
  EXPECT_EQ(broker.uid, "u1");
  EXPECT_EQ(broker.job, "train");
  EXPECT_EQ(broker.owner, "u2");
  EXPECT_EQ(broker.role, manifests::kBrokerRole);
  EXPECT_EQ(broker.disruption, "PreemptionByScheduler");
  EXPECT_EQ(broker.attempt, 2);
  EXPECT_EQ(broker.phase, lifecycle::PodPhase::kFailed);
  EXPECT_TRUE(broker.deleted_at.has_value());
  EXPECT_EQ(broker.exit_code, 3);
  EXPECT_EQ(broker.reason, "Error");
  EXPECT_EQ(broker.message, "InsufficientMemory: needs 8 GiB");
  EXPECT_EQ(broker.address, "10.0.0.7");
  ASSERT_TRUE(broker.report.has_value());
  EXPECT_EQ(broker.report->loss, 2.5);
  EXPECT_EQ(broker.container_restarts, 4);
  EXPECT_TRUE(broker.killed_for_memory);
  const lifecycle::PodView executor = ViewOf(CachedPod::Decode(RunningExecutor().dump()).value());
  EXPECT_EQ(executor.role, manifests::kExecutorRole);
  EXPECT_EQ(executor.index, 1);
  EXPECT_TRUE(executor.ready);
}

TEST(CachedOwnerConfigMapTest, SaysWhatTheObjectSays) {
  int same = 0;
  for (const json& owner_config_map : Mutations(OwnerConfigMap()).All()) {
    const absl::StatusOr<OwnerConfigMapView> read = ReadOwnerConfigMap(owner_config_map.dump());
    const absl::StatusOr<kube::ObjectPtr> cached = CachedOwnerConfigMap::Decode(owner_config_map.dump());
    ASSERT_EQ(cached.ok(), read.ok()) << cached.status() << " and " << read.status() << "\n" << owner_config_map.dump(1);
    if (!read.ok()) continue;
    OwnerConfigMapView expected = *read;
    if (expected.job_uid.empty()) expected.job = expected.hub = "";  // of no job, whatever its other labels say
    ASSERT_EQ(ViewOfOwnerConfigMap(*cached), expected) << owner_config_map.dump(1);
    ++same;
  }
  EXPECT_GT(same, 100) << "most of them can be read";
}

TEST(CachedOwnerConfigMapTest, KeepsEveryFieldOfAView) {
  const OwnerConfigMapView view = ViewOfOwnerConfigMap(CachedOwnerConfigMap::Decode(OwnerConfigMap().dump()).value());
  const OwnerConfigMapView expected{.ns = "default",
                                    .name = "train-run",
                                    .uid = "u2",
                                    .job = "train",
                                    .job_uid = "j",
                                    .hub = "h",
                                    .epoch = 5,
                                    .preserved = true,
                                    .prepared = "abc",
                                    .broker_address = "10.0.0.7:7000",
                                    .remote_broker_address = "192.0.2.1:7000",
                                    .placement = "2 paris:0",
                                    .wanted = 3,
                                    .executor_addresses = {{"paris-0", "192.0.2.1:7001"}},
                                    .waiting = "a load balancer",
                                    .terminating = true};
  EXPECT_EQ(view, expected);
}

}  // namespace
}  // namespace fusionllm::op::cache
