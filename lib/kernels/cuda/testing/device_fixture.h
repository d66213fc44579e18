// Fixtures of tests that need a card: without one they are skipped, and say so.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/testing/conformance.h"
#include "lib/tensor/memory.h"

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

  // Copies of values in the device's memory, and of what is there.
  template <typename T>
  tensor::MemoryBlock Sent(const std::vector<T>& values) {
    tensor::MemoryBlock block = *device_->memory().Allocate(values.size() * sizeof(T));
    EXPECT_TRUE(device_->memory().CopyIn(block.data(), values.data(), values.size() * sizeof(T)).ok());
    return block;
  }
  template <typename T>
  std::vector<T> Received(const tensor::MemoryBlock& block) {
    std::vector<T> values(block.size() / sizeof(T));
    EXPECT_TRUE(device_->memory().CopyOut(values.data(), block.data(), block.size()).ok());
    return values;
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
