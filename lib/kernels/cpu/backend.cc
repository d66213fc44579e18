#include <algorithm>
#include <map>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "hwy/targets.h"
#include "lib/base/status_macros.h"
#include "lib/kernels/cpu/cpu.h"
#include "lib/kernels/cpu/onednn.h"
#include "lib/kernels/cpu/vector/bf16.h"
#include "lib/kernels/cpu/vector/target.h"
#include "lib/kernels/ref/reference.h"
#include "lib/kernels/upcast_kernel.h"

namespace fusionllm::kernels::cpu {
namespace {

const std::map<opdag::OpKind, Factory>& Factories() {
  static const auto* const factories = [] {
    auto* all = new std::map<opdag::OpKind, Factory>;
    for (const auto family :
         {AttentionKernels(), ConvolutionKernels(), ElementwiseKernels(), EmbeddingKernels(), LinearKernels(), LossKernels(),
          MovementKernels(), NormalizationKernels(), PoolingKernels(), ReductionKernels(), SoftmaxKernels()}) {
      for (const Entry& entry : family) all->emplace(entry.kind, entry.make);
    }
    return all;
  }();
  return *factories;
}

// In chunks that stay in a core's cache.
class PooledBf16Conversion final : public Bf16Conversion {
 public:
  explicit PooledBf16Conversion(std::shared_ptr<WorkerPool> pool) : pool_(std::move(pool)) {}
  absl::Status Upcast(const uint16_t* from, float* to, int64_t count) const override {
    return ForChunks(count, [&](int64_t begin, int64_t size) { UpcastBf16(from + begin, to + begin, size); });
  }
  absl::Status Round(const float* from, uint16_t* to, int64_t count) const override {
    return ForChunks(count, [&](int64_t begin, int64_t size) { RoundToBf16(from + begin, to + begin, size); });
  }
  absl::Status RoundFloats(const float* from, float* to, int64_t count) const override {
    return ForChunks(count, [&](int64_t begin, int64_t size) { RoundFloatsToBf16(from + begin, to + begin, size); });
  }

 private:
  static constexpr int64_t kChunk = 16384;
  absl::Status ForChunks(int64_t count, absl::FunctionRef<void(int64_t begin, int64_t size)> convert) const {
    pool_->Run(ChunkCount(count, kChunk), [&](int64_t chunk, int) {
      const int64_t begin = chunk * kChunk;
      convert(begin, std::min(kChunk, count - begin));
    });
    return absl::OkStatus();
  }
  const std::shared_ptr<WorkerPool> pool_;
};

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(std::shared_ptr<WorkerPool> pool) : pool_(std::move(pool)) {}

  absl::string_view name() const override { return "cpu"; }
  std::string Describe() const override {
    return absl::StrCat("cpu: ", DescribeOneDnn(), ", vector code for ", VectorTarget(), ", ", pool_->threads(),
                        pool_->threads() == 1 ? " thread" : " threads");
  }
  bool Supports(opdag::OpKind kind) const override { return Factories().contains(kind); }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(const opdag::Graph& graph, const opdag::Op& op) override {
    FUSIONLLM_ASSIGN_OR_RETURN(PreparedOp prepared, PrepareOp(graph, op));
    return MakeKernel(std::move(prepared), pool_);
  }

 private:
  const std::shared_ptr<WorkerPool> pool_;
};

}  // namespace

KernelOrError MakeReference(PreparedOp op, std::shared_ptr<WorkerPool>) { return ref::MakeKernel(std::move(op)); }

KernelOrError MakeKernel(PreparedOp op, std::shared_ptr<WorkerPool> pool) {
  const auto found = Factories().find(op.kind);
  if (found == Factories().end()) {
    return absl::UnimplementedError(absl::StrCat(op.Prefix(), "back end 'cpu' has no kernel for this op type"));
  }
  if (NeedsUpcast(op)) {
    return MakeUpcastKernel(
        op, [&pool](PreparedOp in_f32) { return MakeKernel(std::move(in_f32), pool); }, std::make_shared<PooledBf16Conversion>(pool));
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckComputesInF32(op));
  return found->second(std::move(op), std::move(pool));
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const BackendOptions& options) {
  FUSIONLLM_ASSIGN_OR_RETURN(std::shared_ptr<WorkerPool> pool, WorkerPool::Create(options.threads));
  return std::make_unique<CpuBackend>(std::move(pool));
}

}  // namespace fusionllm::kernels::cpu
