#include <algorithm>
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/bf16.h"
#include "lib/kernels/cuda/column_sums.h"
#include "lib/kernels/cuda/cuda.h"
#include "lib/kernels/cuda/gemm.h"
#include "lib/kernels/cuda/padded_gemm.h"
#include "lib/kernels/upcast_kernel.h"

namespace fusionllm::kernels::cuda {
namespace {

bool IsInputOutput(const PreparedOp& op) { return op.attributes.Text("layout", "io") == "io"; }

// y = x W (+ bias)
GemmShape LinearShape(const PreparedOp& op) {
  const int64_t in = op.in(0).dim(-1), out = op.out(0).dim(-1);
  const bool io = IsInputOutput(op);
  return {.transpose_b = !io,
          .m = op.in(0).rows(),
          .n = out,
          .k = in,
          .lda = in,
          .ldb = io ? out : in,
          .ldc = out,
          .bias = op.parameters.size() > 1};
}

// dx = dy W'
GemmShape GradInputShape(const PreparedOp& op) {
  const int64_t out = op.in(0).dim(-1), in = op.out(0).dim(-1);
  const bool io = IsInputOutput(op);
  return {.transpose_b = io, .m = op.in(0).rows(), .n = in, .k = out, .lda = out, .ldb = io ? out : in, .ldc = in};
}

// dW = x' dy, or dy' x where the weight lies the other way round.
GemmShape GradWeightShape(const PreparedOp& op) {
  const int64_t in = op.in(0).dim(-1), out = op.in(1).dim(-1);
  const bool io = IsInputOutput(op);
  return {.transpose_a = true,
          .m = io ? in : out,
          .n = io ? out : in,
          .k = op.in(0).rows(),
          .lda = io ? in : out,
          .ldb = io ? out : in,
          .ldc = io ? out : in};
}

GemmShape MatMulShape(const PreparedOp& op) {
  const bool transpose_a = op.attributes.Bool("transpose_a"), transpose_b = op.attributes.Bool("transpose_b");
  const int64_t m = op.out(0).dim(-2), n = op.out(0).dim(-1), k = op.in(0).dim(transpose_a ? -2 : -1);
  return {.transpose_a = transpose_a,
          .transpose_b = transpose_b,
          .m = m,
          .n = n,
          .k = k,
          .lda = transpose_a ? m : k,
          .ldb = transpose_b ? k : n,
          .ldc = n,
          .batch = m * n == 0 ? 0 : op.out(0).elements() / (m * n),
          .stride_a = m * k,
          .stride_b = op.in(1).rank() == 2 ? 0 : k * n,
          .stride_c = m * n};
}

// c = a b. Where the op has a bf16 tensor both factors are bf16, and so is the bias: what is f32 is rounded to a copy in the workspace,
// behind the library's.
class ProductKernel : public DeviceKernel {
 public:
  ProductKernel(PreparedOp op, Device& device, const GemmShape& shape, std::unique_ptr<Gemm> gemm)
      : DeviceKernel(std::move(op), device), gemm_(std::move(gemm)) {
    Take(gemm_->workspace_bytes());
    first_ = FactorOf(FirstType(), shape.factors);
    second_ = FactorOf(SecondType(), shape.factors);
    if (!shape.bias || shape.factors == tensor::DType::kF32) return;
    bias_bf16_ = shape.result == tensor::DType::kBF16;
    bias_ = {.rounded = true, .offset = Take(sizeof(float) * static_cast<size_t>(shape.n)), .elements = shape.n};
  }
  size_t workspace_bytes() const override { return workspace_bytes_; }

 protected:
  // What goes into the product: tensors of the op or their copies, of one type.
  struct Factors {
    const void* first;
    const void* second;
  };

  // Of linear and the gradient of its input the second factor is the weight.
  absl::StatusOr<Factors> FactorsOf(const KernelArguments& arguments) const {
    const void* const second = op_.parameters.empty() ? arguments.inputs[1].data : arguments.parameters[0].data;
    Factors factors{InPlaceOf(first_, arguments.inputs[0].data, arguments), InPlaceOf(second_, second, arguments)};
    FUSIONLLM_RETURN_IF_ERROR(Round(first_, arguments.inputs[0].data, arguments));
    FUSIONLLM_RETURN_IF_ERROR(Round(second_, second, arguments));
    return factors;
  }

  // What is added to each row, in the type that the product wants; null where the op has no bias.
  absl::StatusOr<const void*> BiasOf(const KernelArguments& arguments) const {
    if (op_.parameters.size() < 2) return nullptr;
    const float* const given = arguments.parameters[1].f32();
    if (!bias_.rounded) return given;
    std::byte* const copy = arguments.workspace.data() + bias_.offset;
    FUSIONLLM_RETURN_IF_ERROR(LaunchStatus(bias_bf16_
                                               ? RoundToBf16(stream(), given, reinterpret_cast<uint16_t*>(copy), bias_.elements)
                                               : RoundFloatsToBf16(stream(), given, reinterpret_cast<float*>(copy), bias_.elements)));
    return copy;
  }

  absl::Status Multiply(const GemmData& data, const KernelArguments& arguments) const {
    return gemm_->Run(data, arguments.workspace.data());
  }

  // Behind what is taken already.
  size_t Take(size_t bytes) {
    const size_t begin = workspace_bytes_;
    workspace_bytes_ += (bytes + tensor::kAlignment - 1) / tensor::kAlignment * tensor::kAlignment;
    return begin;
  }

 private:
  struct Factor {
    bool rounded = false;
    size_t offset = 0;
    int64_t elements = 0;
  };

  const tensor::TensorType& FirstType() const { return op_.inputs[0]; }
  const tensor::TensorType& SecondType() const { return op_.parameters.empty() ? op_.inputs[1] : op_.parameters[0]; }

  Factor FactorOf(const tensor::TensorType& type, tensor::DType wanted) {
    if (type.dtype == wanted) return {};
    return {.rounded = true, .offset = Take(sizeof(uint16_t) * static_cast<size_t>(type.elements())), .elements = type.elements()};
  }
  static const void* InPlaceOf(const Factor& factor, const void* given, const KernelArguments& arguments) {
    return factor.rounded ? arguments.workspace.data() + factor.offset : given;
  }
  absl::Status Round(const Factor& factor, const void* given, const KernelArguments& arguments) const {
    if (!factor.rounded) return absl::OkStatus();
    auto* const copy = reinterpret_cast<uint16_t*>(arguments.workspace.data() + factor.offset);
    return LaunchStatus(RoundToBf16(stream(), static_cast<const float*>(given), copy, factor.elements));
  }

  const std::unique_ptr<Gemm> gemm_;
  size_t workspace_bytes_ = 0;
  Factor first_, second_, bias_;
  bool bias_bf16_ = false;
};

GemmShape WithTypes(GemmShape shape, const PreparedOp& op) {
  if (NeedsUpcast(op)) {
    shape.factors = tensor::DType::kBF16;
    shape.result = op.outputs[0].dtype;
  }
  return shape;
}

template <typename K, GemmShape (*ShapeOf)(const PreparedOp&)>
KernelOrError MakeProduct(PreparedOp op, Device& device) {
  const GemmShape shape = WithTypes(ShapeOf(op), op);
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<Gemm> gemm, PrepareProduct(device, shape));
  return std::make_unique<K>(std::move(op), device, shape, std::move(gemm));
}

class Linear : public ProductKernel {
 public:
  using ProductKernel::ProductKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    FUSIONLLM_ASSIGN_OR_RETURN(const Factors factors, FactorsOf(arguments));
    FUSIONLLM_ASSIGN_OR_RETURN(const void* const bias, BiasOf(arguments));
    return Multiply({.a = factors.first, .b = factors.second, .c = arguments.outputs[0].data, .bias = bias}, arguments);
  }
};

class LinearGradWeight : public ProductKernel {
 public:
  LinearGradWeight(PreparedOp op, Device& device, const GemmShape& shape, std::unique_ptr<Gemm> gemm)
      : ProductKernel(std::move(op), device, shape, std::move(gemm)),
        in_bf16_(shape.factors == tensor::DType::kBF16),
        by_product_(shape.extra != GemmExtra::kNone),
        sums_offset_(Take(op_.outputs.size() < 2 ? 0 : std::max(ColumnSumsWorkspaceBytes(rows(), out()), sizeof(float) * out()))) {}

  absl::Status Run(const KernelArguments& arguments) override {
    FUSIONLLM_ASSIGN_OR_RETURN(const Factors factors, FactorsOf(arguments));
    const void* const x = factors.first;
    const void* const dy = factors.second;
    const bool io = IsInputOutput(op_);
    void* const sums = arguments.workspace.data() + sums_offset_;
    float* const dw = OutputOrNull(arguments, 0);
    if (dw != nullptr) {
      FUSIONLLM_RETURN_IF_ERROR(Multiply(
          {.a = io ? x : dy, .b = io ? dy : x, .c = dw, .sums = static_cast<float*>(sums), .beta = Accumulates(arguments, 0) ? 1.0f : 0.0f},
          arguments));
    }
    float* dbias = op_.outputs.size() > 1 ? OutputOrNull(arguments, 1) : nullptr;
    if (dbias == nullptr) return absl::OkStatus();
    const bool add = Accumulates(arguments, 1);
    if (by_product_ && dw != nullptr) return LaunchStatus(TakeSums(stream(), static_cast<const float*>(sums), out(), add, dbias));
    return LaunchStatus(in_bf16_ ? SumColumns(stream(), static_cast<const Bf16*>(dy), rows(), out(), add, sums, dbias)
                                 : SumColumns(stream(), static_cast<const float*>(dy), rows(), out(), add, sums, dbias));
  }

 private:
  int64_t rows() const { return op_.in(0).rows(); }
  int64_t out() const { return op_.in(1).dim(-1); }

  const bool in_bf16_, by_product_;
  const size_t sums_offset_;
};

// Where bits may depend on algorithms the gradient of the bias comes with the product, if the library has a way.
KernelOrError MakeGradWeight(PreparedOp op, Device& device) {
  GemmShape shape = WithTypes(GradWeightShape(op), op);
  if (op.outputs.size() > 1 && device.algorithm_choice() == AlgorithmChoice::kMeasured) {
    GemmShape with_sums = shape;
    with_sums.extra = IsInputOutput(op) ? GemmExtra::kSumsOfB : GemmExtra::kSumsOfA;
    absl::StatusOr<std::unique_ptr<Gemm>> gemm = PrepareGemm(device, with_sums);
    if (gemm.ok()) return std::make_unique<LinearGradWeight>(std::move(op), device, with_sums, *std::move(gemm));
    if (!absl::IsUnimplemented(gemm.status())) return gemm.status();
  }
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<Gemm> gemm, PrepareProduct(device, shape));
  return std::make_unique<LinearGradWeight>(std::move(op), device, shape, std::move(gemm));
}

// The product of its two factors and no more.
class Product : public ProductKernel {
 public:
  using ProductKernel::ProductKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    FUSIONLLM_ASSIGN_OR_RETURN(const Factors factors, FactorsOf(arguments));
    return Multiply({.a = factors.first, .b = factors.second, .c = arguments.outputs[0].data}, arguments);
  }
};

// y = linear(x); z = gelu(y), of the y that is not rounded. Inputs: x, y; outputs: y, z.
class LinearGelu : public ProductKernel {
 public:
  using ProductKernel::ProductKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    FUSIONLLM_ASSIGN_OR_RETURN(const Factors factors, FactorsOf(arguments));
    FUSIONLLM_ASSIGN_OR_RETURN(const void* const bias, BiasOf(arguments));
    return Multiply(
        {.a = factors.first, .b = factors.second, .c = arguments.outputs[1].data, .bias = bias, .aux = arguments.outputs[0].data},
        arguments);
  }
};

// dy = linear_grad_input(..); dx = gelu_grad(x, dy), of the dy that is not rounded. Inputs: the product's, then x, dy; outputs: dy, dx.
class GradInputGeluGrad : public ProductKernel {
 public:
  using ProductKernel::ProductKernel;
  absl::Status Run(const KernelArguments& arguments) override {
    FUSIONLLM_ASSIGN_OR_RETURN(const Factors factors, FactorsOf(arguments));
    return Multiply({.a = factors.first,
                     .b = factors.second,
                     .c = arguments.outputs[1].data,
                     .aux = const_cast<void*>(arguments.inputs[op_.inputs.size()].data)},
                    arguments);
  }
};

// Their bits are not those of two ops, so they are for back ends whose bits may depend on where a model is cut.
template <typename K>
KernelOrError Fuse(PreparedFusedOps row, GemmShape shape, GemmExtra extra, Device& device) {
  PreparedOp& product = row[0].op;
  const PreparedOp& gelu = row[1].op;
  const bool tanh = gelu.attributes.Text("approximate", "tanh") == "tanh";
  const bool alike = product.outputs[0] == gelu.outputs[0] && product.outputs[0].dtype == tensor::DType::kBF16;
  if (device.algorithm_choice() != AlgorithmChoice::kMeasured || !tanh || !alike) return nullptr;
  shape = WithTypes(shape, product);
  shape.extra = extra;
  absl::StatusOr<std::unique_ptr<Gemm>> gemm = PrepareGemm(device, shape);
  if (absl::IsUnimplemented(gemm.status())) return nullptr;
  if (!gemm.ok()) return gemm.status();
  return std::make_unique<K>(std::move(product), device, shape, *std::move(gemm));
}

// The library writes what lies between the two.
KernelOrError FuseLinearGelu(PreparedFusedOps row, Device& device) {
  if (!row[0].keeps_output) return nullptr;
  const GemmShape shape = LinearShape(row[0].op);
  return Fuse<LinearGelu>(std::move(row), shape, GemmExtra::kGelu, device);
}

// Here it does not.
KernelOrError FuseGradInputGeluGrad(PreparedFusedOps row, Device& device) {
  if (row[1].through != 1 || row[0].keeps_output) return nullptr;
  const GemmShape shape = GradInputShape(row[0].op);
  return Fuse<GradInputGeluGrad>(std::move(row), shape, GemmExtra::kGeluGrad, device);
}

template <typename K, GemmShape (*ShapeOf)(const PreparedOp&)>
constexpr Entry EntryOf(opdag::OpKind kind, absl::string_view inputs, absl::string_view outputs) {
  return {kind, MakeProduct<K, ShapeOf>, {MakeProduct<K, ShapeOf>, inputs, outputs}};
}

}  // namespace

std::span<const Entry> LinearKernels() {
  static constexpr Entry kEntries[] = {EntryOf<Linear, LinearShape>(OpKind::kLinear, "e", "e"),
                                       EntryOf<Product, GradInputShape>(OpKind::kLinearGradInput, "e", "e"),
                                       {OpKind::kLinearGradWeight, MakeGradWeight, {MakeGradWeight, "ee", "ff"}},
                                       EntryOf<Product, MatMulShape>(OpKind::kMatmul, "ee", "e")};
  return kEntries;
}

std::span<const FusedEntry> LinearFusions() {
  static constexpr FusedEntry kEntries[] = {{{OpKind::kLinear, OpKind::kGelu}, FuseLinearGelu},
                                            {{OpKind::kLinearGradInput, OpKind::kGeluGrad}, FuseGradInputGeluGrad}};
  return kEntries;
}

}  // namespace fusionllm::kernels::cuda
