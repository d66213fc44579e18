#include "lib/kernels/testing/bf16_conformance.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/kernels/ref/reference.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::kernels::testing {
namespace {

using tensor::DType;
using tensor::TensorType;

constexpr uint32_t kSeeds = 5;

Array Rounded(const Array& array) {
  if (array.type.dtype != DType::kF32) return array;
  Array out({DType::kBF16, array.type.shape});
  tensor::RoundToBf16({array.f32(), static_cast<size_t>(array.type.elements())}, reinterpret_cast<uint16_t*>(out.bytes.data()));
  return out;
}

Array UpcastToF32(const Array& array) {
  if (array.type.dtype != DType::kBF16) return array;
  Array out({DType::kF32, array.type.shape});
  tensor::UpcastBf16({reinterpret_cast<const uint16_t*>(array.bytes.data()), static_cast<size_t>(array.type.elements())}, out.f32());
  return out;
}

bool MultipliesMatrices(const PreparedOp& op) {
  const absl::string_view name = opdag::Name(op.kind);
  return absl::StartsWith(name, "linear") || absl::StartsWith(name, "conv2d") || op.kind == OpKind::kMatmul;
}

bool AnyBf16(const OpCase& op_case) {
  const auto any = [](const std::vector<TensorType>& types) {
    return std::any_of(types.begin(), types.end(), [](const TensorType& type) { return type.dtype == DType::kBF16; });
  };
  return any(op_case.op.inputs) || any(op_case.op.outputs);
}

void LowerInput(OpCase& op_case, size_t i) {
  op_case.inputs[i] = Rounded(op_case.inputs[i]);
  op_case.op.inputs[i] = op_case.inputs[i].type;
}

}  // namespace

// What forward ops hand on is lowered, and so what they read; not what only backward ops read, nor losses, nor data.
std::vector<OpCase> LoweredCases(uint32_t seed, int size) {
  std::vector<OpCase> all;
  for (OpCase& forward : RandomCases(seed, size)) {
    for (size_t i = 0; i < forward.inputs.size(); ++i) LowerInput(forward, i);
    const size_t carriers = forward.op.kind == OpKind::kConstant ? 0 : forward.op.kind == OpKind::kSplit ? forward.op.outputs.size() : 1;
    for (size_t i = 0; i < carriers; ++i) {
      TensorType& type = forward.op.outputs[i];
      if (type.dtype == DType::kF32 && type.shape.rank() > 0) type.dtype = DType::kBF16;
    }
    const RunResult result = RunCase(ref::MakeKernel, forward);
    EXPECT_TRUE(result.status.ok()) << forward.op.Prefix() << result.status;
    Array dy = RandomArray({DType::kF32, result.outputs[0].type.shape}, seed + 1000);
    if (result.outputs[0].type.dtype == DType::kBF16) dy = Rounded(dy);
    for (const BackwardOp& backward : forward.backward) all.push_back(BackwardCase(forward, backward, result.outputs, dy));
    all.push_back(std::move(forward));
  }
  return all;
}

namespace {

// Every f32 input and every output but gradients of parameters; from a draw on, one in two of them.
OpCase Lowered(OpCase op_case, uint32_t draw) {
  const base::CounterRng rng(draw, "lowered");
  int64_t drawn = 0;
  const auto lower = [&](const TensorType& type) { return type.dtype == DType::kF32 && (draw == 0 || rng.Below(drawn++, 2) == 0); };
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    if (lower(op_case.op.inputs[i])) LowerInput(op_case, i);
  }
  for (size_t i = 0; i < op_case.op.outputs.size(); ++i) {
    if (!IsParameterGradient(op_case, i) && lower(op_case.op.outputs[i])) op_case.op.outputs[i].dtype = DType::kBF16;
  }
  return op_case;
}

// A case and the same one in fp32 on the very numbers that its kernel is to compute with.
struct Pair {
  OpCase in_bf16, in_f32;
};

Pair PairOf(OpCase in_bf16) {
  OpCase in_f32 = in_bf16;
  const bool factors = MultipliesMatrices(in_f32.op);
  for (size_t i = 0; i < in_f32.inputs.size(); ++i) {
    in_f32.inputs[i] = UpcastToF32(factors ? Rounded(in_f32.inputs[i]) : in_f32.inputs[i]);
    in_f32.op.inputs[i] = in_f32.inputs[i].type;
  }
  for (Array& parameter : in_f32.parameters) {
    if (factors) parameter = UpcastToF32(Rounded(parameter));
  }
  for (TensorType& type : in_f32.op.outputs) {
    if (type.dtype == DType::kBF16) type.dtype = DType::kF32;
  }
  return {std::move(in_bf16), std::move(in_f32)};
}

template <typename Check>
void ForPairs(int size, Check check) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    std::vector<OpCase> cases = LoweredCases(seed, size);
    for (OpCase& op_case : AllCases(seed, size)) cases.push_back(Lowered(std::move(op_case), seed));
    for (OpCase& op_case : cases) {
      if (!AnyBf16(op_case)) continue;
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " " << op_case.op.Prefix());
      check(PairOf(std::move(op_case)));
    }
  }
}

// What the fp32 kernel gives, rounded where the case asks for it. A NaN's payload is not promised, but none of these is one.
void ExpectRounded(const RunResult& in_f32, const RunResult& got) {
  ASSERT_TRUE(in_f32.status.ok()) << in_f32.status;
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_EQ(got.overrun, "");
  for (size_t i = 0; i < got.outputs.size(); ++i) {
    const bool lowered = got.outputs[i].type.dtype == DType::kBF16;
    EXPECT_EQ((lowered ? Rounded(in_f32.outputs[i]) : in_f32.outputs[i]).bytes, got.outputs[i].bytes) << "output " << i;
  }
}

// |difference| <= 2^exponent |number| + what the case allows in fp32.
void ExpectWithin(const Array& want, const Array& got, int exponent, double tolerance) {
  double square = 0;
  for (int64_t i = 0; i < want.type.elements(); ++i) square += static_cast<double>(want.f32()[i]) * want.f32()[i];
  const double rms = std::sqrt(square / static_cast<double>(want.type.elements()));
  for (int64_t i = 0; i < want.type.elements(); ++i) {
    const double number = std::abs(static_cast<double>(want.f32()[i]));
    const double allowed = std::ldexp(number, exponent) + kAbsoluteTolerance + tolerance * std::max(number, rms);
    ASSERT_NEAR(want.f32()[i], got.f32()[i], allowed) << "element " << i;
  }
}

}  // namespace

void ExpectBf16RoundedOnce(const Target& target, int size, Mode mode, bool products) {
  const RunOptions options{.mode = mode};
  ForPairs(size, [&](const Pair& pair) {
    const bool multiplies = MultipliesMatrices(pair.in_bf16.op);
    if (multiplies && !products) return;
    const RunResult in_f32 = target.Run(pair.in_f32, options), got = target.Run(pair.in_bf16, options);
    ExpectRounded(in_f32, got);
    for (size_t i = 0; i < got.parameters.size(); ++i) {
      const std::vector<std::byte>& want = multiplies ? pair.in_bf16.parameters[i].bytes : in_f32.parameters[i].bytes;
      EXPECT_EQ(want, got.parameters[i].bytes) << "parameter " << i;
    }
  });
}

void ExpectBf16Agreement(const Target& target, int size) {
  ForPairs(size, [&](const Pair& pair) {
    const RunResult exact = RunCase(ref::MakeKernel, pair.in_f32), reference = RunCase(ref::MakeKernel, pair.in_bf16);
    const RunResult got = target.Run(pair.in_bf16);
    ASSERT_TRUE(exact.status.ok() && reference.status.ok() && got.status.ok()) << got.status;
    EXPECT_EQ(got.overrun, "");
    for (size_t i = 0; i < exact.outputs.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "output " << i);
      if (pair.in_bf16.op.outputs[i].dtype != DType::kBF16) {
        EXPECT_EQ(Difference(exact.outputs[i], got.outputs[i], pair.in_f32.tolerance), "");
        continue;
      }
      ExpectWithin(exact.outputs[i], UpcastToF32(got.outputs[i]), -8, pair.in_f32.tolerance);
      ExpectWithin(UpcastToF32(reference.outputs[i]), UpcastToF32(got.outputs[i]), -7, pair.in_f32.tolerance);
    }
  });
}

void ExpectBf16SameBits(const Target& one, const Target& other, int size) {
  ForPairs(size, [&](const Pair& pair) { ExpectSameBits(one.Run(pair.in_bf16), other.Run(pair.in_bf16)); });
}

int ExpectBf16GradientsAdd(const Target& target, int size) {
  int added = 0;
  ForPairs(size, [&](const Pair& pair) {
    RunOptions options;
    RunResult want = target.Run(pair.in_bf16);
    bool any = false;
    for (size_t i = 0; i < pair.in_bf16.op.outputs.size(); ++i) {
      const bool adds = IsParameterGradient(pair.in_bf16, i);
      const TensorType& type = pair.in_bf16.op.outputs[i];
      Array initial = RandomArray({type.dtype == DType::kBF16 ? DType::kF32 : type.dtype, type.shape}, 70 + i);
      for (int64_t e = 0; adds && e < type.elements(); ++e) want.outputs[i].f32()[e] += initial.f32()[e];
      options.initial.push_back(type.dtype == DType::kBF16 ? Rounded(initial) : std::move(initial));
      options.accumulate.push_back(adds);
      added += adds ? 1 : 0;
      any = any || adds;
    }
    if (any) ExpectSame(want, target.Run(pair.in_bf16, options), pair.in_f32.tolerance);
  });
  return added;
}

void ExpectBf16MissingOutputsChangeNoOther(const Target& target, int size) {
  ForPairs(size, [&](const Pair& pair) { ExpectMissingOutputsChangeNoOther(target, pair.in_bf16); });
}

int ExpectBf16SameInPlace(const Target& target, int size) {
  int in_place = 0;
  ForPairs(size, [&](const Pair& pair) { in_place += ExpectSameInPlace(target, pair.in_bf16) ? 1 : 0; });
  return in_place;
}

}  // namespace fusionllm::kernels::testing
