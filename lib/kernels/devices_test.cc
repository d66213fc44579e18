#include "lib/kernels/devices.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/kernels/backend.h"

namespace fusionllm::kernels {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(DevicesTest, NamesAreReadStrictly) {
  for (const char* name : {"auto", "cpu", "cuda:0", "cuda:15"}) EXPECT_TRUE(CheckDeviceName(name).ok()) << name;
  for (const char* name : {"", "gpu", "cuda", "cuda:", "cuda:-1", "cuda:01", "cuda:0x1", "cuda: 1", "cuda:99999", "CPU"}) {
    const absl::Status status = CheckDeviceName(name);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(status.message(), HasSubstr("use auto, cpu or cuda:N")) << name;
  }
  EXPECT_EQ(CudaIndex("cuda:3"), 3);
  EXPECT_EQ(CudaIndex("cpu"), -1);
}

TEST(DevicesTest, WhatIsChosenCanBeOpened) {
  for (const char* name : {"auto", "cpu"}) {
    const auto choice = ChooseDevice(name);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_FALSE(choice->description.empty());
    const auto backend = CreateBackend(choice->backend, {});
    ASSERT_TRUE(backend.ok()) << backend.status();
  }
  EXPECT_EQ(ChooseDevice("cpu")->backend, "cpu");
}

TEST(DevicesTest, ACardThatIsNotThereIsAnErrorThatSaysWhatToDo) {
  const auto choice = ChooseDevice("cuda:1000");
  ASSERT_FALSE(choice.ok());
  EXPECT_THAT(choice.status().message(), HasSubstr("cuda:1000"));
  EXPECT_THAT(choice.status().message(), AnyOf(HasSubstr("make cuda"), HasSubstr("this machine has")));
  const auto backend = CreateBackend("cuda:1000", {});
  EXPECT_FALSE(backend.ok());
  EXPECT_THAT(backend.status().message(), HasSubstr("cuda:1000"));
}

}  // namespace
}  // namespace fusionllm::kernels
