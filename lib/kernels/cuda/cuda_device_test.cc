// What goes on beside the kernels of a device: copies under way, messages in either direction, marks and recordings. Without a toolkit and
// a card the streams are those of emulated/, which do everything as late as they may.
#include <array>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/kernels/cuda/graph_capture.h"
#include "lib/kernels/cuda/testing/device_fixture.h"
#include "lib/kernels/cuda/transfers.h"

namespace fusionllm::kernels::cuda {
namespace {

using ::testing::Each;

constexpr int64_t kCount = 3000;
constexpr int kMany = 10;  // more than any ring has room for
using FloatVector = std::vector<float>;

std::span<const std::byte> BytesOf(const FloatVector& numbers) { return std::as_bytes(std::span(numbers)); }

class CudaDeviceWorkTest : public DeviceFixture<::testing::Test> {
 protected:
  void SetUp() override {
    DeviceFixture::SetUp();
    if (device_ == nullptr) return;
    const tensor::TensorType type{tensor::DType::kF32, tensor::Shape{kCount}};
    auto doubling = MakeKernel({.name = "double", .kind = OpKind::kAdd, .inputs = {type, type}, .outputs = {type}}, *device_);
    ASSERT_TRUE(doubling.ok()) << doubling.status();
    doubling_ = *std::move(doubling);
    block_ = *device_->memory().Allocate(kCount * sizeof(float));
  }
  float* numbers() { return reinterpret_cast<float*>(block_.data()); }
  absl::Status Fill(float value) {
    const FloatVector values(kCount, value);
    return device_->memory().CopyIn(block_.data(), values.data(), kCount * sizeof(float));
  }
  // numbers *= 2
  absl::Status Double() {
    const tensor::TensorType type{tensor::DType::kF32, tensor::Shape{kCount}};
    const tensor::ConstTensorView input(tensor::TensorView{type, block_.data()});
    const std::array<tensor::ConstTensorView, 2> inputs = {input, input};
    const std::array<tensor::TensorView, 1> outputs = {tensor::TensorView{type, block_.data()}};
    return doubling_->Run({.inputs = inputs, .outputs = outputs});
  }
  FloatVector Read() {
    FloatVector values(kCount);
    EXPECT_TRUE(device_->memory().CopyOut(values.data(), block_.data(), kCount * sizeof(float)).ok());
    return values;
  }

  std::unique_ptr<Kernel> doubling_;
  tensor::MemoryBlock block_;
};

TEST_F(CudaDeviceWorkTest, WhatIsTakenIsNotFreeUntilItIsGivenBack) {
  constexpr size_t kBytes = size_t{64} << 20;
  const auto before = device_->FreeBytes();
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_LE(*before, device_->info().memory_bytes);
  {
    const auto block = device_->memory().Allocate(kBytes);
    ASSERT_TRUE(block.ok()) << block.status();
    EXPECT_LE(*device_->FreeBytes(), *before - kBytes);
  }
  EXPECT_EQ(*device_->FreeBytes(), *before);
}

TEST_F(CudaDeviceWorkTest, ManyCopiesToTheDeviceKeepTheirBytes) {
  std::vector<tensor::MemoryBlock> blocks;
  for (int i = 0; i < kMany; ++i) {
    blocks.push_back(*device_->memory().Allocate(kCount * sizeof(float)));
    const FloatVector values(kCount, static_cast<float>(i));  // gone when the call has returned
    ASSERT_TRUE(device_->memory().CopyIn(blocks.back().data(), values.data(), kCount * sizeof(float)).ok());
  }
  for (int i = 0; i < kMany; ++i) {
    FloatVector got(kCount);
    ASSERT_TRUE(device_->memory().CopyOut(got.data(), blocks[i].data(), kCount * sizeof(float)).ok());
    EXPECT_THAT(got, Each(static_cast<float>(i)));
  }
}

TEST_F(CudaDeviceWorkTest, ACopyThatWasStartedHasWhatWasThereThen) {
  ASSERT_TRUE(Fill(3).ok());
  const auto copy = device_->memory().StartCopyOut(numbers() + 7, sizeof(float));
  ASSERT_TRUE(copy.ok()) << copy.status();
  ASSERT_TRUE(Double().ok());
  float got = 0;
  ASSERT_TRUE((*copy)->Wait(&got).ok());
  EXPECT_EQ(got, 3);
  EXPECT_THAT(Read(), Each(6.0f));
}

TEST_F(CudaDeviceWorkTest, ACopyThatWasStartedTellsWhatKernelsFoundBefore) {
  const tensor::TensorType ids{tensor::DType::kI32, tensor::Shape{1}}, table{tensor::DType::kF32, tensor::Shape{4, kCount}},
      row{tensor::DType::kF32, tensor::Shape{1, kCount}};
  const auto lookup =
      MakeKernel({.name = "wte", .kind = OpKind::kEmbedding, .inputs = {ids}, .parameters = {table}, .outputs = {row}}, *device_);
  ASSERT_TRUE(lookup.ok()) << lookup.status();
  tensor::MemoryBlock rows = *device_->memory().Allocate(table.bytes()), id = *device_->memory().Allocate(sizeof(int32_t));
  ASSERT_TRUE(device_->memory().Zero(rows.data(), rows.size()).ok());
  const int32_t outside = 4;
  ASSERT_TRUE(device_->memory().CopyIn(id.data(), &outside, sizeof(outside)).ok());
  const std::array<tensor::ConstTensorView, 1> inputs = {tensor::ConstTensorView(tensor::TensorView{ids, id.data()})};
  const std::array<tensor::TensorView, 1> parameters = {tensor::TensorView{table, rows.data()}};
  const std::array<tensor::TensorView, 1> outputs = {tensor::TensorView{row, block_.data()}};
  ASSERT_TRUE((*lookup)->Run({.inputs = inputs, .parameters = parameters, .outputs = outputs}).ok());
  const auto copy = device_->memory().StartCopyOut(numbers(), sizeof(float));
  ASSERT_TRUE(copy.ok());
  float got = 0;
  const absl::Status status = (*copy)->Wait(&got);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("at position 0 is 4, outside [0, 4)"));
  EXPECT_TRUE(device_->Synchronize().ok()) << "told twice";
}

TEST_F(CudaDeviceWorkTest, WhatLeavesIsNotOverwrittenByWhatLeavesNext) {
  std::vector<std::unique_ptr<PendingTransfer>> leaving;
  ASSERT_TRUE(Fill(1).ok());
  for (int i = 0; i < kMany; ++i) {
    const auto buffer = device_->device_to_host().Begin(kCount * sizeof(float));
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    ASSERT_EQ(cudaMemcpyAsync(*buffer, block_.data(), kCount * sizeof(float), cudaMemcpyDeviceToDevice, device_->stream()), cudaSuccess);
    auto sent = device_->device_to_host().Send(kCount * sizeof(float));
    ASSERT_TRUE(sent.ok()) << sent.status();
    leaving.push_back(*std::move(sent));
    ASSERT_TRUE(Double().ok());  // the next message has other numbers
  }
  ASSERT_TRUE(device_->Synchronize().ok());  // the kernels may be far ahead of the copies
  // The last first, and by another thread.
  std::thread([&] {
    for (int i = kMany - 1; i >= 0; --i) {
      ASSERT_TRUE(leaving[i]->Wait().ok());
      FloatVector got(kCount);
      std::memcpy(got.data(), leaving[i]->bytes().data(), kCount * sizeof(float));
      EXPECT_THAT(got, Each(static_cast<float>(1 << i)));
    }
  }).join();
}

TEST_F(CudaDeviceWorkTest, WhatComesIsThereForItsKernelsAndNotOverwrittenBefore) {
  std::vector<tensor::MemoryBlock> kept;
  for (int i = 0; i < kMany; ++i) {
    const FloatVector head(5, -1), values(kCount, static_cast<float>(i));  // gone when the call has returned
    const std::array<std::span<const std::byte>, 2> pieces = {BytesOf(head), BytesOf(values)};
    const auto here = device_->host_to_device().CopyToDevice(pieces);
    ASSERT_TRUE(here.ok()) << here.status();
    kept.push_back(*device_->memory().Allocate(kCount * sizeof(float)));
    ASSERT_EQ(cudaMemcpyAsync(kept.back().data(), *here + AlignedForTransfer(head.size() * sizeof(float)), kCount * sizeof(float),
                              cudaMemcpyDeviceToDevice, device_->stream()),
              cudaSuccess);
    ASSERT_TRUE(device_->host_to_device().Release().ok());
  }
  for (int i = 0; i < kMany; ++i) {
    FloatVector got(kCount);
    ASSERT_TRUE(device_->memory().CopyOut(got.data(), kept[i].data(), kCount * sizeof(float)).ok());
    EXPECT_THAT(got, Each(static_cast<float>(i)));
  }
}

TEST_F(CudaDeviceWorkTest, ARecordingDoesWhatWasAskedForEachTimeItIsReplayed) {
  ASSERT_TRUE(Fill(1).ok());
  const auto recording = CaptureStream(*device_, [this] {
    const absl::Status first = Double();
    return first.ok() ? Double() : first;
  });
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_THAT(Read(), Each(1.0f)) << "it was carried out when it was recorded";
  for (int i = 0; i < 3; ++i) ASSERT_TRUE((*recording)->Replay().ok());
  EXPECT_THAT(Read(), Each(64.0f));
  ASSERT_TRUE(Fill(5).ok());  // on what is there then
  ASSERT_TRUE((*recording)->Replay().ok());
  EXPECT_THAT(Read(), Each(20.0f));
}

TEST_F(CudaDeviceWorkTest, WhatWaitsForTheDeviceCannotBeRecordedAndDoesNoHarm) {
  ASSERT_TRUE(Fill(1).ok());
  const auto recording = CaptureStream(*device_, [this] { return device_->Synchronize(); });
  EXPECT_TRUE(absl::IsUnimplemented(recording.status())) << recording.status();
  ASSERT_TRUE(Double().ok());
  EXPECT_THAT(Read(), Each(2.0f));
}

// Libraries may refuse what is recorded alone; one who runs it as it is gets its own error.
TEST_F(CudaDeviceWorkTest, WhatFailsWhenItIsRecordedCannotBeRecordedAndTheStreamGoesOn) {
  const auto recording = CaptureStream(*device_, [] { return absl::InvalidArgumentError("op 'x': no"); });
  EXPECT_TRUE(absl::IsUnimplemented(recording.status()));
  EXPECT_EQ(recording.status().message(), "kernels that cannot be recorded: op 'x': no");
  ASSERT_TRUE(Fill(1).ok());
  ASSERT_TRUE(Double().ok());
  EXPECT_THAT(Read(), Each(2.0f));
}

TEST_F(CudaDeviceWorkTest, MarksTellTimeInTheirOrder) {
  ASSERT_TRUE(Fill(1).ok());
  const auto first = RecordTimingEvent(*device_);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(Double().ok());
  const auto second = RecordTimingEvent(*device_);
  const auto third = RecordTimingEvent(*device_);
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  const auto kernels = (*second)->SecondsSince(**first), both = (*third)->SecondsSince(**first);
  ASSERT_TRUE(kernels.ok() && both.ok());
  EXPECT_GT(*kernels, 0);
  EXPECT_GE(*both, *kernels);
}

}  // namespace
}  // namespace fusionllm::kernels::cuda
