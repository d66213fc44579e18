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
void Append(const std::vector<T>& more, std::vector<T>& to) {
  to.insert(to.end(), more.begin(), more.end());
}

// What the kernels leave, one after the other.
struct Separate {
  absl::Status status;
  std::vector<Array> outputs, parameters;
};

Separate RunEach(const Target& target, RowCase row, const std::vector<bool>& accumulate, const std::vector<Array>& initial, Mode mode) {
  Separate all;
  std::vector<Array> before;
  auto adds = accumulate.begin();
  auto start = initial.begin();
  for (auto& [op_case, through] : row) {
    if (!before.empty()) op_case.inputs[static_cast<size_t>(through)] = before[0];
    const auto outputs = static_cast<std::ptrdiff_t>(op_case.op.outputs.size());
    RunResult one = target.Run(
        op_case,
        {.mode = mode, .accumulate = std::vector<bool>(adds, adds + outputs), .initial = std::vector<Array>(start, start + outputs)});
    all.status.Update(one.status);
    Append(one.outputs, all.outputs);
    Append(one.parameters, all.parameters);
    before = std::move(one.outputs);
    adds += outputs;
    start += outputs;
  }
  return all;
}

void ExpectLeft(const Separate& want, const RunResult& got, const std::vector<bool>& wanted) {
  ASSERT_TRUE(got.status.ok()) << got.status;
  EXPECT_EQ(got.overrun, "");
  for (size_t i = 0; i < want.outputs.size(); ++i) {
    if (wanted[i]) {
      EXPECT_EQ(want.outputs[i].bytes, got.outputs[i].bytes) << "output " << i;
    }
  }
  for (size_t i = 0; i < want.parameters.size(); ++i) EXPECT_EQ(want.parameters[i].bytes, got.parameters[i].bytes) << "parameter " << i;
}

// By input of all ops.
std::vector<bool> AreHandedOn(const RowCase& row) {
  std::vector<bool> are;
  for (size_t i = 0; i < row.size(); ++i) {
    const size_t first = are.size();
    are.resize(first + row[i].op_case.inputs.size(), false);
    if (i > 0) are[first + static_cast<size_t>(row[i].through)] = true;
  }
  return are;
}

// One kernel for a row, with outputs `options.wanted`.
void ExpectSameWherever(Kernel& kernel, const RowCase& row, const Separate& want, RunOptions options) {
  const OpCase together = Together(row);
  const std::vector<bool> handed_on = AreHandedOn(row);
  ExpectLeft(want, RunKernel(kernel, together, options), options.wanted);
  options.in_place = true;
  for (size_t output = 0; output < want.outputs.size(); ++output) {
    for (size_t input = 0; input < handed_on.size(); ++input) {
      options.output_in_place = static_cast<int>(output);
      options.input_in_place = static_cast<int>(input);
      const bool can = kernel.CanRunInPlace(options.output_in_place, options.input_in_place);
      if (!can || !options.wanted[output] || handed_on[input]) continue;
      SCOPED_TRACE(absl::StrCat("output ", output, " where input ", input, " was"));
      ExpectLeft(want, RunKernel(kernel, together, options), options.wanted);
    }
  }
}

}  // namespace

Array RandomFloats(const tensor::TensorType& type, uint64_t seed) {
  Array wide = RandomArray({DType::kF32, type.shape}, seed);
  if (type.dtype == DType::kF32) return wide;
  Array out(type);
  tensor::RoundToBf16({wide.f32(), static_cast<size_t>(type.elements())}, reinterpret_cast<uint16_t*>(out.bytes.data()));
  return out;
}

Array UpcastToF32(const Array& array) {
  if (array.type.dtype != DType::kBF16) return array;
  Array wide({DType::kF32, array.type.shape});
  tensor::UpcastBf16({reinterpret_cast<const uint16_t*>(array.bytes.data()), static_cast<size_t>(array.type.elements())}, wide.f32());
  return wide;
}

std::vector<PreparedFusedOp> PreparedRow(const RowCase& row, const std::vector<bool>& wanted) {
  std::vector<PreparedFusedOp> prepared;
  for (size_t i = 0; i < row.size(); ++i) {
    prepared.push_back({.op = row[i].op_case.op, .through = row[i].through, .keeps_output = i >= wanted.size() || wanted[i]});
  }
  return prepared;
}

OpCase Together(const RowCase& row) {
  OpCase all{.op = {.name = row[0].op_case.op.name, .kind = row[0].op_case.op.kind}};
  for (const auto& [op_case, through] : row) {
    Append(op_case.op.inputs, all.op.inputs);
    Append(op_case.op.parameters, all.op.parameters);
    Append(op_case.op.outputs, all.op.outputs);
    Append(op_case.inputs, all.inputs);
    Append(op_case.parameters, all.parameters);
  }
  const std::vector<bool> handed_on = AreHandedOn(row);
  for (size_t i = 0; i < handed_on.size(); ++i) {
    if (handed_on[i]) std::fill(all.inputs[i].bytes.begin(), all.inputs[i].bytes.end(), std::byte{0xff});
  }
  return all;
}

OpCase CaseOf(std::string type, std::vector<Array> inputs, std::vector<Array> parameters, std::vector<tensor::TensorType> outputs) {
  OpCase op_case{.op = {.name = type, .kind = opdag::OpKindOf(type), .outputs = std::move(outputs)}};
  for (const Array& input : inputs) op_case.op.inputs.push_back(input.type);
  for (const Array& parameter : parameters) op_case.op.parameters.push_back(parameter.type);
  op_case.inputs = std::move(inputs);
  op_case.parameters = std::move(parameters);
  return op_case;
}

void ExpectFusedSameBits(const Target& target, const FusedMaker& make_fused, const RowCase& row,
                         const std::vector<std::vector<bool>>& accumulate, Mode mode) {
  std::vector<Array> initial;
  std::vector<size_t> firsts;  // which output is the first of each op
  for (const auto& [op_case, through] : row) {
    firsts.push_back(initial.size());
    for (const tensor::TensorType& type : op_case.op.outputs) initial.push_back(RandomFloats(type, 40 + initial.size()));
  }
  for (const std::vector<bool>& adds : accumulate) {
    ASSERT_EQ(adds.size(), initial.size());
    const Separate want = RunEach(target, row, adds, initial, mode);
    ASSERT_TRUE(want.status.ok()) << want.status;
    for (unsigned others = 0; others < 1u << (row.size() - 1); ++others) {
      std::vector<bool> by_op;
      RunOptions options{
          .mode = mode, .wanted = std::vector<bool>(initial.size(), true), .accumulate = adds, .initial = initial, .memory = target.memory};
      for (size_t i = 0; i < row.size(); ++i) {
        by_op.push_back(i + 1 == row.size() || (others >> i & 1u) != 0);
        options.wanted[firsts[i]] = by_op[i];
      }
      SCOPED_TRACE(::testing::Message() << "wanted of each op: " << ::testing::PrintToString(by_op));
      const auto fused = make_fused(PreparedRow(row, by_op));
      ASSERT_TRUE(fused.ok()) << fused.status();
      ASSERT_NE(*fused, nullptr);
      ExpectSameWherever(**fused, row, want, options);
    }
  }
}

}  // namespace fusionllm::kernels::testing
