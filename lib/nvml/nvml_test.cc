// Against a library of our own with NVML's functions; what a driver's library answers, only a card can show.
#include "lib/nvml/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "lib/base/shared_library.h"

namespace fusionllm::nvml {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kCard[] = "0000:3b:00.0";
const std::vector<std::string> kLibrary = {FUSIONLLM_FAKE_NVML};

class NvmlTest : public ::testing::Test {
 protected:
  ~NvmlTest() override {
    unsetenv("FAKE_NVML");
    unsetenv("FAKE_NVML_XIDS");
  }
  static int Ask(const char* function) {
    int (*asked)() = nullptr;
    EXPECT_TRUE(base::SharedLibrary::Open(kLibrary)->Find(function, asked).ok());
    return asked();
  }
  static int Begun() { return Ask("fakeNvmlBegun"); }
};

TEST_F(NvmlTest, ItTellsHowTheCardFares) {
  const auto gpu = Gpu::Open(kCard, kLibrary);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  const Reading expected{.utilization_ratio = 0.87,
                         .memory_used_bytes = int64_t{5} << 30,
                         .memory_total_bytes = int64_t{80} << 30,
                         .temperature_celsius = 61,
                         .power_watts = 412.5,
                         .throttling = Throttling{.power = true},
                         .uncorrected_ecc_errors = 0};
  EXPECT_EQ((*gpu)->Read().value(), expected);
}

TEST_F(NvmlTest, ItTellsOfErrorsOfMemoryAndOfSlowdowns) {
  const auto gpu = Gpu::Open(kCard, kLibrary);
  ASSERT_TRUE(gpu.ok());
  setenv("FAKE_NVML", "broken", 1);
  const auto reading = (*gpu)->Read();
  ASSERT_TRUE(reading.ok());
  EXPECT_EQ(reading->uncorrected_ecc_errors, 2);
  EXPECT_EQ(reading->throttling, (Throttling{.heat = true, .hardware = true}));
}

TEST_F(NvmlTest, XidErrorsAreTakenOnceAndNotWaitedFor) {
  const auto gpu = Gpu::Open(kCard, kLibrary);
  ASSERT_TRUE(gpu.ok());
  EXPECT_THAT((*gpu)->TakeXids(), IsEmpty());
  setenv("FAKE_NVML_XIDS", "31 79 31", 1);
  setenv("FAKE_NVML", "lost", 1);
  EXPECT_THAT((*gpu)->TakeXids(), ElementsAre(31, 79, 31)) << "79 is that it has fallen off the bus";
  EXPECT_THAT((*gpu)->TakeXids(), IsEmpty());
  EXPECT_EQ(Ask("fakeNvmlLongestWait"), 0);
}

TEST_F(NvmlTest, OfACardThatTellsOfNoErrorsThereAreNone) {
  setenv("FAKE_NVML", "slice", 1);
  setenv("FAKE_NVML_XIDS", "79", 1);
  const auto gpu = Gpu::Open(kCard, kLibrary);
  ASSERT_TRUE(gpu.ok());
  EXPECT_THAT((*gpu)->TakeXids(), IsEmpty());
  EXPECT_EQ((*gpu)->Read()->uncorrected_ecc_errors, std::nullopt);
  EXPECT_EQ(Ask("fakeNvmlEventSets"), 0);
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
    EXPECT_EQ(Ask("fakeNvmlEventSets"), 1);
  }
  EXPECT_EQ(Begun(), 0);
  EXPECT_EQ(Ask("fakeNvmlEventSets"), 0);
}

}  // namespace
}  // namespace fusionllm::nvml
