#include "lib/kernels/testing/fused_case.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::kernels::testing {
namespace {

using tensor::DType;

template <typename T>
std::vector<T> Joined(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// What both kernels leave, one after the other.
struct Separate {
  std::vector<Array> outputs, parameters;
};

void ExpectLeft(const Separate& want, const RunResult& got, bool handed_on_wanted) {
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_EQ(got.overrun, "");
  for (size_t i = handed_on_wanted ? 0 : 1; i < want.outputs.size(); ++i) {
    EXPECT_EQ(want.outputs[i].bytes, got.outputs[i].bytes) << "output " << i;
  }
  for (size_t i = 0; i < want.parameters.size(); ++i) EXPECT_EQ(want.parameters[i].bytes, got.parameters[i].bytes) << "parameter " << i;
}

}  // namespace

Array RandomFloats(const tensor::TensorType& type, uint64_t seed) {
  Array wide = RandomArray({DType::kF32, type.shape}, seed);
  if (type.dtype == DType::kF32) return wide;
  Array out(type);
  tensor::RoundToBf16({wide.f32(), static_cast<size_t>(type.elements())}, reinterpret_cast<uint16_t*>(out.bytes.data()));
  return out;
}

Array Widened(const Array& array) {
  if (array.type.dtype != DType::kBF16) return array;
  Array wide({DType::kF32, array.type.shape});
  tensor::WidenBf16({reinterpret_cast<const uint16_t*>(array.bytes.data()), static_cast<size_t>(array.type.elements())}, wide.f32());
  return wide;
}

OpCase Together(const OpCase& first, const OpCase& second, int through) {
  OpCase both = first;
  both.op.inputs = Joined(first.op.inputs, second.op.inputs);
  both.op.parameters = Joined(first.op.parameters, second.op.parameters);
  both.op.outputs = Joined(first.op.outputs, second.op.outputs);
  both.inputs = Joined(first.inputs, second.inputs);
  both.parameters = Joined(first.parameters, second.parameters);
  Array& handed_on = both.inputs[first.inputs.size() + static_cast<size_t>(through)];
  std::fill(handed_on.bytes.begin(), handed_on.bytes.end(), std::byte{0xff});
  return both;
}

OpCase CaseOf(std::string type, std::vector<Array> inputs, std::vector<Array> parameters, std::vector<tensor::TensorType> outputs) {
  OpCase op_case{.op = {.name = type, .type = type, .outputs = std::move(outputs)}};
  for (const Array& input : inputs) op_case.op.inputs.push_back(input.type);
  for (const Array& parameter : parameters) op_case.op.parameters.push_back(parameter.type);
  op_case.inputs = std::move(inputs);
  op_case.parameters = std::move(parameters);
  return op_case;
}

void ExpectFusedSameBits(const Target& target, const FusedMaker& make_fused, const OpCase& first, OpCase second, int through,
                         const std::vector<std::vector<bool>>& accumulate, Mode mode) {
  const auto fused = make_fused(first.op, second.op, through);
  ASSERT_TRUE(fused.ok()) << fused.status();
  ASSERT_NE(*fused, nullptr);
  const size_t of_first = first.op.outputs.size(), outputs = of_first + second.op.outputs.size();
  for (const std::vector<bool>& adds : accumulate) {
    std::vector<Array> initial, initial_of_second;
    for (size_t i = 0; i < of_first; ++i) initial.push_back(RandomFloats(first.op.outputs[i], 40 + i));
    for (const tensor::TensorType& type : second.op.outputs) initial_of_second.push_back(RandomFloats(type, 60 + initial_of_second.size()));
    const auto split = adds.begin() + static_cast<std::ptrdiff_t>(of_first);
    const RunResult one = target.Run(first, {.mode = mode, .accumulate = std::vector<bool>(adds.begin(), split), .initial = initial});
    ASSERT_TRUE(one.status.ok()) << one.status;
    second.inputs[static_cast<size_t>(through)] = one.outputs[0];
    const RunResult other =
        target.Run(second, {.mode = mode, .accumulate = std::vector<bool>(split, adds.end()), .initial = initial_of_second});
    ASSERT_TRUE(other.status.ok()) << other.status;
    const Separate want{Joined(one.outputs, other.outputs), Joined(one.parameters, other.parameters)};

    const OpCase both = Together(first, second, through);
    RunOptions options{.mode = mode,
                       .wanted = std::vector<bool>(outputs, true),
                       .accumulate = adds,
                       .initial = Joined(initial, initial_of_second),
                       .memory = target.memory};
    for (const bool handed_on_wanted : {true, false}) {
      SCOPED_TRACE(absl::StrCat("handed on ", handed_on_wanted ? "too" : "only"));
      options.wanted[0] = handed_on_wanted;
      options.in_place = false;
      ExpectLeft(want, RunKernel(**fused, both, options), handed_on_wanted);
      options.in_place = true;
      for (int output = static_cast<int>(of_first); output < static_cast<int>(outputs); ++output) {
        for (int input = 0; input < static_cast<int>(first.inputs.size()); ++input) {
          if (!(*fused)->CanRunInPlace(output, input)) continue;
          SCOPED_TRACE(absl::StrCat("output ", output, " where input ", input, " was"));
          options.output_in_place = output;
          options.input_in_place = input;
          ExpectLeft(want, RunKernel(**fused, both, options), handed_on_wanted);
        }
      }
    }
  }
}

}  // namespace fusionllm::kernels::testing
