// Fixtures of tests that need a card: without one they are skipped, and say so.
#pragma once

#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/testing/conformance.h"

namespace fusionllm::kernels::cuda {

// `Base`: ::testing::Test, or one with parameters. A SetUp of a derived class begins with this one, and goes on only where there is a
// device.
template <typename Base>
class DeviceFixture : public Base {
 protected:
  void SetUp() override {
    auto device = Device::Open(0);
    // The one answer on which a test may be left out: there is no card, and it says so.
    if (absl::IsNotFound(device.status())) GTEST_SKIP() << device.status().message();
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  std::unique_ptr<Device> device_;
};

// With the device's kernels as the suites of lib/kernels/testing take them.
template <typename Base>
class TargetFixture : public DeviceFixture<Base> {
 protected:
  void SetUp() override {
    DeviceFixture<Base>::SetUp();
    if (this->device_ == nullptr) return;
    target_ = {.make = [this](PreparedOp op) { return MakeKernel(std::move(op), *this->device_); }, .memory = &this->device_->memory()};
  }

  testing::Target target_;
};

}  // namespace fusionllm::kernels::cuda
