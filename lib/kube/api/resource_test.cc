#include "lib/kube/api/resource.h"

#include <gtest/gtest.h>

namespace fusionllm::kube {
namespace {

const Resource kPods = {"", "v1", "pods", "Pod", true};
const Resource kNodes = {"", "v1", "nodes", "Node", false};
const Resource kJobs = {"fusionllm.io", "v1alpha1", "fusionjobs", "FusionJob", true};

TEST(Resource, PathsOfCollections) {
  EXPECT_EQ(CollectionPath(kPods, "ns"), "/api/v1/namespaces/ns/pods");
  EXPECT_EQ(CollectionPath(kPods, ""), "/api/v1/pods");
  EXPECT_EQ(CollectionPath(kNodes, "ns"), "/api/v1/nodes");
  EXPECT_EQ(CollectionPath(kJobs, "ns"), "/apis/fusionllm.io/v1alpha1/namespaces/ns/fusionjobs");
}

TEST(Resource, PathsOfObjects) {
  EXPECT_EQ(ObjectPath(kPods, {"ns", "a"}), "/api/v1/namespaces/ns/pods/a");
  EXPECT_EQ(ObjectPath(kJobs, {"ns", "a"}, "status"), "/apis/fusionllm.io/v1alpha1/namespaces/ns/fusionjobs/a/status");
  EXPECT_EQ(ObjectPath(kNodes, {"", "n"}), "/api/v1/nodes/n");
}

TEST(Resource, ANameCannotLeaveItsSegment) {
  // RBAC objects may be called "system:node"; a hostile name must not reach another object's path.
  EXPECT_EQ(ObjectPath(kNodes, {"", "system:node"}), "/api/v1/nodes/system%3Anode");
  EXPECT_EQ(ObjectPath(kPods, {"a/../b", "x?y#z"}), "/api/v1/namespaces/a%2F..%2Fb/pods/x%3Fy%23z");
}

TEST(Resource, SelectorsAreEncoded) {
  EXPECT_EQ(QueryString({{"labelSelector", "a=b,c!=d,e in (f)"}, {"limit", ""}, {"watch", "true"}}),
            "labelSelector=a%3Db%2Cc%21%3Dd%2Ce%20in%20%28f%29&watch=true");
  EXPECT_EQ(PercentEncode("\xc3\xa9 +%"), "%C3%A9%20%2B%25");
}

TEST(Resource, Names) {
  EXPECT_EQ(kPods.ApiVersion(), "v1");
  EXPECT_EQ(kJobs.ApiVersion(), "fusionllm.io/v1alpha1");
  EXPECT_EQ(kJobs.Name(), "fusionjobs.fusionllm.io");
  EXPECT_EQ((ObjectKey{"ns", "a"}).ToString(), "ns/a");
  EXPECT_EQ((ObjectKey{"", "a"}).ToString(), "a");
}

}  // namespace
}  // namespace fusionllm::kube
