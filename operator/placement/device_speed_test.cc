#include "operator/placement/device_speed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fusionllm::op::placement {
namespace {

using ::testing::HasSubstr;

TEST(DeviceSpeedTest, LabelsOfNodesNameGpus) {
  const std::pair<const char*, const char*> cases[] = {
      {"NVIDIA-A100-SXM4-80GB", "nvidia-a100-80gb-sxm"},
      {"NVIDIA-A100-80GB-PCIe", "nvidia-a100-80gb"},
      {"NVIDIA-A100-PCIE-40GB", "nvidia-a100-40gb"},
      {"NVIDIA-H100-80GB-HBM3", "nvidia-h100-sxm"},
      {"NVIDIA-H100-PCIe", "nvidia-h100-pcie"},
      {"NVIDIA-H200", "nvidia-h200-sxm"},
      {"Tesla-T4", "nvidia-t4"},
      {"Tesla-V100-SXM2-32GB", "nvidia-v100-32gb-sxm"},
      {"NVIDIA-L4", "nvidia-l4"},
      {"NVIDIA-L40S", "nvidia-l40s"},
      {"NVIDIA-GeForce-RTX-3090", "nvidia-rtx-3090"},
      {"AMD_Instinct_MI300X_OAM", "amd-mi300x"},
      {"h100", "nvidia-h100-pcie"},  // the slower of two
  };
  for (const auto& [label, name] : cases) {
    const estimator::GpuSpec* const gpu = GpuOfProduct(label);
    ASSERT_NE(gpu, nullptr) << label;
    EXPECT_EQ(gpu->name, name) << label;
  }
}

TEST(DeviceSpeedTest, PartsOfAGpuAndOthersAreNotKnown) {
  for (const char* const label :
       {"NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "Tesla-T4-SHARED", "NVIDIA-A10G", "NVIDIA-GeForce-RTX-4090-Laptop-GPU", "nvidia.com/gpu"}) {
    EXPECT_EQ(GpuOfProduct(label), nullptr) << label;
  }
  EXPECT_THAT(std::string(AssumedProfile("NVIDIA-A10G", {}, job::Precision::kFp32).status().message()),
              HasSubstr("no figures are known of NVIDIA-A10G"));
}

TEST(DeviceSpeedTest, AProcessorIsAsFastAsTheCoresAskedFor) {
  const auto one = AssumedProfile("", {}, job::Precision::kFp32),
             four = AssumedProfile("", {{"cpu", 4000}, {"memory", int64_t{8} << 30}}, job::Precision::kFp32);
  ASSERT_TRUE(one.ok() && four.ok());
  EXPECT_DOUBLE_EQ(one->rates.at("matmul").seconds_per_flop, 4 * four->rates.at("matmul").seconds_per_flop);
  EXPECT_EQ(one->memory_bytes, kUnknownMemoryBytes);
  EXPECT_EQ(four->memory_bytes, int64_t{8} << 30);
}

TEST(DeviceSpeedTest, ABf16JobMultipliesOnTheTensorCores) {
  const auto rate = [](job::Precision precision) {
    const auto profile = AssumedProfile("NVIDIA-H100-80GB-HBM3", {}, precision);
    EXPECT_TRUE(profile.ok()) << profile.status();
    return profile->rates.at("matmul").seconds_per_flop;
  };
  EXPECT_LT(rate(job::Precision::kBf16), rate(job::Precision::kFp32) / 5);
}

}  // namespace
}  // namespace fusionllm::op::placement
