#include "lib/kernels/ref/reference.h"

namespace fusionllm::kernels::ref {
namespace {

// An [rows, columns] matrix inside row-major memory, possibly read transposed.
struct Matrix {
  const float* data;
  int64_t row_stride;
  int64_t column_stride;
  float at(int64_t row, int64_t column) const { return data[row * row_stride + column * column_stride]; }
};

Matrix Plain(const float* data, int64_t columns) { return {data, columns, 1}; }
Matrix Transposed(const float* data, int64_t columns) { return {data, 1, columns}; }

// c[m, n] = a[m, k] b[k, n] (+ c)
void Multiply(const Matrix& a, const Matrix& b, int64_t m, int64_t n, int64_t k, bool accumulate, float* c) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += static_cast<double>(a.at(i, l)) * b.at(l, j);
      float& out = c[i * n + j];
      out = static_cast<float>(sum) + (accumulate ? out : 0.f);
    }
  }
}

bool IsInputOutput(const PreparedOp& op) { return op.attributes.Text("layout", "io") == "io"; }

absl::Status Linear(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t rows = op.in(0).rows();
  const int64_t in = op.in(0).dim(-1);
  const int64_t out = op.out(0).dim(-1);
  const float* w = arguments.parameters[0].f32();
  float* y = arguments.outputs[0].f32();
  Multiply(Plain(arguments.inputs[0].f32(), in), IsInputOutput(op) ? Plain(w, out) : Transposed(w, in), rows, out, in, false, y);
  if (op.parameters.size() > 1) {
    for (int64_t i = 0; i < rows * out; ++i) y[i] += arguments.parameters[1].f32()[i % out];
  }
  return absl::OkStatus();
}

absl::Status LinearGradInput(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t out = op.in(0).dim(-1);
  const int64_t in = op.out(0).dim(-1);
  const float* w = arguments.parameters[0].f32();
  Multiply(Plain(arguments.inputs[0].f32(), out), IsInputOutput(op) ? Transposed(w, out) : Plain(w, in), op.in(0).rows(), in, out, false,
           arguments.outputs[0].f32());
  return absl::OkStatus();
}

absl::Status LinearGradWeight(const PreparedOp& op, const KernelArguments& arguments) {
  const int64_t rows = op.in(0).rows();
  const int64_t in = op.in(0).dim(-1);
  const int64_t out = op.in(1).dim(-1);
  const float* x = arguments.inputs[0].f32();
  const float* dy = arguments.inputs[1].f32();
  if (float* dw = OutputOrNull(arguments, 0); dw != nullptr) {
    if (IsInputOutput(op)) {
      Multiply(Transposed(x, in), Plain(dy, out), in, out, rows, Accumulates(arguments, 0), dw);
    } else {
      Multiply(Transposed(dy, out), Plain(x, in), out, in, rows, Accumulates(arguments, 0), dw);
    }
  }
  if (float* dbias = op.outputs.size() > 1 ? OutputOrNull(arguments, 1) : nullptr; dbias != nullptr) {
    for (int64_t j = 0; j < out; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < rows; ++i) sum += dy[i * out + j];
      dbias[j] = static_cast<float>(sum) + (Accumulates(arguments, 1) ? dbias[j] : 0.f);
    }
  }
  return absl::OkStatus();
}

absl::Status MatMul(const PreparedOp& op, const KernelArguments& arguments) {
  const bool transpose_a = op.attributes.Bool("transpose_a");
  const bool transpose_b = op.attributes.Bool("transpose_b");
  const int64_t m = op.out(0).dim(-2);
  const int64_t n = op.out(0).dim(-1);
  const int64_t k = op.in(0).dim(transpose_a ? -2 : -1);
  const int64_t batch = m * n == 0 ? 0 : op.out(0).elements() / (m * n);
  for (int64_t i = 0; i < batch; ++i) {
    const float* a = arguments.inputs[0].f32() + i * m * k;
    const float* b = arguments.inputs[1].f32() + (op.in(1).rank() == 2 ? 0 : i * k * n);
    Multiply(transpose_a ? Transposed(a, m) : Plain(a, k), transpose_b ? Transposed(b, k) : Plain(b, n), m, n, k, false,
             arguments.outputs[0].f32() + i * m * n);
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const Entry> LinearKernels() {
  static constexpr Entry kEntries[] = {{OpKind::kLinear, Linear},
                                       {OpKind::kLinearGradInput, LinearGradInput},
                                       {OpKind::kLinearGradWeight, LinearGradWeight},
                                       {OpKind::kMatmul, MatMul}};
  return kEntries;
}

}  // namespace fusionllm::kernels::ref
