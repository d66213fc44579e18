#include "lib/kernels/upcast_kernel.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::kernels {
namespace {

using tensor::DType;
using tensor::TensorType;

class Plain final : public Bf16Conversion {
 public:
  absl::Status Upcast(const uint16_t* from, float* to, int64_t count) const override {
    tensor::UpcastBf16(std::span(from, static_cast<size_t>(count)), to);
    return absl::OkStatus();
  }
  absl::Status Round(const float* from, uint16_t* to, int64_t count) const override {
    tensor::RoundToBf16(std::span(from, static_cast<size_t>(count)), to);
    return absl::OkStatus();
  }
  absl::Status RoundFloats(const float* from, float* to, int64_t count) const override {
    for (int64_t i = 0; i < count; ++i) to[i] = tensor::UpcastBf16(tensor::RoundToBf16(from[i]));
    return absl::OkStatus();
  }
};

bool MultipliesMatrices(OpKind kind) {
  constexpr std::array kKinds = {OpKind::kLinear, OpKind::kLinearGradInput, OpKind::kLinearGradWeight,
                                 OpKind::kConv2d, OpKind::kConv2dGradInput, OpKind::kConv2dGradWeight,
                                 OpKind::kMatmul};
  return std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
}

bool AnyBf16(const std::vector<TensorType>& types) {
  return std::any_of(types.begin(), types.end(), [](const TensorType& type) { return type.dtype == DType::kBF16; });
}

std::vector<TensorType> InF32(std::vector<TensorType> types) {
  for (TensorType& type : types) {
    if (type.dtype == DType::kBF16) type.dtype = DType::kF32;
  }
  return types;
}

// The op as the wrapped kernel sees it.
PreparedOp InF32(PreparedOp op) {
  op.inputs = InF32(std::move(op.inputs));
  op.outputs = InF32(std::move(op.outputs));
  return op;
}

class UpcastKernel final : public Kernel {
 public:
  UpcastKernel(const PreparedOp& op, std::unique_ptr<Kernel> inner, std::shared_ptr<const Bf16Conversion> conversion)
      : prefix_(op.Prefix()), inner_(std::move(inner)), conversion_(std::move(conversion)) {
    inner_bytes_ = Take(inner_->workspace_bytes());
    const bool factors = MultipliesMatrices(op.kind);
    for (const TensorType& type : op.inputs) inputs_.push_back(CopyOf(type, factors));
    for (const TensorType& type : op.parameters) parameters_.push_back(CopyOf(type, factors));
    for (const TensorType& type : op.outputs) outputs_.push_back(CopyOf(type, /*round=*/false));
  }

  size_t workspace_bytes() const override { return workspace_bytes_; }
  bool IsRandom(Mode mode) const override { return inner_->IsRandom(mode); }

  absl::Status Run(const KernelArguments& arguments) override {
    std::byte* const workspace = arguments.workspace.data();
    input_views_.clear();
    parameter_views_.clear();
    output_views_.clear();
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Copy& copy = inputs_[i];
      FUSIONLLM_RETURN_IF_ERROR(Convert(copy, arguments.inputs[i], workspace));
      input_views_.push_back(copy.kind == Copy::Kind::kNone ? arguments.inputs[i] : tensor::TensorView{copy.type, workspace + copy.offset});
    }
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Copy& copy = parameters_[i];
      const tensor::TensorView& given = arguments.parameters[i];
      FUSIONLLM_RETURN_IF_ERROR(Convert(copy, given, workspace));
      parameter_views_.push_back(copy.kind == Copy::Kind::kNone ? given : tensor::TensorView{copy.type, workspace + copy.offset});
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Copy& copy = outputs_[i];
      const tensor::TensorView& given = arguments.outputs[i];
      if (copy.kind == Copy::Kind::kNone) {
        output_views_.push_back(given);
        continue;
      }
      if (Accumulates(arguments, static_cast<int>(i))) {
        return absl::InvalidArgumentError(absl::StrCat(prefix_, "sums are kept in f32, and output ", i, " is ", given.type.ToString()));
      }
      output_views_.push_back({copy.type, given.data == nullptr ? nullptr : workspace + copy.offset});
    }

    KernelArguments in_f32 = arguments;
    in_f32.inputs = input_views_;
    in_f32.parameters = parameter_views_;
    in_f32.outputs = output_views_;
    in_f32.workspace = arguments.workspace.first(inner_bytes_);
    FUSIONLLM_RETURN_IF_ERROR(inner_->Run(in_f32));

    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs_[i].kind == Copy::Kind::kNone || output_views_[i].data == nullptr) continue;
      FUSIONLLM_RETURN_IF_ERROR(
          conversion_->Round(output_views_[i].f32(), arguments.outputs[i].as<uint16_t>(), outputs_[i].type.elements()));
    }
    return absl::OkStatus();
  }

 private:
  // An f32 tensor in the workspace, in the place of an argument.
  struct Copy {
    enum class Kind : uint8_t { kNone, kUpcast, kRounded };
    Kind kind = Kind::kNone;
    TensorType type;
    size_t offset = 0;
  };

  size_t Take(size_t bytes) {
    const size_t begin = workspace_bytes_;
    workspace_bytes_ += (bytes + tensor::kAlignment - 1) / tensor::kAlignment * tensor::kAlignment;
    return workspace_bytes_ - begin;
  }

  Copy CopyOf(const TensorType& type, bool round) {
    const bool widened = type.dtype == DType::kBF16, rounded = round && type.dtype == DType::kF32;
    if (!widened && !rounded) return {};
    const size_t offset = workspace_bytes_;
    TensorType in_f32 = type;
    in_f32.dtype = DType::kF32;
    Take(in_f32.bytes());
    return {.kind = widened ? Copy::Kind::kUpcast : Copy::Kind::kRounded, .type = std::move(in_f32), .offset = offset};
  }

  absl::Status Convert(const Copy& copy, const tensor::ConstTensorView& given, std::byte* workspace) const {
    if (copy.kind == Copy::Kind::kNone) return absl::OkStatus();
    auto* const to = reinterpret_cast<float*>(workspace + copy.offset);
    if (copy.kind == Copy::Kind::kUpcast) return conversion_->Upcast(given.as<uint16_t>(), to, copy.type.elements());
    return conversion_->RoundFloats(given.f32(), to, copy.type.elements());
  }

  const std::string prefix_;
  const std::unique_ptr<Kernel> inner_;
  const std::shared_ptr<const Bf16Conversion> conversion_;
  std::vector<Copy> inputs_, parameters_, outputs_;
  size_t inner_bytes_ = 0;
  size_t workspace_bytes_ = 0;
  // Of the call under way; they keep their memory.
  std::vector<tensor::ConstTensorView> input_views_;
  std::vector<tensor::TensorView> parameter_views_, output_views_;
};

}  // namespace

std::shared_ptr<const Bf16Conversion> PlainBf16Conversion() {
  static const auto* const plain = new std::shared_ptr<const Bf16Conversion>(std::make_shared<Plain>());
  return *plain;
}

bool NeedsUpcast(const PreparedOp& op) { return (AnyBf16(op.inputs) || AnyBf16(op.outputs)) && !MovesBytesOnly(op); }

absl::StatusOr<std::unique_ptr<Kernel>> MakeUpcastKernel(const PreparedOp& op, MakeF32Kernel make,
                                                         std::shared_ptr<const Bf16Conversion> conversion) {
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> inner, make(InF32(op)));
  return std::make_unique<UpcastKernel>(op, std::move(inner), std::move(conversion));
}

}  // namespace fusionllm::kernels
