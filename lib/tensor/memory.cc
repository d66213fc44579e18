#include "lib/tensor/memory.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::tensor {
namespace {

constexpr char kOutOfMemory[] = "fusionllm.io/out-of-memory";

class Host final : public Memory {
 public:
  bool on_host() const override { return true; }
  absl::StatusOr<MemoryBlock> Allocate(size_t bytes) override {
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    auto* data = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded == 0 ? kAlignment : rounded));
    if (data == nullptr) return OutOfMemoryError(absl::StrCat("this machine has no ", bytes, " bytes of memory left"));
    return MemoryBlock(*this, data, bytes);
  }
  absl::Status Zero(std::byte* to, size_t bytes) override {
    if (bytes > 0) std::memset(to, 0, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyIn(void* to, const void* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  absl::Status CopyOut(void* to, const void* from, size_t bytes) override { return CopyIn(to, from, bytes); }

 protected:
  void Free(std::byte* data) override { std::free(data); }
};

class ArrivedCopy final : public PendingCopy {
 public:
  explicit ArrivedCopy(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  absl::Status Wait(void* to) override {
    if (!bytes_.empty()) std::memcpy(to, bytes_.data(), bytes_.size());
    return absl::OkStatus();
  }

 private:
  const std::vector<std::byte> bytes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PendingCopy>> Memory::StartCopyOut(const void* from, size_t bytes) {
  std::vector<std::byte> here(bytes);
  FUSIONLLM_RETURN_IF_ERROR(CopyOut(here.data(), from, bytes));
  return std::make_unique<ArrivedCopy>(std::move(here));
}

MemoryBlock::~MemoryBlock() {
  if (data_ != nullptr) memory_->Free(data_);
}

absl::Status OutOfMemoryError(absl::string_view text) {
  absl::Status status = absl::ResourceExhaustedError(text);
  status.SetPayload(kOutOfMemory, {});
  return status;
}

bool IsOutOfMemory(const absl::Status& status) { return status.GetPayload(kOutOfMemory).has_value(); }

Memory& HostMemory() {
  static Host host;
  return host;
}

}  // namespace fusionllm::tensor
