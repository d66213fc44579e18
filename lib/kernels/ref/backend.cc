#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/kernels/ref/reference.h"
#include "lib/kernels/upcast_kernel.h"

namespace fusionllm::kernels::ref {
namespace {

class ReferenceKernel : public Kernel {
 public:
  ReferenceKernel(PreparedOp op, const Entry& entry) : op_(std::move(op)), entry_(entry) {}

  bool CanRunInPlace(int output, int input) const override {
    return entry_.in_place && output == 0 && op_.outputs[0].bytes() == op_.inputs[input].bytes() &&
           op_.inputs[input].dtype == op_.outputs[0].dtype;
  }
  absl::Status Run(const KernelArguments& arguments) override { return entry_.run(op_, arguments); }

 private:
  const PreparedOp op_;
  const Entry entry_;
};

class ReferenceBackend : public Backend {
 public:
  absl::string_view name() const override { return "ref"; }
  std::string Describe() const override { return "ref: plain loops, one thread, sums in double"; }
  bool Supports(opdag::OpKind kind) const override { return Find(kind) != nullptr; }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(const opdag::Graph& graph, const opdag::Op& op) override {
    FUSIONLLM_ASSIGN_OR_RETURN(PreparedOp prepared, PrepareOp(graph, op));
    return MakeKernel(std::move(prepared));
  }
};

}  // namespace

const Entry* Find(opdag::OpKind kind) {
  static const auto* const table = [] {
    auto* entries = new std::map<opdag::OpKind, Entry>;
    for (const auto family :
         {AttentionKernels(), ConvolutionKernels(), ElementwiseKernels(), EmbeddingKernels(), LinearKernels(), LossKernels(),
          MovementKernels(), NormalizationKernels(), PoolingKernels(), ReductionKernels(), SoftmaxKernels()}) {
      for (const Entry& entry : family) entries->emplace(entry.kind, entry);
    }
    return entries;
  }();
  const auto found = table->find(kind);
  return found == table->end() ? nullptr : &found->second;
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(PreparedOp op) {
  const Entry* entry = Find(op.kind);
  if (entry == nullptr) return absl::UnimplementedError(absl::StrCat(op.Prefix(), "back end 'ref' has no kernel for this op type"));
  if (NeedsUpcast(op)) return MakeUpcastKernel(op, MakeKernel, PlainBf16Conversion());
  FUSIONLLM_RETURN_IF_ERROR(CheckComputesInF32(op));
  return std::make_unique<ReferenceKernel>(std::move(op), *entry);
}

std::unique_ptr<Backend> CreateReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace fusionllm::kernels::ref
