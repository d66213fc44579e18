#include "operator/manifests/pod_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/kube/testing/mutations.h"
#include "operator/manifests/hardware.h"

namespace fusionllm::op::manifests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

PodParts Parts() {
  return {.name = "train-local-0-r0",
          .labels = {{"fusionllm.io/job", "train"}},
          .container = "executor",
          .image = "executor:1",
          .command = {"executor"},
          .env = {{{"name", "JOB"}, {"value", "train"}}},
          .ports = {{{"name", "metrics"}, {"containerPort", 9400}}},
          .volumes = {{{"name", "credentials"}, {"secret", {{"secretName", "train-executors"}}}}},
          .mounts = {{{"name", "credentials"}, {"mountPath", "/etc/fusionllm"}}},
          .readiness_probe = {{"httpGet", {{"path", "/readyz"}}}},
          .init_containers = {{{"name", "wait"},
                               {"image", "executor:1"},
                               {"command", {"wait"}},
                               {"restartPolicy", "Always"},
                               {"resources", {{"requests", {{"memory", "1Gi"}}}}},
                               {"volumeMounts", {{{"name", "credentials"}, {"mountPath", "/etc/fusionllm"}}}}}},
          .restart_policy = "Never"};
}

// A template with a bit of everything that is merged with what is ours.
json Template() {
  return {{"metadata", {{"labels", {{"team", "a"}}}, {"annotations", {{"note", "b"}}}}},
          {"spec",
           {{"securityContext", {{"fsGroup", 1}}},
            {"volumes", {{{"name", "scratch"}, {"emptyDir", json::object()}}}},
            {"initContainers",
             {{{"name", "fetch"}, {"image", "fetch:1"}},
              {{"name", "wait"},
               {"command", {"theirs"}},
               {"args", {"theirs"}},
               {"resources", {{"limits", {{"memory", "2Gi"}}}}},
               {"securityContext", {{"runAsUser", 7}}},
               {"volumeMounts", {{{"name", "scratch"}, {"mountPath", "/scratch"}}}}}}},
            {"affinity",
             {{"nodeAffinity",
               {{"requiredDuringSchedulingIgnoredDuringExecution",
                 {{"nodeSelectorTerms", {{{"matchExpressions", {{{"key", "zone"}, {"operator", "Exists"}}}}}}}}}}}}},
            {"containers",
             {{{"name", "executor"},
               {"env", {{{"name", "MINE"}, {"value", "1"}}, {{"name", "JOB"}, {"value", "other"}}}},
               {"ports", {{{"name", "debug"}, {"containerPort", 1}}}},
               {"resources", {{"limits", {{"cpu", 1}}}, {"requests", {{"cpu", 1}}}}},
               {"securityContext", {{"runAsUser", 7}}},
               {"volumeMounts", {{{"name", "scratch"}, {"mountPath", "/scratch"}}}}}}}}}};
}

absl::StatusOr<json> Build(const json& pod_template) {
  absl::StatusOr<json> pod = BuildPod(Parts(), pod_template.dump());
  if (!pod.ok()) return pod;
  job::Placement placement;
  placement.min_memory = job::ByteSize{int64_t{1} << 30};
  const DeviceKind kind{.label = "nvidia.com/gpu.product", .values = {"NVIDIA-L4"}};
  if (absl::Status status = RequestHardware(placement, kind, "executor", *pod); !status.ok()) return status;
  return pod;
}

TEST(PodTemplateTest, IsMergedWithWhatIsOurs) {
  const absl::StatusOr<json> pod = Build(Template());
  ASSERT_TRUE(pod.ok()) << pod.status();
  const json& container = pod->at("spec").at("containers").at(0);
  EXPECT_EQ(container.at("env"), json({{{"name", "MINE"}, {"value", "1"}}, {{"name", "JOB"}, {"value", "train"}}}));
  EXPECT_EQ(container.at("securityContext").at("runAsUser"), 7);
  EXPECT_EQ(container.at("securityContext").at("readOnlyRootFilesystem"), true);
  EXPECT_EQ(container.at("volumeMounts").size(), 3) << "theirs, ours, /tmp";
  EXPECT_EQ(container.at("resources").at("requests"), json({{"cpu", 1}, {"memory", "1073741824"}}));
  EXPECT_EQ(pod->at("spec").at("initContainers").size(), 2);
  EXPECT_EQ(pod->at("metadata").at("labels"), json({{"team", "a"}, {"fusionllm.io/job", "train"}}));
}

TEST(PodTemplateTest, AnInitContainerOfOursTakesWhatTheTemplateSaysOfItAndDoesWhatItShall) {
  const absl::StatusOr<json> pod = Build(Template());
  ASSERT_TRUE(pod.ok()) << pod.status();
  const json& containers = pod->at("spec").at("initContainers");
  ASSERT_EQ(containers.size(), 2) << "a name twice would be refused";
  EXPECT_EQ(containers.at(1).at("name"), "fetch");
  const json& wait = containers.at(0);
  EXPECT_EQ(wait.at("name"), "wait") << "ours are there before the template's";
  EXPECT_EQ(wait.at("resources"), json({{"limits", {{"memory", "2Gi"}}}})) << "a limit of the one below a request of the other is refused";
  EXPECT_EQ(wait.at("command"), json({"wait"}));
  EXPECT_FALSE(wait.contains("args"));
  EXPECT_EQ(wait.at("restartPolicy"), "Always");
  EXPECT_EQ(wait.at("image"), "executor:1");
  EXPECT_EQ(wait.at("volumeMounts").size(), 2) << "theirs and ours";
  EXPECT_EQ(wait.at("securityContext").at("runAsUser"), 7);
  EXPECT_EQ(wait.at("securityContext").at("readOnlyRootFilesystem"), true);
}

TEST(PodTemplateTest, WhateverStandsInItIsAPodOrAnErrorThatNamesTheField) {
  const std::vector<json> mutations = kube::testing::Mutations(Template()).All();
  int refused = 0;
  for (const json& mutation : mutations) {
    absl::StatusOr<json> pod = absl::UnknownError("");
    ASSERT_NO_THROW(pod = Build(mutation)) << mutation.dump(1);
    if (pod.ok()) {
      const json& containers = pod->at("spec").at("containers");
      EXPECT_TRUE(std::any_of(containers.begin(), containers.end(), [](const json& c) { return c.at("name") == "executor"; })) << mutation;
      continue;
    }
    ++refused;
    EXPECT_THAT(std::string(pod.status().message()), HasSubstr("template")) << mutation;
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace fusionllm::op::manifests
