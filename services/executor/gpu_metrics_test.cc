#include "services/executor/gpu_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace fusionllm::services {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(GpuMetricsTest, TellWhatTheCardSays) {
  auto gpu = nvml::Gpu::Open("0000:3b:00.0", {FUSIONLLM_FAKE_NVML});
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  metrics::Registry registry("test", "1");
  AddGpuMetrics(registry, *std::move(gpu));
  std::string text = registry.Text();
  for (const char* line : {"fusionllm_gpu_utilization_ratio 0.87\n", "fusionllm_gpu_temperature_celsius 61\n",
                           "fusionllm_gpu_memory_bytes{kind=\"used\"} 5368709120\n", "fusionllm_gpu_power_watts 412.5\n",
                           "fusionllm_gpu_throttled{reason=\"power\"} 1\n", "fusionllm_gpu_throttled{reason=\"heat\"} 0\n",
                           "fusionllm_gpu_ecc_uncorrected_errors_total 0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  setenv("FAKE_NVML", "slice", 1);
  text = registry.Text();
  EXPECT_THAT(text, Not(HasSubstr("fusionllm_gpu_utilization_ratio 0.87")));
  EXPECT_THAT(text, HasSubstr("fusionllm_gpu_temperature_celsius 61\n"));
  setenv("FAKE_NVML", "lost", 1);
  EXPECT_THAT(registry.Text(), Not(HasSubstr("\nfusionllm_gpu_temperature_celsius ")));
  unsetenv("FAKE_NVML");
  EXPECT_THAT(registry.Text(), HasSubstr("fusionllm_gpu_utilization_ratio 0.87\n")) << "and is back";
}

TEST(GpuMetricsTest, ErrorsAreCountedAndStayCounted) {
  auto gpu = nvml::Gpu::Open("0000:3b:00.0", {FUSIONLLM_FAKE_NVML});
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  metrics::Registry registry("test", "1");
  AddGpuMetrics(registry, *std::move(gpu));
  EXPECT_THAT(registry.Text(), Not(HasSubstr("\nfusionllm_gpu_xid_errors_total")));
  setenv("FAKE_NVML_XIDS", "31 79 31", 1);
  setenv("FAKE_NVML", "lost", 1);
  const std::string lost = registry.Text();
  EXPECT_THAT(lost, HasSubstr("fusionllm_gpu_xid_errors_total{xid=\"79\"} 1\n")) << "why it is lost";
  EXPECT_THAT(lost, HasSubstr("fusionllm_gpu_xid_errors_total{xid=\"31\"} 2\n"));
  setenv("FAKE_NVML_XIDS", "31", 1);
  setenv("FAKE_NVML", "broken", 1);
  const std::string broken = registry.Text();
  EXPECT_THAT(broken, HasSubstr("fusionllm_gpu_xid_errors_total{xid=\"31\"} 3\n"));
  EXPECT_THAT(broken, HasSubstr("fusionllm_gpu_ecc_uncorrected_errors_total 2\n"));
  unsetenv("FAKE_NVML");
  unsetenv("FAKE_NVML_XIDS");
  EXPECT_THAT(registry.Text(), HasSubstr("fusionllm_gpu_xid_errors_total{xid=\"79\"} 1\n"));
}

TEST(GpuMetricsTest, WithoutACardThereAreNone) {
  metrics::Registry registry("test", "1");
  AddGpuMetrics(registry, nullptr);
  EXPECT_THAT(registry.Text(), Not(HasSubstr("\nfusionllm_gpu")));
}

}  // namespace
}  // namespace fusionllm::services
