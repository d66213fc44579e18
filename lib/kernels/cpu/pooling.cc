#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/kernels/convolution_shape.h"
#include "lib/kernels/cpu/cpu.h"
#include "lib/kernels/cpu/vector/channels.h"
#include "lib/kernels/cpu/vector/spans.h"

namespace fusionllm::kernels::cpu {
namespace {

// Takes the element where it beats the best so far: the first of equals wins and NaN beats everything, as in torch.
void TakeLarger(const float* x, int32_t place, int64_t channels, float* best, int32_t* best_place) {
  for (int64_t c = 0; c < channels; ++c) {
    const bool larger = best_place[c] < 0 || x[c] > best[c] || std::isnan(x[c]);
    best[c] = larger ? x[c] : best[c];
    best_place[c] = larger ? place : best_place[c];
  }
}

// Chunks are rows of the output. Workspace: a row of places per slot, for when they are not wanted.
class MaxPool : public PooledKernel {
 public:
  MaxPool(PreparedOp op, std::shared_ptr<WorkerPool> pool)
      : PooledKernel(std::move(op), std::move(pool)), s_(PoolingShapeOf(op_, op_.in(0), op_.out(0))) {}

  size_t workspace_bytes() const override { return sizeof(int32_t) * RowElements() * pool_->threads(); }

  absl::Status Run(const KernelArguments& arguments) override {
    const bool wants_places = arguments.outputs.size() > 1 && arguments.outputs[1].data != nullptr;
    pool_->Run(s_.batch * s_.out_height, [&](int64_t chunk, int slot) {
      int32_t* places = wants_places ? arguments.outputs[1].as<int32_t>() + chunk * RowElements()
                                     : reinterpret_cast<int32_t*>(arguments.workspace.data()) + slot * RowElements();
      std::fill_n(places, RowElements(), -1);
      PoolRow(arguments.inputs[0].f32() + chunk / s_.out_height * s_.in_height * s_.in_width * s_.in_channels, chunk % s_.out_height,
              arguments.outputs[0].f32() + chunk * RowElements(), places);
    });
    return absl::OkStatus();
  }

 private:
  int64_t RowElements() const { return s_.out_width * s_.out_channels; }

  void PoolRow(const float* image, int64_t oh, float* y, int32_t* places) const {
    const int64_t top = oh * s_.stride[0] - s_.padding[0];
    for (int64_t ow = 0; ow < s_.out_width; ++ow) {
      const int64_t left = ow * s_.stride[1] - s_.padding[1];
      for (int64_t h = std::max<int64_t>(0, top); h < std::min(s_.in_height, top + s_.kernel[0]); ++h) {
        for (int64_t w = std::max<int64_t>(0, left); w < std::min(s_.in_width, left + s_.kernel[1]); ++w) {
          const int64_t place = h * s_.in_width + w;
          TakeLarger(image + place * s_.in_channels, static_cast<int32_t>(place), s_.in_channels, y + ow * s_.out_channels,
                     places + ow * s_.out_channels);
        }
      }
    }
  }

  const ConvolutionShape s_;
};

// Chunks are samples: windows overlap only inside one.
class MaxPoolGrad : public PooledKernel {
 public:
  using PooledKernel::PooledKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    const tensor::Shape& x = op_.out(0);
    const int64_t plane = x.dim(1) * x.dim(2);
    const int64_t channels = x.dim(3);
    const int64_t count = op_.in(0).dim(1) * op_.in(0).dim(2) * channels;
    std::atomic<int64_t> bad{-1};
    pool_->Run(x.dim(0), [&](int64_t b, int) {
      const float* dy = arguments.inputs[0].f32() + b * count;
      const int32_t* index = arguments.inputs[1].as<int32_t>() + b * count;
      float* dx = arguments.outputs[0].f32() + b * plane * channels;
      std::fill_n(dx, plane * channels, 0.f);
      for (int64_t i = 0; i < count; ++i) {
        if (index[i] < 0 || index[i] >= plane) {
          bad = b * count + i;
          return;
        }
        dx[index[i] * channels + i % channels] += dy[i];
      }
    });
    if (bad < 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(op_.Prefix(), "index at position ", bad.load(), " is ",
                                                   arguments.inputs[1].as<int32_t>()[bad], ", outside the input plane of ", plane));
  }
};

class GlobalAveragePool : public PooledKernel {
 public:
  using PooledKernel::PooledKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    const int64_t plane = op_.in(0).dim(1) * op_.in(0).dim(2);
    const int64_t channels = op_.in(0).dim(3);
    pool_->Run(op_.in(0).dim(0), [&](int64_t b, int) {
      float* y = arguments.outputs[0].f32() + b * channels;
      std::fill_n(y, channels, 0.f);
      AddRows(arguments.inputs[0].f32() + b * plane * channels, plane, channels, y);
      ScaleShift(y, 1 / static_cast<float>(plane), 0, y, channels);
    });
    return absl::OkStatus();
  }
};

class GlobalAveragePoolGrad : public PooledKernel {
 public:
  using PooledKernel::PooledKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    const int64_t plane = op_.out(0).dim(1) * op_.out(0).dim(2);
    const int64_t channels = op_.out(0).dim(3);
    pool_->Run(op_.out(0).dim(0), [&](int64_t b, int) {
      float* dx = arguments.outputs[0].f32() + b * plane * channels;
      ScaleShift(arguments.inputs[0].f32() + b * channels, 1 / static_cast<float>(plane), 0, dx, channels);
      for (int64_t pixel = 1; pixel < plane; ++pixel) std::memcpy(dx + pixel * channels, dx, sizeof(float) * channels);
    });
    return absl::OkStatus();
  }
};

}  // namespace

std::span<const Entry> PoolingKernels() {
  static constexpr Entry kEntries[] = {
      {OpKind::kMaxPool2d, Make<MaxPool>},
      {OpKind::kMaxPool2dGrad, Make<MaxPoolGrad>},
      {OpKind::kAvgPool2d, MakeReference},
      {OpKind::kAvgPool2dGrad, MakeReference},
      {OpKind::kGlobalAvgPool, Make<GlobalAveragePool>},
      {OpKind::kGlobalAvgPoolGrad, Make<GlobalAveragePoolGrad>},
  };
  return kEntries;
}

}  // namespace fusionllm::kernels::cpu
