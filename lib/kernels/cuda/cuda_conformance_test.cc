// The CUDA back end against the reference. Without a toolkit and a card the kernels are carried out by the processor (emulated/), with
// matrix products by plain loops: wrong indices, missing elements and wrong sums show there, races and what cuBLASLt does only on a card.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/kernels/cuda/testing/device_fixture.h"
#include "lib/kernels/testing/conformance.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::kernels::cuda {
namespace {

using ::testing::HasSubstr;
using testing::Target;

class CudaConformanceTest : public TargetFixture<::testing::TestWithParam<int>> {  // the size of the cases
 protected:
};

TEST_P(CudaConformanceTest, AgreesWithTheReferenceAndWritesNothingElse) { ExpectAgreement(target_, GetParam() == 4 ? 4 : 10, GetParam()); }
TEST_P(CudaConformanceTest, AgreesInEvaluation) { ExpectAgreementInEvaluation(target_, GetParam()); }
TEST_P(CudaConformanceTest, ParameterGradientsAddToWhatIsThere) { ExpectGradientsAdd(target_, GetParam()); }
TEST_P(CudaConformanceTest, MissingOutputsChangeNoOther) { ExpectMissingOutputsChangeNoOther(target_, GetParam()); }
TEST_P(CudaConformanceTest, RunsInPlaceWhereItSaysSo) { EXPECT_GT(ExpectSameInPlace(target_, GetParam()), 10); }

TEST_P(CudaConformanceTest, TheSameBitsComeInEveryCall) {
  for (const testing::OpCase& op_case : testing::AllCases(200, GetParam())) {
    SCOPED_TRACE(op_case.op.Prefix());
    testing::ExpectSameBits(target_.Run(op_case), target_.Run(op_case));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, CudaConformanceTest, ::testing::Values(1, 2, 4));

class CudaDeviceTest : public CudaConformanceTest {};

TEST_P(CudaDeviceTest, NamesTheTokenOrLabelOutOfRange) { ExpectRangesChecked(target_); }

TEST_P(CudaDeviceTest, HasAKernelForEveryOpOfTheSchemas) {
  const auto backend = CreateCudaBackend(0);
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_THAT((*backend)->Describe(), HasSubstr("cuda:0"));
  for (const opdag::OpSchema* schema : opdag::AllSchemas()) EXPECT_TRUE((*backend)->Supports(schema->kind)) << schema->name();
}

TEST_P(CudaDeviceTest, OtherFloatsAreRefusedByTheOpsName) {
  for (const tensor::DType other : {tensor::DType::kF32, tensor::DType::kBF16}) {
    const PreparedOp op{
        .name = "s", .kind = OpKind::kScale, .inputs = {{tensor::DType::kF16, tensor::Shape{4}}}, .outputs = {{other, tensor::Shape{4}}}};
    const auto kernel = target_.make(op);
    EXPECT_EQ(kernel.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(kernel.status().message(), HasSubstr("op 's' (scale): computes in f32 only, not on f16[4]"));
  }
}

TEST_P(CudaDeviceTest, UnknownDeviceIndexListsDevices) {
  const auto device = Device::Open(7);
  EXPECT_EQ(device.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(device.status().message(), HasSubstr("no device cuda:7: this machine has cuda:0 ("));
}

TEST_P(CudaDeviceTest, OutOfMemoryErrorNamesFreeBytes) {
  const auto block = device_->memory().Allocate(size_t{1} << 45);
  EXPECT_EQ(block.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(tensor::IsOutOfMemory(block.status()));
  EXPECT_THAT(block.status().message(), HasSubstr("out of memory: 32768.00 GiB more were asked for, "));
}

// Floats of a tensor in the device's memory.
class OnDevice {
 public:
  OnDevice(Device& device, const std::vector<float>& values) : device_(device), count_(values.size()) {
    block_ = *device.memory().Allocate(count_ * sizeof(float));
    EXPECT_TRUE(device.memory().CopyIn(block_.data(), values.data(), count_ * sizeof(float)).ok());
  }
  float* data() const { return reinterpret_cast<float*>(block_.data()); }
  std::vector<float> Read() const {
    std::vector<float> values(count_);
    EXPECT_TRUE(device_.memory().CopyOut(values.data(), block_.data(), count_ * sizeof(float)).ok());
    return values;
  }

 private:
  Device& device_;
  const size_t count_;
  tensor::MemoryBlock block_;
};

std::vector<float> NormalFloats(size_t count, absl::string_view name) {
  const base::CounterRng rng(3, name);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = rng.Normal(i);
  return values;
}

void ExpectNear(const std::vector<float>& want, const std::vector<float>& got) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(want[i], got[i], 1e-6 * (1 + std::abs(want[i]))) << i;
}

TEST_P(CudaDeviceTest, UpdatesParametersAsTheHostDoes) {
  using Kind = OptimizerConfig::Kind;
  const auto optimizer = MakeOptimizer(*device_);
  for (const OptimizerConfig& config :
       {OptimizerConfig{.kind = Kind::kAdamW, .weight_decay = 0.1}, OptimizerConfig{.kind = Kind::kSgd, .weight_decay = 0.01},
        OptimizerConfig{.kind = Kind::kSgd, .momentum = 0.9}, OptimizerConfig{.kind = Kind::kSgd, .momentum = 0.9, .nesterov = true}}) {
    // Longer than one piece, and not a multiple of anything; the second is not decayed.
    std::vector<std::vector<float>> host;
    std::vector<OnDevice> device;
    for (const size_t count : {20001, 7}) {
      for (const char* name : {"gradient", "parameter"}) host.push_back(NormalFloats(count, name));
      host.emplace_back(count, 0.0f);
      host.emplace_back(count, 0.0f);
    }
    for (const auto& values : host) device.emplace_back(*device_, values);
    const auto updates_of = [&](auto& tensors) {
      std::vector<ParameterUpdate> updates;
      for (int i = 0; i < 2; ++i) {
        updates.push_back({.gradient = tensors[4 * i].data(),
                           .parameter = tensors[4 * i + 1].data(),
                           .states = {tensors[4 * i + 2].data(), tensors[4 * i + 3].data()},
                           .count = host[4 * i].size(),
                           .decay = i == 0});
      }
      return updates;
    };
    for (int64_t step = 1; step <= 3; ++step) {
      const OptimizerStep factors{.learning_rate = 0.01, .step = step, .gradient_scale = 0.5f};
      ASSERT_TRUE(HostOptimizerKernels().Update(config, factors, updates_of(host)).ok());
      ASSERT_TRUE(optimizer->Update(config, factors, updates_of(device)).ok());
    }
    for (size_t i = 0; i < host.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectNear(host[i], device[i].Read());
    }
  }
}

TEST_P(CudaDeviceTest, SumsGradientsAndTheirSquaresAsTheHostDoes) {
  const auto optimizer = MakeOptimizer(*device_);
  std::vector<std::vector<float>> host;
  std::vector<OnDevice> device;
  std::vector<const float*> host_terms, device_terms;
  for (int i = 0; i < 11; ++i) host.push_back(NormalFloats(10007, std::to_string(i)));
  for (const auto& values : host) device.emplace_back(*device_, values);
  for (size_t i = 0; i < host.size(); ++i) {
    host_terms.push_back(host[i].data());
    device_terms.push_back(device[i].data());
  }
  double want = 0, got = 0;
  const std::span<const float> host_span(host[3]), device_span(device[3].data(), host[3].size());
  ASSERT_TRUE(HostOptimizerKernels().SumsOfSquares({&host_span, 1}, {&want, 1}).ok());
  ASSERT_TRUE(optimizer->SumsOfSquares({&device_span, 1}, {&got, 1}).ok());
  EXPECT_NEAR(want, got, 1e-9 * want);
  // Into the first of the terms.
  ASSERT_TRUE(HostOptimizerKernels().Add(host_terms, host[0].data(), host[0].size()).ok());
  ASSERT_TRUE(optimizer->Add(device_terms, device[0].data(), host[0].size()).ok());
  EXPECT_EQ(host[0], device[0].Read()) << "sums in the same order have the same bits";
}

INSTANTIATE_TEST_SUITE_P(One, CudaDeviceTest, ::testing::Values(1));

}  // namespace
}  // namespace fusionllm::kernels::cuda
