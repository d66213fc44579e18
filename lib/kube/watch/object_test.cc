#include "lib/kube/watch/object.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/kube/watch/testing/objects.h"

namespace fusionllm::kube {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kMetadata[] =
    R"("metadata":{"name":"x-0","generateName":null,"namespace":"ns","uid":"u-1","resourceVersion":"77","generation":3,
  "creationTimestamp":"2024-01-01T00:00:00Z","deletionTimestamp":"2024-01-02T00:00:00Z","labels":{"job":"caf\u00e9","empty":""},
  "annotations":null,"finalizers":["a/b","c/d"],
  "managedFields":[{"manager":"m","fieldsV1":{"f:metadata":{"f:labels":{".":{}}}}}],
  "ownerReferences":[{"kind":"A","name":"other","uid":"o-1"},{"kind":"Work","name":"w","uid":"o-2","controller":true}]})";

void ExpectMetadata(const ObjectMeta& meta) {
  EXPECT_EQ(meta.Key(), (ObjectKey{"ns", "x-0"}));
  EXPECT_EQ(meta.uid, "u-1");
  EXPECT_EQ(meta.resource_version, "77");
  EXPECT_EQ(meta.deletion_timestamp, "2024-01-02T00:00:00Z");
  EXPECT_EQ(meta.Label("job"), "café");
  EXPECT_EQ(meta.Label("empty"), "");
  EXPECT_EQ(meta.Label("none"), "");
}

TEST(ObjectTest, MetadataIsRead) {
  const auto object = DecodeMetadata(absl::StrCat(R"({"kind":"PartialObjectMetadata",)", kMetadata, "}"));
  ASSERT_TRUE(object.ok()) << object.status();
  ExpectMetadata((*object)->meta);
}

TEST(ObjectTest, AnnotationsAreReadOnRequest) {
  ObjectMeta meta;
  Annotations annotations;
  ASSERT_TRUE(
      ReadAnnotated(R"({"metadata":{"name":"a","annotations":{"x/y":"caf\u00e9","none":null},"resourceVersion":"5"}})", meta, annotations)
          .ok());
  EXPECT_EQ(meta.name, "a");
  EXPECT_EQ(AnnotationOf(annotations, "x/y"), "café");
  EXPECT_EQ(AnnotationOf(annotations, "none"), "");
  EXPECT_EQ(AnnotationOf(annotations, "other"), "");
  annotations.clear();
  ASSERT_TRUE(ReadAnnotated(R"({"metadata":{"name":"a","annotations":{"x":5,"y":"z"},"resourceVersion":"5"}})", meta, annotations).ok());
  EXPECT_EQ(AnnotationOf(annotations, "x"), "");
  EXPECT_EQ(AnnotationOf(annotations, "y"), "z");
  EXPECT_FALSE(ReadAnnotated(R"({"metadata":{"name":"a","annotations":[],"resourceVersion":"5"}})", meta, annotations).ok());
}

TEST(ObjectTest, WholeObjectsAreKeptWithoutTheirManagedFields) {
  const auto decoded = DecodeJson(absl::StrCat(R"({"spec":{"a":[1,"]"]},)", kMetadata, R"(,"status":{"b":"ü"}})"));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto& object = dynamic_cast<const JsonObject&>(**decoded);
  ExpectMetadata(object.meta);
  EXPECT_THAT(object.json, HasSubstr(R"({"spec":{"a":[1,"]"]},"metadata")"));
  EXPECT_THAT(object.json, HasSubstr(R"("managedFields":[],)"));
  EXPECT_THAT(object.json, Not(HasSubstr("fieldsV1")));
  EXPECT_THAT(object.json, HasSubstr(R"("status":{"b":"ü"}})"));
  const std::string without = testing::PodJson("p", "5");
  EXPECT_EQ(dynamic_cast<const JsonObject&>(**DecodeJson(without)).json, without);
}

TEST(ObjectTest, PodsTellWhereTheyAreAndHowTheirContainersFare) {
  const auto decoded = DecodePod(absl::StrCat("{", kMetadata, R"(,"spec":{"containers":[{"name":"c"}],"nodeName":"node-1"},
    "status":{"phase":"Failed","reason":"Evicted","message":"low on memory","podIP":"10.0.0.7","hostIP":"192.0.2.1",
      "conditions":[{"type":"PodScheduled","status":"True"},{"type":"Ready","status":"False","reason":"PodFailed","message":"m","lastProbeTime":null}],
      "initContainerStatuses":[{"name":"i","ready":true,"restartCount":0,"state":{"terminated":{"exitCode":0,"reason":"Completed"}}}],
      "containerStatuses":[
        {"name":"c","ready":false,"restartCount":4,"state":{"terminated":{"exitCode":137,"signal":9,"reason":"OOMKilled","message":"m"}},
         "lastState":{"terminated":{"exitCode":1,"reason":"Error"}}},
        {"name":"d","ready":true,"restartCount":0,"state":{"running":{"startedAt":"2024-01-01T00:00:00Z"}}},
        {"name":"e","ready":false,"restartCount":0,"state":{"waiting":{"reason":"ImagePullBackOff"}}},
        {"name":"f","ready":false,"restartCount":0}]}})"));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto& pod = dynamic_cast<const Pod&>(**decoded);
  ExpectMetadata(pod.meta);
  EXPECT_EQ(pod.phase, "Failed");
  EXPECT_EQ(pod.reason, "Evicted");
  EXPECT_EQ(pod.message, "low on memory");
  EXPECT_EQ(pod.node, "node-1");
  EXPECT_EQ(pod.pod_ip, "10.0.0.7");
  EXPECT_EQ(pod.host_ip, "192.0.2.1");
  EXPECT_FALSE(pod.Ready());
  ASSERT_EQ(pod.conditions.size(), 2u);
  EXPECT_EQ(pod.conditions[1].reason, "PodFailed");
  ASSERT_EQ(pod.init_containers.size(), 1u);
  ASSERT_EQ(pod.containers.size(), 4u);
  EXPECT_EQ(pod.containers[0].state.kind, ContainerState::Kind::kTerminated);
  EXPECT_EQ(pod.containers[0].state.exit_code, 137);
  EXPECT_EQ(pod.containers[0].state.reason, "OOMKilled");
  EXPECT_EQ(pod.containers[0].last_state.kind, ContainerState::Kind::kTerminated);
  EXPECT_EQ(pod.containers[0].last_state.exit_code, 1);
  EXPECT_EQ(pod.containers[0].last_state.reason, "Error");
  EXPECT_EQ(pod.containers[0].restarts, 4);
  EXPECT_EQ(pod.containers[1].state.kind, ContainerState::Kind::kRunning);
  EXPECT_FALSE(pod.containers[1].state.exit_code.has_value());
  EXPECT_TRUE(pod.containers[1].ready);
  EXPECT_EQ(pod.containers[2].state.kind, ContainerState::Kind::kWaiting);
  EXPECT_EQ(pod.containers[2].state.reason, "ImagePullBackOff");
  EXPECT_EQ(pod.containers[3].state.kind, ContainerState::Kind::kUnknown);
}

TEST(ObjectTest, WhatIsNoObjectIsRefused) {
  for (const char* json :
       {"", "{}", "[]", "null", "5", R"({"metadata":{}})", R"({"metadata":{"name":"a"}})",
        R"({"metadata":{"name":"","resourceVersion":"1"}})", R"({"metadata":{"name":"a","resourceVersion":"0"}})",
        R"({"metadata":{"name":"a","resourceVersion":5}})", R"({"metadata":{"name":7,"resourceVersion":"5"}})",
        R"({"metadata":{"name":"a","resourceVersion":"5","labels":[]}})", R"({"metadata":{"name":"a","resourceVersion":"5")"}) {
    for (const auto decode : {DecodeMetadata, DecodeJson, DecodePod}) EXPECT_FALSE(decode(json).ok()) << json;
  }
  EXPECT_FALSE(DecodePod(R"({"metadata":{"name":"a","resourceVersion":"5"},"status":{"phase":[]}})").ok());
}

}  // namespace
}  // namespace fusionllm::kube
