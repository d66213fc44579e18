// Convolutions as plans compute them (convolution_plan.h), and choosing among them by measurement. On a card by cuDNN and by gathers; where
// there is neither toolkit nor card by gathers, which the processor carries out (emulated/).
#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/kernels/cuda/convolution_plan.h"
#include "lib/kernels/cuda/measure.h"
#include "lib/kernels/cuda/testing/device_fixture.h"
#include "lib/kernels/testing/fused_case.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::kernels::cuda {
namespace {

using Numbers = ConvolutionPrecision;
using Pass = ConvolutionPass;

class CudaConvolutionTest : public TargetFixture<::testing::Test> {};

ConvolutionShape ShapeOf(int64_t batch, int64_t in_height, int64_t in_width, int64_t in, int64_t out, std::array<int64_t, 2> kernel,
                         std::array<int64_t, 2> stride, std::array<int64_t, 2> padding, std::array<int64_t, 2> dilation, int64_t groups) {
  const auto extent = [&](int axis, int64_t given) {
    return (given + 2 * padding[axis] - dilation[axis] * (kernel[axis] - 1) - 1) / stride[axis] + 1;
  };
  return {batch, in_height, in_width, in, extent(0, in_height), extent(1, in_width), out, kernel, stride, padding, dilation, groups};
}

std::vector<ConvolutionShape> SmallShapes() {
  return {ShapeOf(2, 6, 5, 8, 16, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1),  // what networks are made of
          ShapeOf(2, 4, 4, 16, 8, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1),
          ShapeOf(3, 9, 7, 3, 8, {7, 5}, {2, 2}, {3, 2}, {1, 1}, 1),   // a first layer: channels that fill no vector
          ShapeOf(2, 8, 8, 8, 8, {3, 3}, {2, 1}, {1, 0}, {1, 2}, 1),   // axes that differ in all; a row that no window reaches
          ShapeOf(2, 5, 6, 12, 6, {2, 3}, {1, 1}, {0, 1}, {1, 1}, 3),  // groups
          ShapeOf(2, 6, 6, 8, 8, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 8),   // one channel in each
          ShapeOf(1, 1, 1, 1, 1, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1)};
}

struct Tensors {
  std::vector<double> x, weight, y;
  const std::vector<double>& ResultOf(Pass pass) const { return pass == Pass::kForward ? y : pass == Pass::kGradInput ? x : weight; }
};

// The pass by definition, over all that meets.
void Convolve(const ConvolutionSpec& spec, Tensors& t) {
  const ConvolutionShape& s = spec.shape;
  const int64_t in_of_group = s.in_channels / s.groups, out_of_group = s.out_channels / s.groups;
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t oh = 0; oh < s.out_height; ++oh)
      for (int64_t ow = 0; ow < s.out_width; ++ow)
        for (int64_t kh = 0; kh < s.kernel[0]; ++kh)
          for (int64_t kw = 0; kw < s.kernel[1]; ++kw) {
            const int64_t h = oh * s.stride[0] - s.padding[0] + kh * s.dilation[0],
                          w = ow * s.stride[1] - s.padding[1] + kw * s.dilation[1];
            if (h < 0 || h >= s.in_height || w < 0 || w >= s.in_width) continue;
            for (int64_t o = 0; o < s.out_channels; ++o)
              for (int64_t k = 0; k < in_of_group; ++k) {
                double& x = t.x[((n * s.in_height + h) * s.in_width + w) * s.in_channels + o / out_of_group * in_of_group + k];
                double& weight = t.weight[((o * s.kernel[0] + kh) * s.kernel[1] + kw) * in_of_group + k];
                double& y = t.y[((n * s.out_height + oh) * s.out_width + ow) * s.out_channels + o];
                if (spec.pass == Pass::kForward) y += x * weight;
                if (spec.pass == Pass::kGradInput) x += y * weight;
                if (spec.pass == Pass::kGradWeight) weight += x * y;
              }
          }
}

// What a kernel is given for these numbers, and they are made what it can hold.
std::vector<std::byte> Encoded(std::vector<double>& numbers, Numbers as) {
  std::vector<float> floats(numbers.begin(), numbers.end());
  std::vector<uint16_t> bits(floats.size());
  if (as != Numbers::kFloat) {
    tensor::RoundToBf16(floats, bits.data());
    tensor::UpcastBf16(bits, floats.data());
  }
  numbers.assign(floats.begin(), floats.end());
  const void* const data = as == Numbers::kBf16 ? static_cast<const void*>(bits.data()) : floats.data();
  std::vector<std::byte> bytes(floats.size() * (as == Numbers::kBf16 ? sizeof(uint16_t) : sizeof(float)));
  std::memcpy(bytes.data(), data, bytes.size());
  return bytes;
}

std::vector<float> Decoded(const std::vector<std::byte>& bytes, Numbers as) {
  std::vector<float> floats(bytes.size() / (as == Numbers::kBf16 ? sizeof(uint16_t) : sizeof(float)));
  if (as == Numbers::kBf16) {
    std::vector<uint16_t> bits(floats.size());
    std::memcpy(bits.data(), bytes.data(), bytes.size());
    tensor::UpcastBf16(bits, floats.data());
  } else {
    std::memcpy(floats.data(), bytes.data(), bytes.size());
  }
  return floats;
}

std::vector<double> NormalDoubles(int64_t count, absl::string_view name) {
  const base::CounterRng rng(7, name);
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = rng.Normal(i);
  return values;
}

// Runs the plan on numbers that are drawn, over what must not be read, and compares the result with the sums of the definition.
void ExpectRight(Device& device, const ConvolutionPlan& plan, const ConvolutionSpec& spec) {
  const ConvolutionShape& s = spec.shape;
  const bool forward = spec.pass == Pass::kForward, grad_input = spec.pass == Pass::kGradInput,
             grad_weight = spec.pass == Pass::kGradWeight;
  Tensors t{.x = NormalDoubles(s.inputs(), "x"), .weight = NormalDoubles(s.weights(), "weight"), .y = NormalDoubles(s.outputs(), "y")};
  std::vector<double>& result = forward ? t.y : grad_input ? t.x : t.weight;
  const auto send = [&](std::vector<double>& numbers) {
    const std::vector<std::byte> bytes = Encoded(numbers, spec.precision);
    tensor::MemoryBlock block = *device.memory().Allocate(bytes.size());
    EXPECT_TRUE(device.memory().CopyIn(block.data(), bytes.data(), bytes.size()).ok());
    return block;
  };
  const tensor::MemoryBlock first = send(grad_input ? t.y : t.x), second = send(grad_weight ? t.y : t.weight), out = send(result);
  const tensor::MemoryBlock workspace = *device.memory().Allocate(plan.workspace_bytes());
  std::fill(result.begin(), result.end(), 0.0);
  Convolve(spec, t);
  std::vector<std::byte> bytes[2] = {std::vector<std::byte>(out.size()), std::vector<std::byte>(out.size())};
  for (std::vector<std::byte>& run : bytes) {
    const absl::Status status = plan.Run(first.data(), second.data(), out.data(), workspace.data());
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(device.memory().CopyOut(run.data(), out.data(), out.size()).ok());
  }
  EXPECT_EQ(bytes[0], bytes[1]) << "the second run gave other bits";
  // As the op's own tests (lib/kernels/testing/op_case.h): 1e-5 of the number or of a usual one, for fp32 sums of at most some hundred
  // products in any order; a bf16 result may be 2^-8 off by its one rounding.
  double square = 0;
  for (const double number : result) square += number * number;
  const double usual = std::sqrt(square / static_cast<double>(result.size()));
  const std::vector<float> got = Decoded(bytes[0], spec.precision);
  for (size_t i = 0; i < result.size(); ++i) {
    const double rounding = spec.precision == Numbers::kBf16 ? std::ldexp(std::abs(result[i]), -8) : 0;
    ASSERT_NEAR(result[i], got[i], 1e-6 + 1e-5 * std::max(std::abs(result[i]), usual) + rounding) << "element " << i;
  }
}

std::vector<ConvolutionSpec> Specs() {
  std::vector<ConvolutionSpec> specs;
  for (const ConvolutionShape& shape : SmallShapes()) {
    for (const Pass pass : {Pass::kForward, Pass::kGradInput, Pass::kGradWeight}) {
      for (const Numbers numbers : {Numbers::kFloat, Numbers::kBf16, Numbers::kBf16InFloat}) {
        specs.push_back({pass, numbers, shape});
      }
    }
  }
  return specs;
}

TEST_F(CudaConvolutionTest, GathersGiveTheSumsOfTheDefinition) {
  for (const ConvolutionSpec& spec : Specs()) {
    SCOPED_TRACE(spec.ToString());
    ExpectRight(*device_, *PrepareDirectConvolution(*device_, spec), spec);
  }
}

TEST_F(CudaConvolutionTest, SoDoesWhatIsChosen) {
  for (const AlgorithmChoice choice : {AlgorithmChoice::kHeuristic, AlgorithmChoice::kMeasured}) {
    device_->set_algorithm_choice(choice);
    for (const ConvolutionSpec& spec : Specs()) {
      SCOPED_TRACE(spec.ToString());
      const ConvolutionPlanOrError plan = PrepareConvolution(*device_, spec);
      ASSERT_TRUE(plan.ok()) << plan.status();
      ExpectRight(*device_, **plan, spec);
    }
  }
}

// The op: one rounding of bf16 apart at most, where a library computes it.
TEST_F(CudaConvolutionTest, GradientsOfWeightsAreNearWhicheverWayTheyAreChosen) {
  for (const ConvolutionShape& s : SmallShapes()) {
    const tensor::TensorType x{tensor::DType::kBF16, tensor::Shape{s.batch, s.in_height, s.in_width, s.in_channels}};
    const tensor::TensorType dy{tensor::DType::kBF16, tensor::Shape{s.batch, s.out_height, s.out_width, s.out_channels}};
    const tensor::TensorType dweight{tensor::DType::kF32,
                                     tensor::Shape{s.out_channels, s.in_channels / s.groups, s.kernel[0], s.kernel[1]}};
    testing::OpCase op_case =
        testing::CaseOf("conv2d_grad_weight", {testing::RandomFloats(x, 1), testing::RandomFloats(dy, 2)}, {}, {dweight});
    const auto both = [](const std::array<int64_t, 2>& axes) { return std::vector<int64_t>{axes[0], axes[1]}; };
    op_case.op.attributes = {{"out", s.out_channels},
                             {"kernel", both(s.kernel)},
                             {"stride", both(s.stride)},
                             {"padding", both(s.padding)},
                             {"dilation", both(s.dilation)},
                             {"groups", s.groups},
                             {"bias", false}};
    const testing::RunOptions options{.accumulate = {true}, .initial = {testing::RandomFloats(dweight, 3)}, .memory = target_.memory};
    device_->set_algorithm_choice(AlgorithmChoice::kHeuristic);
    const testing::RunResult want = target_.Run(op_case, options);
    device_->set_algorithm_choice(AlgorithmChoice::kMeasured);
    const testing::RunResult got = target_.Run(op_case, options);
    ASSERT_TRUE(want.status.ok() && got.status.ok()) << want.status << got.status;
    EXPECT_EQ(got.overrun, "");
    // What is rounded may be some times what it and the numbers that were there add up to.
    EXPECT_EQ(testing::Difference(want.outputs[0], got.outputs[0], 0x1p-6), "");
  }
}

// Ways that take a time of their own on a clock of their own.
class Ways {
 public:
  explicit Ways(std::vector<int64_t> costs_ns) : costs_ns_(std::move(costs_ns)) {}
  absl::Status Run(size_t way) {
    if (costs_ns_[way] < 0) return absl::UnimplementedError("this one does not work");
    now_ns_ += costs_ns_[way] + (runs_++ % 11 == 0 ? 1000 : 0);  // others use the device as well, now and then
    return absl::OkStatus();
  }
  absl::StatusOr<size_t> Fastest(Device& device) {
    return FastestOf(
        device, costs_ns_.size(), [this](size_t way) { return Run(way); }, [this] { return now_ns_; });
  }

 private:
  std::vector<int64_t> costs_ns_;
  int64_t now_ns_ = 5, runs_ = 0;
};

TEST_F(CudaConvolutionTest, TheFastestOfSeveralWaysIsChosen) {
  EXPECT_EQ(*Ways({30, 10, 20}).Fastest(*device_), 1u);
  EXPECT_EQ(*Ways({10, 30, 9}).Fastest(*device_), 2u);
  EXPECT_EQ(*Ways({10, 10}).Fastest(*device_), 0u) << "of equals the one that the library names first";
  EXPECT_EQ(*Ways({-1, 10, 20}).Fastest(*device_), 1u) << "one that fails is left out";
  EXPECT_EQ(Ways({-1, -1}).Fastest(*device_).status().message(), "this one does not work");
  EXPECT_EQ(Ways({}).Fastest(*device_).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace fusionllm::kernels::cuda
