#include "operator/manifests/hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fusionllm::op::manifests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json PodWith(const json& resources = json::object()) {
  json container = {{"name", "executor"}};
  if (!resources.empty()) container["resources"] = resources;
  return {{"spec", {{"containers", {{{"name", "other"}}, container}}}}};
}

const DeviceKind kGpu{.label = "nvidia.com/gpu.product", .values = {"NVIDIA-L4"}, .resource = "nvidia.com/gpu"};

absl::Status Ask(const DeviceKind& kind, json& pod, std::optional<int64_t> min_bytes = std::nullopt) {
  job::Placement placement;
  if (min_bytes.has_value()) placement.min_memory = job::ByteSize{*min_bytes};
  return RequestHardware(placement, kind, "executor", pod);
}

TEST(HardwareTest, WhoAsksForNvidiaGetsTheImageForIt) {
  const auto image_of = [](const json& resources, const std::string& image, const std::string& cuda = "cuda:1") {
    json pod = PodWith(resources);
    pod["spec"]["containers"][1]["image"] = image;
    UseCudaImage("plain:1", cuda, "executor", pod);
    return pod["spec"]["containers"][1]["image"].get<std::string>();
  };
  const json gpu = {{"limits", {{"nvidia.com/gpu", "1"}}}};
  EXPECT_EQ(image_of(gpu, "plain:1"), "cuda:1");
  EXPECT_EQ(image_of({{"requests", {{"nvidia.com/mig-1g.10gb", 1}}}}, "plain:1"), "cuda:1");
  EXPECT_EQ(image_of(gpu, "own:7"), "own:7") << "the job's own";
  EXPECT_EQ(image_of(gpu, "plain:1", ""), "plain:1") << "there is none";
  EXPECT_EQ(image_of({{"limits", {{"nvidia.com/gpu", 0}}}}, "plain:1"), "plain:1");
  EXPECT_EQ(image_of({{"limits", {{"cpu", 2}, {"amd.com/gpu", 1}}}}, "plain:1"), "plain:1");
  EXPECT_EQ(image_of(json::object(), "plain:1"), "plain:1");
}

TEST(HardwareTest, WhoAsksForAGpuComputesThereOrNotAtAll) {
  const auto command_for = [](const json& resources) {
    json pod = PodWith(resources);
    pod["spec"]["containers"][1]["command"] = {"fusion-executor"};
    ComputeOnGpu("executor", pod);
    EXPECT_FALSE(pod["spec"]["containers"][0].contains("command"));
    return pod["spec"]["containers"][1]["command"];
  };
  const json on_gpu = {"fusion-executor", "--device", "cuda:0"}, left_to_itself = {"fusion-executor"};
  EXPECT_EQ(command_for({{"limits", {{"nvidia.com/gpu", 1}}}}), on_gpu);
  EXPECT_EQ(command_for({{"limits", {{"nvidia.com/gpu", "2"}}}, {"requests", {{"nvidia.com/gpu", "2"}}}}), on_gpu);
  EXPECT_EQ(command_for({{"limits", {{"nvidia.com/gpu.shared", 1}}}}), on_gpu);
  EXPECT_EQ(command_for({{"requests", {{"nvidia.com/mig-1g.10gb", 1}}}}), on_gpu);
  EXPECT_EQ(command_for({{"limits", {{"nvidia.com/gpu", "0"}}}}), left_to_itself) << "none";
  EXPECT_EQ(command_for({{"limits", {{"nvidia.com/hostdev", 1}}}}), left_to_itself) << "a network card";
  EXPECT_EQ(command_for({{"limits", {{"cpu", 2}, {"amd.com/gpu", 1}}}}), left_to_itself) << "there is no back end for it";
  EXPECT_EQ(command_for(json::object()), left_to_itself);
}

TEST(HardwareTest, KeepsPodWithoutHardwareRequest) {
  json pod = PodWith();
  EXPECT_TRUE(Ask({}, pod).ok());
  EXPECT_EQ(pod, PodWith());
}

TEST(HardwareTest, ADeviceIsAskedForByItsLabelAndItsResource) {
  json pod = PodWith();
  EXPECT_TRUE(Ask(kGpu, pod).ok());
  EXPECT_EQ(pod["spec"]["containers"][1]["resources"]["limits"]["nvidia.com/gpu"], "1");
  EXPECT_FALSE(pod["spec"]["containers"][0].contains("resources"));
  const json& required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
  EXPECT_EQ(required["nodeSelectorTerms"],
            json({{{"matchExpressions", {{{"key", "nvidia.com/gpu.product"}, {"operator", "In"}, {"values", {"NVIDIA-L4"}}}}}}}));
}

TEST(HardwareTest, WhatTheTemplateAsksForStays) {
  json pod = PodWith({{"limits", {{"nvidia.com/gpu", 4}}}});
  pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = {
      {{"matchExpressions", {{{"key", "zone"}, {"operator", "Exists"}}}}}, {{"matchFields", json::array()}}};
  EXPECT_TRUE(Ask(kGpu, pod).ok());
  EXPECT_EQ(pod["spec"]["containers"][1]["resources"]["limits"]["nvidia.com/gpu"], 4);
  const json& terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
  ASSERT_EQ(terms.size(), 2) << "either may hold, so each has the device";
  EXPECT_EQ(terms[0]["matchExpressions"].size(), 2);
  EXPECT_EQ(terms[1]["matchExpressions"].size(), 1);
}

TEST(HardwareTest, ADevicesMemoryIsBoundedByItsLabel) {
  json pod = PodWith();
  DeviceKind kind = kGpu;
  kind.memory_label = "nvidia.com/gpu.memory";
  kind.min_mebibytes = 16384;
  EXPECT_TRUE(Ask(kind, pod, int64_t{16} << 30).ok());
  const json& required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
  EXPECT_EQ(required["nodeSelectorTerms"][0]["matchExpressions"][1],
            json({{"key", "nvidia.com/gpu.memory"}, {"operator", "Gt"}, {"values", {"16383"}}}));
  EXPECT_FALSE(pod["spec"]["containers"][1]["resources"].contains("requests")) << "it is the device's memory, not the node's";
}

TEST(HardwareTest, WithoutADeviceMemoryIsTheNodes) {
  json pod = PodWith();
  EXPECT_TRUE(Ask({}, pod, int64_t{2} << 30).ok());
  EXPECT_EQ(pod["spec"]["containers"][1]["resources"]["requests"]["memory"], "2147483648");
  json enough = PodWith({{"requests", {{"memory", "3Gi"}}}});
  const json before = enough;
  EXPECT_TRUE(Ask({}, enough, int64_t{2} << 30).ok());
  EXPECT_EQ(enough, before);
  json small = PodWith({{"limits", {{"memory", "1Gi"}}}});
  const absl::Status status = Ask({}, small, int64_t{2} << 30);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("spec.executors.template: limits.memory of 1Gi is less than spec.placement.minMemory, 2Gi"));
}

}  // namespace
}  // namespace fusionllm::op::manifests
