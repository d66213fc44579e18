#include "tests/numerics/kinks.h"

#include <algorithm>

namespace fusionllm::numerics {
namespace {

// Index in the reduced tensor of each element of `shape`.
std::vector<int64_t> ReducedIndices(const tensor::Shape& shape, const std::vector<int64_t>& axes) {
  std::vector<int64_t> stride(shape.rank(), 0);
  int64_t size = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) continue;
    stride[axis] = size;
    size *= shape[axis];
  }
  std::vector<int64_t> indices(shape.elements());
  for (int64_t i = 0; i < shape.elements(); ++i) {
    int64_t rest = i;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      indices[i] += rest % shape[axis] * stride[axis];
      rest /= shape[axis];
    }
  }
  return indices;
}

}  // namespace

Choices ChoicesOf(Evaluator& evaluator, int forward_ops) {
  Choices choices;
  for (int id = 0; id < forward_ops; ++id) {
    const opdag::Op& op = evaluator.graph().op(id);
    if (op.kind == opdag::OpKind::kMaxPool2d) {
      const tensor::Tensor& index = evaluator.value(op.outputs[1]);
      choices.insert(choices.end(), index.as<int32_t>(), index.as<int32_t>() + index.type().elements());
    } else if (op.kind == opdag::OpKind::kRelu) {
      const tensor::Tensor& x = evaluator.value(op.inputs[0]);
      for (int64_t i = 0; i < x.type().elements(); ++i) choices.push_back(x.f32()[i] > 0);
    } else if (op.kind == opdag::OpKind::kReduce && op.attributes.Text("kind") == "max") {
      const tensor::Tensor& x = evaluator.value(op.inputs[0]);
      const float* largest = evaluator.value(op.outputs[0]).f32();
      const std::vector<int64_t> reduced = ReducedIndices(x.type().shape, op.attributes.Ints("axes"));
      for (int64_t i = 0; i < x.type().elements(); ++i) choices.push_back(x.f32()[i] == largest[reduced[i]]);
    }
  }
  return choices;
}

}  // namespace fusionllm::numerics
