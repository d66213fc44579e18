// Attention of bf16 tensors on tensor cores against formulas in double, on a card or with the processor in its place.
//
// The bounds. Kernels differ from the formulas, on the same bf16 inputs, by roundings to bf16: of each probability p (in y and dv) or ds
// (in dq and dk) before it is a factor, and of each result. One changes its number by at most u = 2^-8 of it, and by u / sqrt(3) in the
// root mean square where it is spread evenly over the steps of the smallest mantissa, less elsewhere. So
//   each element:  |difference| <= u (sum |p v| + |y|),
//   all together:  norm of the differences <= u / sqrt(3) sqrt(sum over elements of (sum (p v)^2 + y^2)), as roundings do not know each
//   other;
// the second is what notices a sum that lacks one of its terms. fp32 adds, to each term, 2^-22 of the scores that p is an exponential of,
// and of the products that dP - delta is the difference of. The same holds with ds k, ds q and p dy.
#include <cmath>
#include <cstring>

#include <memory>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/kernels/cuda/attention_plan.h"
#include "lib/kernels/cuda/testing/device_fixture.h"
#include "lib/kernels/testing/conformance.h"
#include "lib/tensor/bf16.h"
#if defined(FUSIONLLM_EMULATED_CARD)
#include "lib/kernels/cuda/emulated/tensor_cores.h"
#else
#include "lib/kernels/cuda/cudnn_attention.h"
#endif

namespace fusionllm::kernels::cuda {
namespace {

using tensor::DType;
using tensor::Shape;
using testing::Array;
using testing::OpCase;

struct AttentionCase {
  const char* name;
  int64_t batch, heads, size, length;
  bool causal;
  float spread = 1;  // standard deviation of q and k
  float apart = 0;   // what q is more, and k is less
};

Array InBf16(Shape shape) { return Array({DType::kBF16, std::move(shape)}); }
uint16_t* Bits(Array& array) { return reinterpret_cast<uint16_t*>(array.bytes.data()); }
double At(const Array& array, int64_t i) {
  return array.type.dtype == DType::kBF16 ? tensor::UpcastBf16(reinterpret_cast<const uint16_t*>(array.bytes.data())[i]) : array.f32()[i];
}

// What an element should be, and what its terms add up to: their squares, their sizes, and how large what fp32 rounded was.
struct Expected {
  double value = 0, squares = 0, sizes = 0, of_fp32 = 0;
  void Add(double factor, double other, double before) {
    value += factor * other;
    squares += factor * other * factor * other;
    sizes += std::abs(factor * other);
    of_fp32 += std::abs(before * other);
  }
};

// The formulas, for every head of a case.
class Formulas {
 public:
  Formulas(const AttentionCase& c, const Array& qkv)
      : c_(c), qkv_(qkv), y_(c.batch * c.length * Width()), lse_(c.batch * c.heads * c.length) {
    ForRows([&](int64_t b, int64_t h, int64_t t) {
      double top = -INFINITY, sum = 0;
      for (int64_t s = 0; s < Seen(t); ++s) top = std::max(top, Score(b, h, t, s));
      for (int64_t s = 0; s < Seen(t); ++s) sum += std::exp(Score(b, h, t, s) - top);
      lse_[(b * c_.heads + h) * c_.length + t] = top + std::log(sum);
      for (int64_t s = 0; s < Seen(t); ++s) {
        const double score = Score(b, h, t, s), p = std::exp(score - top) / sum;
        for (int64_t i = 0; i < c_.size; ++i) {
          y_[Out(b, t, h) + i].Add(p, At(qkv_, Row(b, s, 2, h) + i), p * (1 + std::abs(score) + std::abs(top)));
        }
      }
    });
  }
  const std::vector<Expected>& y() const { return y_; }
  const std::vector<double>& lse() const { return lse_; }

  // Of the y and lse that the kernel is given.
  std::vector<Expected> Gradients(const Array& y, const Array& lse, const Array& dy) const {
    std::vector<Expected> d(c_.batch * c_.length * 3 * Width());
    const double scale = Scale();
    ForRows([&](int64_t b, int64_t h, int64_t t) {
      const double log_sum = At(lse, (b * c_.heads + h) * c_.length + t);
      double delta = 0, deltas = 0;
      for (int64_t i = 0; i < c_.size; ++i) {
        const double term = At(dy, Out(b, t, h) + i) * At(y, Out(b, t, h) + i);
        delta += term;
        deltas += std::abs(term);
      }
      for (int64_t s = 0; s < Seen(t); ++s) {
        const double score = Score(b, h, t, s), p = std::exp(score - log_sum);
        double dp = 0, dps = 0;
        for (int64_t i = 0; i < c_.size; ++i) {
          const double term = At(dy, Out(b, t, h) + i) * At(qkv_, Row(b, s, 2, h) + i);
          dp += term;
          dps += std::abs(term);
        }
        const double exponents = p * (1 + std::abs(score) + std::abs(log_sum));
        const double ds = p * (dp - delta) * scale, before = scale * (p * (dps + deltas) + exponents * std::abs(dp - delta));
        for (int64_t i = 0; i < c_.size; ++i) {
          d[Row(b, t, 0, h) + i].Add(ds, At(qkv_, Row(b, s, 1, h) + i), before);
          d[Row(b, s, 1, h) + i].Add(ds, At(qkv_, Row(b, t, 0, h) + i), before);
          d[Row(b, s, 2, h) + i].Add(p, At(dy, Out(b, t, h) + i), exponents);
        }
      }
    });
    return d;
  }

 private:
  int64_t Width() const { return c_.heads * c_.size; }
  int64_t Seen(int64_t t) const { return c_.causal ? t + 1 : c_.length; }
  int64_t Row(int64_t b, int64_t t, int part, int64_t h) const { return ((b * c_.length + t) * 3 + part) * Width() + h * c_.size; }
  int64_t Out(int64_t b, int64_t t, int64_t h) const { return (b * c_.length + t) * Width() + h * c_.size; }
  double Scale() const { return 1 / std::sqrt(static_cast<double>(c_.size)); }
  double Score(int64_t b, int64_t h, int64_t t, int64_t s) const {
    double sum = 0;
    for (int64_t i = 0; i < c_.size; ++i) sum += At(qkv_, Row(b, t, 0, h) + i) * At(qkv_, Row(b, s, 1, h) + i);
    return sum * Scale();
  }
  template <typename Visit>
  void ForRows(Visit visit) const {
    for (int64_t b = 0; b < c_.batch; ++b) {
      for (int64_t h = 0; h < c_.heads; ++h) {
        for (int64_t t = 0; t < c_.length; ++t) visit(b, h, t);
      }
    }
  }

  const AttentionCase& c_;
  const Array& qkv_;
  std::vector<Expected> y_;
  std::vector<double> lse_;
};

void ExpectRoundedOnTheWay(const std::vector<Expected>& want, const Array& got) {
  constexpr double kRounding = 1.0 / 256, kFp32 = 0x1p-22;
  double differences = 0, allowed = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const Expected& e = want[i];
    const double difference = std::abs(At(got, static_cast<int64_t>(i)) - e.value), of_fp32 = kFp32 * e.of_fp32;
    ASSERT_LE(difference, kRounding * (e.sizes + std::abs(e.value)) + of_fp32 + 1e-30) << "element " << i << " is to be " << e.value;
    differences += difference * difference;
    allowed += kRounding * kRounding / 3 * (e.squares + e.value * e.value) + of_fp32 * of_fp32;
  }
  EXPECT_LE(std::sqrt(differences), std::sqrt(allowed));
}

class AttentionTest : public TargetFixture<::testing::TestWithParam<AttentionCase>> {
 protected:
  // Kernels that `prepare` makes plans of.
  template <typename Prepare>
  void Take(Prepare prepare) {
    target_.make = [this, prepare](PreparedOp op) -> KernelOrError {
      const AttentionPass pass = op.kind == OpKind::kAttention ? AttentionPass::kForward : AttentionPass::kBackward;
      const AttentionCase& c = GetParam();
      const int64_t heads = op.attributes.Int("heads", 1);
      AttentionPlanOrError plan = prepare(*device_, {pass, op.in(0).dim(0), op.in(0).dim(1), heads, c.size, c.causal});
      if (!plan.ok()) return plan.status();
      return MakePlannedAttention(std::move(op), *device_, pass, *std::move(plan));
    };
  }
  // Forward and, where asked for, backward of the parameter's case.
  void ExpectTheFormulas(bool with_backward);

  static Array RandomRows(const AttentionCase& c, int64_t parts, absl::string_view name) {
    Array array = InBf16({c.batch, c.length, parts * c.heads * c.size});
    const base::CounterRng rng(11, name);
    for (int64_t i = 0; i < array.type.elements(); ++i) {
      const float x = rng.Normal(static_cast<uint64_t>(i));
      const int64_t part = parts == 3 ? i / (c.heads * c.size) % 3 : 2;
      Bits(array)[i] = tensor::RoundToBf16(part == 0 ? c.spread * x + c.apart : part == 1 ? c.spread * x - c.apart : x);
    }
    return array;
  }
  static OpCase Forward(const AttentionCase& c, const Array& qkv) {
    OpCase forward{.op = {.name = c.name, .kind = OpKind::kAttention, .attributes = {{"heads", c.heads}, {"causal", c.causal}}}};
    forward.inputs = {qkv};
    forward.op.inputs = {qkv.type};
    forward.op.outputs = {{DType::kBF16, Shape{c.batch, c.length, c.heads * c.size}}, {DType::kF32, Shape{c.batch, c.heads, c.length}}};
    return forward;
  }
  static OpCase Backward(const AttentionCase& c, const Array& qkv, const std::vector<Array>& outputs, const Array& dy) {
    const OpCase forward = Forward(c, qkv);
    return BackwardCase(forward, {"attention_grad", forward.op.attributes, {"x0", "y0", "y1", "dy"}, {}, {"x0"}}, outputs, dy);
  }
};

class TensorCoreAttentionTest : public AttentionTest {
 protected:
  void SetUp() override {
    AttentionTest::SetUp();
    if (device_ != nullptr) Take(PrepareTensorCoreAttention);
  }
};

#if !defined(FUSIONLLM_EMULATED_CARD)
// The library's, whose factors are bf16 as ours are.
class CudnnAttentionTest : public AttentionTest {
 protected:
  void SetUp() override {
    AttentionTest::SetUp();
    if (device_ == nullptr) return;
    // The one answer on which a test may be left out: there is no library.
    const absl::Status loaded = LoadCudnnFrontend();
    if (absl::IsFailedPrecondition(loaded)) GTEST_SKIP() << loaded.message();
    Take(PrepareCudnnAttention);
  }
};
#endif

void AttentionTest::ExpectTheFormulas(bool with_backward) {
  const AttentionCase& c = GetParam();
  const Array qkv = RandomRows(c, 3, "qkv"), dy = RandomRows(c, 1, "dy");
  const Formulas formulas(c, qkv);
#if defined(FUSIONLLM_EMULATED_CARD)
  emulated::TakeBankConflicts();
#endif
  const testing::RunResult forward = target_.Run(Forward(c, qkv));
  ASSERT_TRUE(forward.status.ok()) << forward.status;
  EXPECT_EQ(forward.overrun, "");
  ExpectRoundedOnTheWay(formulas.y(), forward.outputs[0]);
  for (size_t i = 0; i < formulas.lse().size(); ++i) {
    const double want = formulas.lse()[i];
    ASSERT_NEAR(At(forward.outputs[1], static_cast<int64_t>(i)), want, 1e-6 * (4 + std::abs(want))) << "lse " << i;
  }
  if (!with_backward) return;
  const testing::RunResult backward = target_.Run(Backward(c, qkv, forward.outputs, dy));
  ASSERT_TRUE(backward.status.ok()) << backward.status;
  EXPECT_EQ(backward.overrun, "");
  ExpectRoundedOnTheWay(formulas.Gradients(forward.outputs[0], forward.outputs[1], dy), backward.outputs[0]);
#if defined(FUSIONLLM_EMULATED_CARD)
  EXPECT_EQ(emulated::TakeBankConflicts(), 0);
#endif
}

TEST_P(TensorCoreAttentionTest, DiffersFromTheFormulasByTheRoundingsOfBf16) { ExpectTheFormulas(/*with_backward=*/true); }

#if !defined(FUSIONLLM_EMULATED_CARD)
TEST_P(CudnnAttentionTest, DiffersFromTheFormulasByTheRoundingsOfBf16) {
  const AttentionCase& c = GetParam();
  // Ours serve where the library knows no way.
  const auto backward = PrepareCudnnAttention(*device_, {AttentionPass::kBackward, c.batch, c.length, c.heads, c.size, c.causal});
  ASSERT_TRUE(backward.ok() || absl::IsUnimplemented(backward.status())) << backward.status();
  ExpectTheFormulas(backward.ok());
}

// Forward has the same bits each time, and where lse is not read.
TEST_P(CudnnAttentionTest, ForwardHasTheSameBitsEachTime) {
  const AttentionCase& c = GetParam();
  const OpCase forward = Forward(c, RandomRows(c, 3, "qkv"));
  const testing::RunResult once = target_.Run(forward);
  ASSERT_TRUE(once.status.ok()) << once.status;
  testing::ExpectSameBits(once, target_.Run(forward));
  const std::vector<bool> y_alone = {true, false};
  const testing::RunResult without = target_.Run(forward, {.wanted = y_alone});
  ASSERT_TRUE(without.status.ok()) << without.status;
  EXPECT_EQ(once.outputs[0].bytes, without.outputs[0].bytes);
}
#endif

#if !defined(FUSIONLLM_EMULATED_CARD)
// GPT-2's: as many blocks as a card has room for and more, so that another order of sums would show.
class CudnnAttentionOfGpt2Test : public CudnnAttentionTest {};

TEST_P(CudnnAttentionOfGpt2Test, ForwardHasTheSameBitsInTenRuns) {
  const OpCase forward = Forward(GetParam(), RandomRows(GetParam(), 3, "qkv"));
  const testing::RunResult once = target_.Run(forward);
  ASSERT_TRUE(once.status.ok()) << once.status;
  for (int run = 1; run < 10; ++run) testing::ExpectSameBits(once, target_.Run(forward));
}
#endif

// Head 1 of sample 1 alone has the bits that it has among others, and any run those of another.
TEST_P(TensorCoreAttentionTest, AHeadHasItsBitsWhateverIsBesideIt) {
  AttentionCase many = GetParam(), one = GetParam();
  many.batch = many.heads = 2;
  one.batch = one.heads = 1;
  const Array qkv = RandomRows(many, 3, "qkv"), dy = RandomRows(many, 1, "dy");
  const auto picked = [&](const Array& from, int64_t parts) {
    Array to = InBf16({1, one.length, parts * one.size});
    for (int64_t i = 0; i < to.type.elements(); ++i) {
      const int64_t row = i / one.size + one.length * parts;
      std::memcpy(Bits(to) + i, from.bytes.data() + 2 * ((row * 2 + 1) * one.size + i % one.size), 2);
    }
    return to;
  };
  const Array qkv_of_one = picked(qkv, 3);
  const testing::RunResult forward = target_.Run(Forward(many, qkv)), forward_of_one = target_.Run(Forward(one, qkv_of_one));
  ASSERT_TRUE(forward.status.ok() && forward_of_one.status.ok());
  EXPECT_EQ(picked(forward.outputs[0], 1).bytes, forward_of_one.outputs[0].bytes);
  testing::ExpectSameBits(forward, target_.Run(Forward(many, qkv)));
  const OpCase backward = Backward(many, qkv, forward.outputs, dy);
  const testing::RunResult gradients = target_.Run(backward);
  const testing::RunResult of_one = target_.Run(Backward(one, qkv_of_one, forward_of_one.outputs, picked(dy, 1)));
  ASSERT_TRUE(gradients.status.ok() && of_one.status.ok());
  EXPECT_EQ(picked(gradients.outputs[0], 3).bytes, of_one.outputs[0].bytes);
  testing::ExpectSameBits(gradients, target_.Run(backward));
}

// Lengths about the 128 rows of a block, the 64 of a tile and the 32 of a warp and a step. Scores of several hundred are beyond what exp
// takes; where all are some -200, what lies beyond the end would have weights beyond it.
const auto kCases = ::testing::Values(
    AttentionCase{"Head64", 1, 2, 64, 130, true}, AttentionCase{"Head64NotCausal", 1, 1, 64, 150, false},
    AttentionCase{"Head64WholeTiles", 1, 1, 64, 128, true}, AttentionCase{"Head64OneRow", 2, 1, 64, 1, true},
    AttentionCase{"Head64LessThanATile", 1, 2, 64, 23, false}, AttentionCase{"Head128", 1, 1, 128, 131, true},
    AttentionCase{"Head128NotCausal", 1, 1, 128, 97, false}, AttentionCase{"Head128LessThanATile", 1, 1, 128, 9, true},
    AttentionCase{"Head16", 1, 3, 16, 70, true}, AttentionCase{"Head80", 1, 1, 80, 67, true},
    AttentionCase{"Head64LargeScores", 1, 1, 64, 140, true, 12}, AttentionCase{"Head128LargeScores", 1, 1, 128, 66, false, 12},
    AttentionCase{"Head64AllScoresFarBelowZero", 1, 1, 64, 75, false, 1, 5},
    AttentionCase{"Head128AllScoresFarBelowZero", 1, 1, 128, 75, true, 1, 5});
std::string NameOf(const ::testing::TestParamInfo<AttentionCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Cases, TensorCoreAttentionTest, kCases, NameOf);
#if !defined(FUSIONLLM_EMULATED_CARD)
INSTANTIATE_TEST_SUITE_P(Cases, CudnnAttentionTest, kCases, NameOf);
INSTANTIATE_TEST_SUITE_P(Large, CudnnAttentionOfGpt2Test, ::testing::Values(AttentionCase{"Gpt2", 8, 12, 64, 1024, true}), NameOf);
#endif

}  // namespace
}  // namespace fusionllm::kernels::cuda
