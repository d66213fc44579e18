// tensor_cores.h and what attention makes of it, on a card or with the processor in its place: the registers that the PTX ISA promises, and
// products of whole tiles against loops.
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/kernels/cuda/device.h"
#include "lib/kernels/cuda/tensor_cores_probe.h"
#include "lib/kernels/cuda/testing/device_fixture.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::kernels::cuda {
namespace {

class TensorCoresTest : public DeviceFixture<::testing::Test> {
 protected:
  // Values in the device's memory.
  template <typename T>
  class Sent {
   public:
    Sent(Device& device, const std::vector<T>& values) : device_(device), count_(values.size()) {
      block_ = *device.memory().Allocate(count_ * sizeof(T));
      EXPECT_TRUE(device.memory().CopyIn(block_.data(), values.data(), count_ * sizeof(T)).ok());
    }
    T* data() const { return reinterpret_cast<T*>(block_.data()); }
    std::vector<T> Read() const {
      std::vector<T> values(count_);
      EXPECT_TRUE(device_.memory().CopyOut(values.data(), block_.data(), count_ * sizeof(T)).ok());
      return values;
    }

   private:
    Device& device_;
    const size_t count_;
    tensor::MemoryBlock block_;
  };
  template <typename T>
  Sent<T> Send(const std::vector<T>& values) {
    return {*device_, values};
  }
};

std::vector<uint16_t> NormalBfloats(size_t count, absl::string_view name) {
  const base::CounterRng rng(3, name);
  std::vector<uint16_t> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = tensor::RoundToBf16(rng.Normal(i));
  return values;
}

// PTX ISA 9.0, "ldmatrix": lane l has row l / 4, elements 2 (l % 4) and the one after it; with .trans, of the transposed matrix.
TEST_F(TensorCoresTest, LoadsGiveEachLaneTheElementsOfTheManual) {
  std::vector<uint16_t> matrices(32 * 8);
  for (size_t i = 0; i < matrices.size(); ++i) matrices[i] = static_cast<uint16_t>(i);
  const auto given = Send(matrices);
  const auto plain = Send(std::vector<uint32_t>(128)), transposed = Send(std::vector<uint32_t>(128));
  ASSERT_EQ(ProbeLoads(device_->stream(), given.data(), plain.data(), transposed.data()), cudaSuccess);
  std::vector<uint32_t> want_plain, want_transposed;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t m = 0; m < 4; ++m) {
      const uint32_t group = lane / 4, column = lane % 4 * 2, first = m * 64;
      want_plain.push_back((first + group * 8 + column) | (first + group * 8 + column + 1) << 16);
      want_transposed.push_back((first + column * 8 + group) | (first + (column + 1) * 8 + group) << 16);
    }
  }
  EXPECT_EQ(plain.Read(), want_plain);
  EXPECT_EQ(transposed.Read(), want_transposed);
}

TEST_F(TensorCoresTest, ProductsOfTilesAreThoseOfLoops) {
  struct Case {
    int head, rows, others, size;
  };
  for (const auto& [head, rows, others, size] : {Case{64, 128, 64, 64}, {128, 128, 64, 128}, {64, 77, 33, 48}, {128, 35, 64, 80}}) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << size << " by " << others);
    const auto left = NormalBfloats(static_cast<size_t>(rows * size), "left"),
               right = NormalBfloats(static_cast<size_t>(others * size), "right");
    const auto given_left = Send(left), given_right = Send(right);
    const auto scores = Send(std::vector<float>(128 * 64));
    const auto narrow = Send(std::vector<uint16_t>(static_cast<size_t>(rows * size)));
    ASSERT_EQ(ProbeTiles(device_->stream(), head, given_left.data(), rows, given_right.data(), others, size, scores.data(), narrow.data()),
              cudaSuccess);
    const std::vector<float> got = scores.Read();
    const std::vector<uint16_t> got_products = narrow.Read();
    const auto at = [size = size](const std::vector<uint16_t>& matrix, int row, int k) {
      return static_cast<double>(tensor::UpcastBf16(matrix[static_cast<size_t>(row * size + k)]));
    };
    for (int row = 0; row < 128; ++row) {
      for (int other = 0; other < 64; ++other) {
        double want = 0;
        for (int k = 0; k < size && row < rows && other < others; ++k) want += at(left, row, k) * at(right, other, k);
        // Products of bf16 are exact in fp32; tensor cores may cut sums off where they align them, an ulp of the largest term each.
        ASSERT_NEAR(got[static_cast<size_t>(row * 64 + other)], want, 1e-4) << row << ", " << other;
      }
    }
    for (int row = 0; row < rows; ++row) {
      for (int k = 0; k < size; ++k) {
        double want = 0, terms = 0;
        for (int other = 0; other < others; ++other) {
          const double term = tensor::UpcastBf16(tensor::RoundToBf16(got[static_cast<size_t>(row * 64 + other)])) * at(right, other, k);
          want += term;
          terms += std::abs(term);
        }
        const double result = tensor::UpcastBf16(got_products[static_cast<size_t>(row * size + k)]);
        ASSERT_NEAR(result, want, std::abs(want) / 256 + 1e-6 * terms) << row << ", " << k;
      }
    }
  }
}

TEST_F(TensorCoresTest, CopiesArriveInGroupsAndZerosWhereThereIsNothing) {
  const auto given = Send(std::vector<uint32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const auto early = Send(std::vector<uint32_t>(12)), late = Send(std::vector<uint32_t>(12));
  ASSERT_EQ(ProbeCopies(device_->stream(), given.data(), early.data(), late.data()), cudaSuccess);
  const std::vector<uint32_t> first = early.Read(), all = late.Read();
  EXPECT_THAT(std::vector<uint32_t>(first.begin(), first.begin() + 4), ::testing::ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(std::vector<uint32_t>(all.begin(), all.begin() + 10), ::testing::ElementsAre(1, 2, 3, 4, 0, 0, 0, 0, 9, 0));
#if defined(FUSIONLLM_EMULATED_CARD)
  for (size_t i = 4; i < 10; ++i) EXPECT_EQ(first[i], 0xffffffffu) << "what nobody waited for is not there: word " << i;
#endif
}

TEST_F(TensorCoresTest, PowersOfTwoAreThoseOfTheHost) {
  std::vector<float> x;
  for (int i = 0; i < 1000; ++i) x.push_back(-static_cast<float>(i) * 0.11f);
  x.push_back(-INFINITY);
  const auto given = Send(x), got = Send(x);
  ASSERT_EQ(ProbeExponentials(device_->stream(), given.data(), static_cast<int>(x.size()), got.data()), cudaSuccess);
  const std::vector<float> y = got.Read();
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(y[i], std::exp2(x[i]), std::exp2(x[i]) * 5e-7) << x[i];  // 2^-22 says the ISA, and 2 ulp
}

}  // namespace
}  // namespace fusionllm::kernels::cuda
