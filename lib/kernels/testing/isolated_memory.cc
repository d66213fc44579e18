#include "lib/kernels/testing/isolated_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"

namespace fusionllm::kernels::testing {
namespace {

constexpr size_t kReservedBytes = size_t{1} << 30;
constexpr size_t kSpacing = 4096;

// One stretch of addresses, handed out from its beginning and taken back as a whole; open to the host only while a Door is.
class Reserved {
 public:
  ~Reserved() {
    if (base_ != nullptr) munmap(base_, kReservedBytes);
  }
  absl::Status Reserve() {
    void* base = mmap(nullptr, kReservedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return absl::ResourceExhaustedError("no addresses left for memory apart");
    base_ = static_cast<std::byte*>(base);
    return absl::OkStatus();
  }
  absl::StatusOr<std::byte*> Take(size_t bytes) {
    const size_t rounded = (bytes + kSpacing - 1) / kSpacing * kSpacing + kSpacing;
    if (used_ + rounded > kReservedBytes) return absl::ResourceExhaustedError(absl::StrCat("memory apart has no ", bytes, " bytes left"));
    std::byte* data = base_ + used_;
    used_ += rounded;
    return data;
  }
  void Protect(int protection) const { mprotect(base_, used_, protection); }

 private:
  std::byte* base_ = nullptr;
  size_t used_ = 0;
};

class Door {
 public:
  explicit Door(const Reserved& reserved) : reserved_(reserved) { reserved_.Protect(PROT_READ | PROT_WRITE); }
  ~Door() { reserved_.Protect(PROT_NONE); }

 private:
  const Reserved& reserved_;
};

struct Shared {
  Reserved reserved;
  absl::Status late;  // the first error of a kernel that was not reported yet
  absl::Status TakeError() { return std::exchange(late, absl::OkStatus()); }
};

class IsolatedMemory final : public tensor::Memory {
 public:
  explicit IsolatedMemory(Shared& shared) : shared_(shared) {}
  bool on_host() const override { return false; }
  absl::StatusOr<tensor::MemoryBlock> Allocate(size_t bytes) override {
    FUSIONLLM_ASSIGN_OR_RETURN(std::byte * data, shared_.reserved.Take(bytes));
    const Door open(shared_.reserved);
    std::memset(data, 0xFF, bytes);  // of code that reads before it writes, floats are NaN
    return tensor::MemoryBlock(*this, data, bytes);
  }
  absl::Status Zero(std::byte* to, size_t bytes) override {
    const Door open(shared_.reserved);
    if (bytes > 0) std::memset(to, 0, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyIn(void* to, const void* from, size_t bytes) override {
    const Door open(shared_.reserved);
    if (bytes > 0) std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyOut(void* to, const void* from, size_t bytes) override {
    FUSIONLLM_RETURN_IF_ERROR(shared_.TakeError());
    return CopyIn(to, from, bytes);
  }

 protected:
  void Free(std::byte*) override {}  // all of it goes with the back end

 private:
  Shared& shared_;
};

class IsolatedKernel final : public Kernel {
 public:
  IsolatedKernel(std::unique_ptr<Kernel> inner, Shared& shared) : inner_(std::move(inner)), shared_(shared) {}
  size_t workspace_bytes() const override { return inner_->workspace_bytes(); }
  bool CanRunInPlace(int output, int input) const override { return inner_->CanRunInPlace(output, input); }
  absl::Status Run(const KernelArguments& arguments) override {
    const Door open(shared_.reserved);
    const absl::Status status = inner_->Run(arguments);
    if (shared_.late.ok()) shared_.late = status;
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<Kernel> inner_;
  Shared& shared_;
};

class IsolatedOptimizer final : public OptimizerKernels {
 public:
  IsolatedOptimizer(OptimizerKernels& inner, Shared& shared) : inner_(inner), shared_(shared) {}
  absl::Status Add(std::span<const float* const> terms, float* sum, size_t count) override {
    const Door open(shared_.reserved);
    return inner_.Add(terms, sum, count);
  }
  absl::Status SumsOfSquares(std::span<const std::span<const float>> gradients, std::span<double> sums) override {
    FUSIONLLM_RETURN_IF_ERROR(shared_.TakeError());
    const Door open(shared_.reserved);
    return inner_.SumsOfSquares(gradients, sums);
  }
  absl::Status Update(const OptimizerConfig& config, const OptimizerStep& step, std::span<const ParameterUpdate> updates) override {
    const Door open(shared_.reserved);
    return inner_.Update(config, step, updates);
  }

 private:
  OptimizerKernels& inner_;
  Shared& shared_;
};

class IsolatedBackend final : public Backend {
 public:
  explicit IsolatedBackend(std::unique_ptr<Backend> inner)
      : inner_(std::move(inner)), memory_(shared_), optimizer_(inner_->optimizer(), shared_) {}
  absl::Status Reserve() { return shared_.reserved.Reserve(); }

  absl::string_view name() const override { return inner_->name(); }
  std::string Describe() const override { return absl::StrCat(inner_->Describe(), ", in memory of its own"); }
  bool Supports(opdag::OpKind kind) const override { return inner_->Supports(kind); }
  absl::StatusOr<std::unique_ptr<Kernel>> Prepare(const opdag::Graph& graph, const opdag::Op& op) override {
    FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, inner_->Prepare(graph, op));
    return std::make_unique<IsolatedKernel>(std::move(kernel), shared_);
  }
  tensor::Memory& memory() override { return memory_; }
  OptimizerKernels& optimizer() override { return optimizer_; }
  absl::Status Synchronize() override { return shared_.TakeError(); }

 private:
  const std::unique_ptr<Backend> inner_;
  Shared shared_;
  IsolatedMemory memory_;
  IsolatedOptimizer optimizer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> IsolatedMemoryBackend(absl::string_view inner) {
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, CreateBackend(inner, {}));
  auto apart = std::make_unique<IsolatedBackend>(std::move(backend));
  FUSIONLLM_RETURN_IF_ERROR(apart->Reserve());
  return apart;
}

}  // namespace fusionllm::kernels::testing
