// Against a library of our own with NVML's functions; what a driver's library answers, only a card can show.
#include "lib/nvml/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "lib/base/shared_library.h"

namespace fusionllm::nvml {
namespace {

using ::testing::HasSubstr;

constexpr char kCard[] = "0000:3b:00.0";
const std::vector<std::string> kLibrary = {FUSIONLLM_FAKE_NVML};

class NvmlTest : public ::testing::Test {
 protected:
  ~NvmlTest() override { unsetenv("FAKE_NVML"); }
  static int Begun() {
    int (*begun)() = nullptr;
    EXPECT_TRUE(base::SharedLibrary::Open(kLibrary)->Find("fakeNvmlBegun", begun).ok());
    return begun();
  }
};

TEST_F(NvmlTest, ItTellsHowTheCardFares) {
  const auto gpu = Gpu::Open(kCard, kLibrary);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  const Reading expected{.utilization_ratio = 0.87,
                         .memory_used_bytes = int64_t{5} << 30,
                         .memory_total_bytes = int64_t{80} << 30,
                         .temperature_celsius = 61,
                         .power_watts = 412.5};
  EXPECT_EQ((*gpu)->Read().value(), expected);
}

TEST_F(NvmlTest, WhatTheCardDoesNotTellIsLeftOut) {
  const auto gpu = Gpu::Open(kCard, kLibrary);
  ASSERT_TRUE(gpu.ok());
  setenv("FAKE_NVML", "slice", 1);
  const auto reading = (*gpu)->Read();
  ASSERT_TRUE(reading.ok());
  EXPECT_EQ(reading->utilization_ratio, std::nullopt);
  EXPECT_EQ(reading->temperature_celsius, 61);
}

TEST_F(NvmlTest, ACardThatIsLostIsAnError) {
  const auto gpu = Gpu::Open(kCard, kLibrary);
  ASSERT_TRUE(gpu.ok());
  setenv("FAKE_NVML", "lost", 1);
  EXPECT_EQ((*gpu)->Read().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string((*gpu)->Read().status().message()), HasSubstr("GPU is lost"));
}

TEST_F(NvmlTest, WithoutDriverLibraryOrCardItSaysSo) {
  const auto no_library = Gpu::Open(kCard, {"libthere-is-none.so.1"});
  EXPECT_EQ(no_library.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(no_library.status().message()), HasSubstr("libthere-is-none.so.1"));
  EXPECT_EQ(Gpu::Open("0000:5e:00.0", kLibrary).status().code(), absl::StatusCode::kNotFound);
  setenv("FAKE_NVML", "driver", 1);
  EXPECT_THAT(std::string(Gpu::Open(kCard, kLibrary).status().message()), HasSubstr("Driver Not Loaded"));
}

TEST_F(NvmlTest, EachBeginHasItsEnd) {
  {
    const auto gpu = Gpu::Open(kCard, kLibrary);
    EXPECT_EQ(Begun(), 1);
    EXPECT_FALSE(Gpu::Open("0000:5e:00.0", kLibrary).ok());
    EXPECT_EQ(Begun(), 1);
  }
  EXPECT_EQ(Begun(), 0);
}

}  // namespace
}  // namespace fusionllm::nvml
