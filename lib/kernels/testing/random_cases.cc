// The list of cases: one builder for each family of ops.
#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "lib/kernels/testing/op_case.h"

namespace fusionllm::kernels::testing {
namespace {

using opdag::Attributes;
using tensor::DType;
using tensor::Shape;
using tensor::TensorType;
using Ints = std::vector<int64_t>;

TensorType F32(Shape shape) { return {DType::kF32, std::move(shape)}; }
TensorType I32(Shape shape) { return {DType::kI32, std::move(shape)}; }

class Builder {
 public:
  Builder(uint32_t seed, int size) : seed_(seed), size_(size), random_(seed) {}

  int64_t Draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  // Small counts and odd widths that no SIMD register divides.
  int64_t Extent() { return Draw(1, 2 + 3 * size_); }
  int64_t Width() { return Draw(1, 4 + 19 * size_); }

  OpCase& Add(absl::string_view type, Attributes attributes, std::vector<TensorType> inputs, std::vector<TensorType> parameters,
              std::vector<TensorType> outputs, std::vector<BackwardOp> backward = {}) {
    OpCase added{.op = {.name = absl::StrCat("the_", type), .kind = opdag::OpKindOf(type), .attributes = std::move(attributes)}};
    for (const TensorType& t : inputs) added.inputs.push_back(RandomArray(t, NextSeed()));
    for (const TensorType& t : parameters) added.parameters.push_back(RandomArray(t, NextSeed()));
    added.op.inputs = std::move(inputs);
    added.op.parameters = std::move(parameters);
    added.op.outputs = std::move(outputs);
    added.backward = std::move(backward);
    cases_.push_back(std::move(added));
    return cases_.back();
  }

  void DrawIntegers(Array& array, int64_t limit) {
    for (int64_t i = 0; i < array.type.elements(); ++i) array.i32()[i] = static_cast<int32_t>(Draw(0, limit - 1));
  }
  // Distinct values 0.1 apart and never 0: no kink or tie lies within a finite difference's step.
  void Spread(Array& array) {
    const int64_t count = array.type.elements();
    for (int64_t i = 0; i < count; ++i) array.f32()[i] = 0.1f * (static_cast<float>(i - count / 2) + 0.5f);
    std::shuffle(array.f32(), array.f32() + count, random_);
  }
  static void MakePositive(Array& array) {
    for (int64_t i = 0; i < array.type.elements(); ++i) array.f32()[i] = 0.5f + std::abs(array.f32()[i]);
  }

  std::vector<OpCase> Take() { return std::move(cases_); }

 private:
  uint64_t NextSeed() { return uint64_t{seed_} << 32 | ++arrays_; }

  uint32_t seed_;
  int size_;
  std::mt19937 random_;
  uint64_t arrays_ = 0;
  std::vector<OpCase> cases_;
};

void AddEmbedding(Builder& b) {
  const int64_t batch = b.Extent(), length = b.Extent(), vocab = b.Width(), dim = b.Width();
  const int64_t positions = b.Draw(0, 1) * (length + b.Draw(0, 3));
  const Attributes attributes = {{"vocab", vocab}, {"dim", dim}, {"positions", positions}};
  BackwardOp backward{"embedding_grad", attributes, {"x0", "dy"}, {}, {"p0"}};
  std::vector<TensorType> parameters = {F32({vocab, dim})};
  if (positions > 0) {
    parameters.push_back(F32({positions, dim}));
    backward.outputs.push_back("p1");
  }
  OpCase& added = b.Add("embedding", attributes, {I32({batch, length})}, parameters, {F32({batch, length, dim})}, {backward});
  b.DrawIntegers(added.inputs[0], vocab);
}

void AddLinear(Builder& b, const std::string& layout) {
  const int64_t batch = b.Extent(), length = b.Width(), in = b.Width(), out = b.Width();
  const bool bias = b.Draw(0, 1) == 1;
  std::vector<TensorType> parameters = {F32(layout == "io" ? Shape{in, out} : Shape{out, in})};
  BackwardOp weight{"linear_grad_weight", {{"layout", layout}, {"bias", bias}}, {"x0", "dy"}, {}, {"p0"}};
  if (bias) {
    parameters.push_back(F32({out}));
    weight.outputs.push_back("p1");
  }
  b.Add("linear", {{"out", out}, {"layout", layout}, {"bias", bias}}, {F32({batch, length, in})}, parameters, {F32({batch, length, out})},
        {{"linear_grad_input", {{"layout", layout}, {"in", in}}, {"dy"}, {"p0"}, {"x0"}}, weight});
}

void AddMatMul(Builder& b) {
  const int64_t batch = b.Extent(), m = b.Width(), n = b.Width(), k = b.Width();
  const bool ta = b.Draw(0, 1) == 1, tb = b.Draw(0, 1) == 1, shared = b.Draw(0, 1) == 1;
  const Shape left = ta ? Shape{batch, k, m} : Shape{batch, m, k};
  const Shape right = shared ? (tb ? Shape{n, k} : Shape{k, n}) : (tb ? Shape{batch, n, k} : Shape{batch, k, n});
  b.Add("matmul", {{"transpose_a", ta}, {"transpose_b", tb}}, {F32(left), F32(right)}, {}, {F32({batch, m, n})});
}

void AddAttention(Builder& b, bool causal, int size) {
  const int64_t heads = b.Draw(1, 3), head = b.Draw(1, 4 + 4 * size), batch = b.Draw(1, 2), length = b.Draw(1, 4 + 20 * size * size);
  const Attributes attributes = {{"heads", heads}, {"causal", causal}};
  OpCase& added = b.Add("attention", attributes, {F32({batch, length, 3 * heads * head})}, {},
                        {F32({batch, length, heads * head}), F32({batch, heads, length})},
                        {{"attention_grad", attributes, {"x0", "y0", "y1", "dy"}, {}, {"x0"}}});
  added.tolerance = 5e-5;  // probabilities inherit the absolute error of scores of order 10, and dP - delta cancels
}

void AddNormalization(Builder& b) {
  // With two values to normalise the exact gradient is all but 0 and only rounding is left: start at four.
  const int64_t batch = b.Extent(), length = b.Extent(), width = b.Width() + 3;
  OpCase& layer = b.Add("layer_norm", {{"epsilon", 1e-5}}, {F32({batch, length, width})}, {F32({width}), F32({width})},
                        {F32({batch, length, width}), F32({batch, length}), F32({batch, length})},
                        {{"layer_norm_grad", {}, {"x0", "dy", "y1", "y2"}, {"p0"}, {"x0", "p0", "p1"}}});
  layer.tolerance = 5e-5;
  const int64_t h = b.Extent(), w = b.Extent(), channels = b.Width();
  OpCase& norm = b.Add("batch_norm", {{"epsilon", 1e-5}, {"momentum", 0.1}}, {F32({batch + 3, h, w, channels})},
                       {F32({channels}), F32({channels}), F32({channels}), F32({channels}), {DType::kI64, Shape{}}},
                       {F32({batch + 3, h, w, channels}), F32({channels}), F32({channels})},
                       {{"batch_norm_grad", {}, {"x0", "dy", "y1", "y2"}, {"p0"}, {"x0", "p0", "p1"}}});
  norm.tolerance = 5e-5;  // the projections that backward subtracts cancel most of dy
  Builder::MakePositive(norm.parameters[3]);
  // Two or three samples of a channel may lie so close together that the slope is steep: spread values bound the condition number.
  b.Spread(norm.inputs[0]);
}

OpCase& AddUnary(Builder& b, const std::string& type, Attributes attributes, const std::string& saved) {
  const Shape shape = {b.Extent(), b.Extent(), b.Width()};
  std::vector<BackwardOp> backward;
  if (!saved.empty()) backward.push_back({type + "_grad", attributes, {saved, "dy"}, {}, {"x0"}});
  OpCase& added = b.Add(type, attributes, {F32(shape)}, {}, {F32(shape)}, backward);
  if (type == "log" || type == "sqrt") Builder::MakePositive(added.inputs[0]);
  if (type == "relu") b.Spread(added.inputs[0]);
  return added;
}

void AddElementwise(Builder& b) {
  AddUnary(b, "gelu", {{"approximate", std::string("tanh")}}, "x0");
  AddUnary(b, "gelu", {{"approximate", std::string("none")}}, "x0");
  for (const char* type : {"relu", "tanh", "sigmoid"}) AddUnary(b, type, {}, "y0");
  for (const char* type : {"exp", "log", "sqrt", "neg", "square"}) AddUnary(b, type, {}, "");
  AddUnary(b, "scale", {{"factor", 0.7}, {"shift", -0.3}}, "");
  const Attributes mask = {{"rate", 0.4}, {"name", std::string("drop")}};
  AddUnary(b, "dropout", mask, "").backward = {{"dropout_grad", mask, {"dy"}, {}, {"x0"}}};
  for (const char* type : {"add", "sub", "mul", "div"}) {
    const int64_t rows = b.Extent(), middle = b.Extent(), width = b.Width();
    const Shape full = {rows, middle, width};
    const Shape others[] = {full, Shape{width}, Shape{rows, 1, width}, Shape{}, Shape{middle, 1}};
    const Shape other = others[b.Draw(0, 4)];
    const bool swapped = b.Draw(0, 1) == 1;
    OpCase& added = b.Add(type, {}, {F32(swapped ? other : full), F32(swapped ? full : other)}, {}, {F32(full)});
    Builder::MakePositive(added.inputs[1]);
  }
}

void AddLoss(Builder& b) {
  const int64_t batch = b.Extent(), length = b.Extent(), classes = b.Width() + 1;
  const Attributes attributes = {{"ignore_index", int64_t{-100}}};
  OpCase& entropy =
      b.Add("cross_entropy", attributes, {F32({batch, length, classes}), I32({batch, length})}, {},
            {F32({}), F32({}), F32({batch, length}), F32({})}, {{"cross_entropy_grad", attributes, {"x0", "x1", "y2", "dy"}, {}, {"x0"}}});
  b.DrawIntegers(entropy.inputs[1], classes);
  if (batch * length > 2) entropy.inputs[1].i32()[1] = -100;
  const Shape shape = {batch, classes};
  b.Add("mse", {}, {F32(shape), F32(shape)}, {}, {F32({})}, {{"mse_grad", {}, {"x0", "x1", "dy"}, {}, {"x0"}}});
}

void AddMovement(Builder& b) {
  const int64_t m = b.Extent(), n = b.Extent(), k = b.Width() + 1;
  b.Add("constant", {{"value", 1.25}, {"shape", Ints{m, n}}}, {}, {}, {F32({m, n})});
  b.Add("reshape", {{"shape", Ints{-1, k}}}, {F32({m, n, k})}, {}, {F32({m * n, k})});
  b.Add("flatten", {{"start", int64_t{1}}}, {F32({m, n, k})}, {}, {F32({m, n * k})});
  b.Add("transpose", {{"permutation", Ints{2, 0, 1}}}, {F32({m, n, k})}, {}, {F32({k, m, n})});
  b.Add("concat", {{"axis", int64_t{1}}}, {F32({m, n, k}), F32({m, 2, k}), F32({m, 1, k})}, {}, {F32({m, n + 3, k})});
  b.Add("split", {{"axis", int64_t{2}}, {"sizes", Ints{1, k - 1}}}, {F32({m, n, k})}, {}, {F32({m, n, 1}), F32({m, n, k - 1})});
  b.Add("slice", {{"axis", int64_t{2}}, {"begin", int64_t{1}}, {"end", k}}, {F32({m, n, k})}, {}, {F32({m, n, k - 1})},
        {{"pad_slice", {{"axis", int64_t{2}}, {"begin", int64_t{1}}, {"extent", k}}, {"dy"}, {}, {"x0"}}});
}

void AddReduction(Builder& b) {
  const int64_t m = b.Extent(), n = b.Extent(), k = b.Width();
  for (const std::string type : {"softmax", "log_softmax"}) {
    b.Add(type, {}, {F32({m, n, k})}, {}, {F32({m, n, k})}, {{type + "_grad", {}, {"y0", "dy"}, {}, {"x0"}}});
  }
  for (const std::string kind : {"sum", "mean", "max"}) {
    const Attributes attributes = {{"kind", kind}, {"axes", Ints{0, 2}}, {"keep_dims", false}};
    OpCase& added = b.Add("reduce", attributes, {F32({m, n, k})}, {}, {F32({n})});
    b.Spread(added.inputs[0]);
    if (kind == "max") added.backward = {{"reduce_max_grad", attributes, {"x0", "y0", "dy"}, {}, {"x0"}}};
  }
  b.Add("broadcast_to", {{"shape", Ints{m, n, k}}}, {F32({n, 1})}, {}, {F32({m, n, k})},
        {{"sum_to", {{"shape", Ints{n, 1}}}, {"dy"}, {}, {"x0"}}});
}

struct Window {
  int64_t batch, in, out, groups, out_height, out_width, kernel_height, kernel_width, stride, dilation, pad_height, pad_width;
  int64_t spare = 0;  // rows below the last window
  bool bias = true;
};

void AddConvolutionOf(Builder& b, const Window& v) {
  const int64_t h = (v.out_height - 1) * v.stride + v.dilation * (v.kernel_height - 1) + 1 - 2 * v.pad_height + v.spare;
  const int64_t w = (v.out_width - 1) * v.stride + v.dilation * (v.kernel_width - 1) + 1 - 2 * v.pad_width;
  const Attributes attributes = {{"out", v.out},
                                 {"kernel", Ints{v.kernel_height, v.kernel_width}},
                                 {"stride", Ints{v.stride, v.stride}},
                                 {"padding", Ints{v.pad_height, v.pad_width}},
                                 {"dilation", Ints{v.dilation, v.dilation}},
                                 {"groups", v.groups},
                                 {"bias", v.bias}};
  std::vector<TensorType> parameters = {F32({v.out, v.in / v.groups, v.kernel_height, v.kernel_width})};
  BackwardOp weight{"conv2d_grad_weight", attributes, {"x0", "dy"}, {}, {"p0"}};
  if (v.bias) {
    parameters.push_back(F32({v.out}));
    weight.outputs.push_back("p1");
  }
  Attributes input_attributes = attributes;
  input_attributes.Set("in_shape", Ints{v.batch, h, w, v.in});
  b.Add("conv2d", attributes, {F32({v.batch, h, w, v.in})}, parameters, {F32({v.batch, v.out_height, v.out_width, v.out})},
        {{"conv2d_grad_input", input_attributes, {"dy"}, {"p0"}, {"x0"}}, weight});
}

void AddConvolution(Builder& b, int size) {
  Window v{.batch = b.Draw(1, 3), .groups = b.Draw(1, 2)};
  v.in = v.groups * b.Draw(1, 3 + 8 * size);
  v.out = v.groups * b.Draw(1, 3 + 8 * size);
  v.kernel_height = b.Draw(1, 3);
  v.kernel_width = b.Draw(1, 3);
  v.stride = b.Draw(1, 2);
  v.dilation = b.Draw(1, 2);
  v.pad_height = b.Draw(0, (v.kernel_height - 1) / 2);
  v.pad_width = b.Draw(0, (v.kernel_width - 1) / 2);
  v.out_height = b.Draw(1, 3 + size);
  v.out_width = b.Draw(1, 3 + size);
  v.spare = b.Draw(0, v.stride - 1);
  v.bias = b.Draw(0, 1) == 1;
  AddConvolutionOf(b, v);
}

void AddPooling(Builder& b) {
  const int64_t batch = b.Draw(1, 3), channels = b.Width(), kernel = b.Draw(1, 3), stride = b.Draw(1, 2), padding = b.Draw(0, kernel / 2);
  const int64_t oh = b.Draw(2, 4), ow = b.Draw(2, 4);
  const int64_t h = (oh - 1) * stride + kernel - 2 * padding, w = (ow - 1) * stride + kernel - 2 * padding;
  const Attributes attributes = {{"kernel", Ints{kernel, kernel}}, {"stride", Ints{stride, stride}}, {"padding", Ints{padding, padding}}};
  Attributes backward = attributes;
  backward.Set("in_shape", Ints{batch, h, w, channels});
  OpCase& max =
      b.Add("max_pool2d", attributes, {F32({batch, h, w, channels})}, {}, {F32({batch, oh, ow, channels}), I32({batch, oh, ow, channels})},
            {{"max_pool2d_grad", backward, {"dy", "y1"}, {}, {"x0"}}});
  b.Spread(max.inputs[0]);
  b.Add("avg_pool2d", attributes, {F32({batch, h, w, channels})}, {}, {F32({batch, oh, ow, channels})},
        {{"avg_pool2d_grad", backward, {"dy"}, {}, {"x0"}}});
  b.Add("global_avg_pool", {}, {F32({batch, h, w, channels})}, {}, {F32({batch, channels})},
        {{"global_avg_pool_grad", {{"height", h}, {"width", w}}, {"dy"}, {}, {"x0"}}});
}

}  // namespace

std::vector<OpCase> RandomCases(uint32_t seed, int size) {
  Builder b(seed, size);
  AddEmbedding(b);
  AddLinear(b, "io");
  AddLinear(b, "oi");
  AddMatMul(b);
  AddAttention(b, true, size);
  AddAttention(b, false, size);
  AddNormalization(b);
  AddElementwise(b);
  AddLoss(b);
  AddMovement(b);
  AddReduction(b);
  AddConvolution(b, size);
  AddPooling(b);
  return b.Take();
}

std::vector<OpCase> LargeCases(uint32_t seed) {
  Builder b(seed, 8);
  AddConvolutionOf(b, {.batch = 8,
                       .in = 16,
                       .out = 32,
                       .groups = 1,
                       .out_height = 16,
                       .out_width = 16,
                       .kernel_height = 3,
                       .kernel_width = 3,
                       .stride = 1,
                       .dilation = 1,
                       .pad_height = 1,
                       .pad_width = 1});
  AddConvolutionOf(b, {.batch = 4,
                       .in = 5,
                       .out = 7,
                       .groups = 1,
                       .out_height = 32,
                       .out_width = 32,
                       .kernel_height = 3,
                       .kernel_width = 3,
                       .stride = 2,
                       .dilation = 1,
                       .pad_height = 1,
                       .pad_width = 1,
                       .spare = 1,
                       .bias = false});
  AddConvolutionOf(b, {.batch = 8,
                       .in = 24,
                       .out = 40,
                       .groups = 1,
                       .out_height = 12,
                       .out_width = 12,
                       .kernel_height = 1,
                       .kernel_width = 1,
                       .stride = 2,
                       .dilation = 1,
                       .pad_height = 0,
                       .pad_width = 0,
                       .spare = 1});
  for (const std::string layout : {"io", "oi"}) AddLinear(b, layout);
  AddAttention(b, true, 4);
  AddNormalization(b);
  AddPooling(b);
  return b.Take();
}

}  // namespace fusionllm::kernels::testing
