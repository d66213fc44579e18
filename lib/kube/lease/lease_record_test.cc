#include "lib/kube/lease/lease_record.h"

#include <gtest/gtest.h>

namespace fusionllm::kube {
namespace {

using nlohmann::json;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

TEST(LeaseRecordTest, ANewLeaseIsWhatTheServerTakes) {
  LeaseRecord record(ObjectKey{"ns", "operator"});
  record.Hold("me", absl::Seconds(15), kNow);
  EXPECT_EQ(json::parse(record.ToJson()), json::parse(R"({
    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "operator", "namespace": "ns"},
    "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 0,
             "acquireTime": "2023-11-14T22:13:20.000000Z", "renewTime": "2023-11-14T22:13:20.000000Z"}})"));
}

TEST(LeaseRecordTest, RenewingKeepsWhenItWasTakenAndTakingOverCounts) {
  constexpr char kText[] = R"({"kind": "Lease", "metadata": {"name": "l", "resourceVersion": "7", "labels": {"a": "b"}},
    "spec": {"holderIdentity": "other", "leaseDurationSeconds": 40, "leaseTransitions": 3, "strategy": "OldestEmulationVersion",
             "acquireTime": "2023-11-14T20:00:00.000000Z", "renewTime": "2023-11-14T22:00:00.000000Z"}})";
  LeaseRecord record = *LeaseRecord::Parse(kText);
  EXPECT_EQ(record.holder(), "other");
  EXPECT_EQ(record.duration(), absl::Seconds(40));
  EXPECT_EQ(record.transitions(), 3);
  record.Hold("other", absl::Seconds(15), kNow);
  json written = json::parse(record.ToJson());
  EXPECT_EQ(written["spec"]["acquireTime"], "2023-11-14T20:00:00.000000Z");
  EXPECT_EQ(written["spec"]["leaseTransitions"], 3);
  record.Hold("me", absl::Seconds(15), kNow);
  written = json::parse(record.ToJson());
  EXPECT_EQ(written["spec"]["acquireTime"], "2023-11-14T22:13:20.000000Z");
  EXPECT_EQ(written["spec"]["renewTime"], "2023-11-14T22:13:20.000000Z");
  EXPECT_EQ(written["spec"]["leaseTransitions"], 4);
  EXPECT_EQ(written["metadata"]["resourceVersion"], "7");  // what the server compares
  EXPECT_EQ(written["metadata"]["labels"]["a"], "b");      // what is others' stays
  EXPECT_EQ(written["spec"]["strategy"], "OldestEmulationVersion");
}

TEST(LeaseRecordTest, AReleasedLeaseIsStillValid) {
  LeaseRecord record = *LeaseRecord::Parse(R"({"kind": "Lease", "metadata": {"name": "l", "resourceVersion": "7"},
                                               "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 3}})");
  record.Release(kNow);
  const json spec = json::parse(record.ToJson())["spec"];
  EXPECT_EQ(spec["holderIdentity"], "");
  EXPECT_EQ(spec["leaseDurationSeconds"], 1);                   // 0 is refused
  EXPECT_EQ(spec["renewTime"], "2023-11-14T22:13:20.000000Z");  // so are times of other forms
  EXPECT_EQ(spec["leaseTransitions"], 3);
}

TEST(LeaseRecordTest, OddLeasesAreReadAndOtherThingsRefused) {
  for (const char* text :
       {R"({"kind": "Lease", "metadata": {"resourceVersion": "1"}})", R"({"kind": "Lease", "metadata": {}, "spec": null})",
        R"({"kind": "Lease", "metadata": {}, "spec": {"holderIdentity": null, "leaseTransitions": "x"}})"}) {
    const auto record = LeaseRecord::Parse(text);
    ASSERT_TRUE(record.ok()) << text;
    EXPECT_EQ(record->holder(), "");
    EXPECT_EQ(record->transitions(), 0);
  }
  const char kLong[] = R"({"kind": "Lease", "metadata": {}, "spec": {"holderIdentity": "x", "leaseDurationSeconds": 2000000000}})";
  EXPECT_EQ(LeaseRecord::Parse(kLong)->duration(), absl::Hours(1));
  for (const char* text : {"", "{", "[]", "null", R"({"kind": "Status"})", R"({"kind": "Lease"})", R"({"kind": "Lease", "metadata": 5})"}) {
    EXPECT_FALSE(LeaseRecord::Parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace fusionllm::kube
