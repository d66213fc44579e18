#include "lib/kernels/cuda/padded_gemm.h"

#include <algorithm>
#include <array>
#include <map>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/measure.h"
#include "lib/kernels/cuda/row_copy.h"
#include "lib/tensor/memory.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::kernels::cuda {
namespace {

using Of = RowPadding::Of;

constexpr int64_t kVectorElements = 8;                   // of bf16, in 16 bytes
constexpr int64_t kMaxPaddedBytes = int64_t{256} << 20;  // enough for products to fill a card, little beside a head's own tensors
constexpr int64_t kElementBytes = sizeof(uint16_t);

int64_t Aligned(int64_t leading) { return (leading + kVectorElements - 1) / kVectorElements * kVectorElements; }

size_t WholeAlignments(size_t bytes) { return (bytes + tensor::kAlignment - 1) / tensor::kAlignment * tensor::kAlignment; }

class PaddedGemm final : public Gemm {
 public:
  // `whole` multiplies a stretch of full length, `rest` what is left; either may be null.
  PaddedGemm(Device& device, const GemmShape& shape, const RowPadding& padding, std::unique_ptr<Gemm> whole, std::unique_ptr<Gemm> rest)
      : device_(device), s_(shape), p_(padding), whole_(std::move(whole)), rest_(std::move(rest)) {
    for (const Gemm* gemm : {whole_.get(), rest_.get()}) {
      if (gemm != nullptr) library_bytes_ = std::max(library_bytes_, WholeAlignments(gemm->workspace_bytes()));
    }
  }

  size_t workspace_bytes() const override {
    return library_bytes_ + static_cast<size_t>(std::min(p_.rows, p_.rows_at_once) * p_.leading * kElementBytes);
  }

  absl::Status Run(const GemmData& data, void* workspace) const override {
    for (int64_t row = 0; row < p_.rows; row += p_.rows_at_once) {
      FUSIONLLM_RETURN_IF_ERROR(RunStretch(data, row, std::min(p_.rows_at_once, p_.rows - row), workspace));
    }
    return absl::OkStatus();
  }

 private:
  // The rows of a matrix from `row` on.
  template <typename T>
  static T* From(T* matrix, int64_t row, int64_t leading, tensor::DType type = tensor::DType::kBF16) {
    using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    return static_cast<Byte*>(matrix) + row * leading * static_cast<int64_t>(tensor::SizeOf(type));
  }

  absl::Status RunStretch(const GemmData& data, int64_t row, int64_t rows, void* workspace) const {
    const Gemm& gemm = rows == p_.rows_at_once ? *whole_ : *rest_;
    auto* const padded = reinterpret_cast<uint16_t*>(static_cast<std::byte*>(workspace) + library_bytes_);
    const auto pad = [&](const void* matrix) {
      const auto* const from = static_cast<const uint16_t*>(From(matrix, row, p_.width));
      return ToStatus(CopyRows(device_.stream(), from, p_.width, padded, p_.leading, rows, p_.width), "copying rows of a factor");
    };
    GemmData part = data;
    switch (p_.of) {
      case Of::kA:
        FUSIONLLM_RETURN_IF_ERROR(pad(data.a));
        part.a = padded;
        if (s_.transpose_a) {  // the sum goes over rows
          part.b = From(data.b, row, s_.ldb);
          part.beta = row == 0 ? data.beta : 1;
        } else {
          part.c = From(data.c, row, s_.ldc, s_.result);
        }
        return gemm.Run(part, workspace);
      case Of::kB:
        FUSIONLLM_RETURN_IF_ERROR(pad(data.b));
        part.b = padded;
        part.a = From(data.a, row, s_.lda);
        part.beta = row == 0 ? data.beta : 1;
        return gemm.Run(part, workspace);
      case Of::kC: {
        if (data.beta != 0) return absl::InternalError("a padded result has nothing to be added to");
        part.a = From(data.a, row, s_.lda);
        part.c = padded;
        FUSIONLLM_RETURN_IF_ERROR(gemm.Run(part, workspace));
        auto* const to = static_cast<uint16_t*>(From(data.c, row, p_.width));
        return ToStatus(CopyRows(device_.stream(), padded, p_.leading, to, p_.width, rows, p_.width), "copying rows of a product");
      }
    }
    return absl::InternalError("no such matrix");
  }

  Device& device_;
  const GemmShape s_;
  const RowPadding p_;
  const std::unique_ptr<Gemm> whole_, rest_;
  size_t library_bytes_ = 0;
};

absl::StatusOr<bool> IsFasterProduct(Device& device, const GemmShape& s, const Gemm& first, const Gemm& second) {
  const auto take = [&](int64_t elements, tensor::DType type) {
    return AllocateZeroed(device, static_cast<size_t>(elements) * tensor::SizeOf(type));
  };
  FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock a, take((s.transpose_a ? s.k : s.m) * s.lda, s.factors));
  FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock b, take((s.transpose_b ? s.n : s.k) * s.ldb, s.factors));
  FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock c, take(s.m * s.ldc, s.result));
  FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock bias, take(s.bias ? s.n : 0, tensor::DType::kF32));
  FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock workspace,
                             device.memory().Allocate(std::max(first.workspace_bytes(), second.workspace_bytes())));
  const GemmData data{.a = a.data(), .b = b.data(), .c = c.data(), .bias = bias.data()};
  // One that fails is left out below, and is to be reported.
  FUSIONLLM_RETURN_IF_ERROR(first.Run(data, workspace.data()));
  const std::array<const Gemm*, 2> ways = {&first, &second};
  FUSIONLLM_ASSIGN_OR_RETURN(const size_t fastest,
                             FastestOf(device, ways.size(), [&](size_t i) { return ways[i]->Run(data, workspace.data()); }));
  return fastest == 0;
}

bool PaddedIsFaster(Device& device, const GemmShape& shape, const Gemm& padded, const Gemm& plain) {
  static base::Mutex mutex;
  static auto* const measured ABSL_PT_GUARDED_BY(mutex) = new std::map<std::pair<int, GemmShape>, bool>;
  const base::MutexLock lock(mutex);
  const std::pair key(device.info().index, shape);
  if (const auto found = measured->find(key); found != measured->end()) return found->second;
  const absl::StatusOr<bool> faster = IsFasterProduct(device, shape, padded, plain);
  if (!faster.ok()) {
    // For lack of memory, mostly: no reason not to train.
    base::Log(base::LogLevel::kWarning,
              absl::StrCat("measuring products of padded rows failed; their rows stay as they are: ", faster.status().message()));
  }
  return measured->emplace(key, faster.ok() && *faster).first->second;
}

}  // namespace

std::optional<RowPadding> PaddingOf(const GemmShape& s, int64_t max_bytes) {
  if (s.factors != tensor::DType::kBF16 || s.batch != 1 || s.extra != GemmExtra::kNone || s.m * s.n * s.k == 0) return std::nullopt;
  const int64_t elements_of_c = s.result == tensor::DType::kBF16 ? kVectorElements : kVectorElements / 2;  // of f32, in 16 bytes
  const bool a = s.lda % kVectorElements != 0, b = s.ldb % kVectorElements != 0, c = s.ldc % elements_of_c != 0;
  if (a + b + c != 1) return std::nullopt;
  const bool over_rows = a ? s.transpose_a : b;
  if (over_rows && (s.result != tensor::DType::kF32 || s.bias || s.transpose_b)) return std::nullopt;
  // The sum goes over rows of b, and over columns of an a that is not transposed: those of a stretch do not lie together.
  if (b && !s.transpose_a) return std::nullopt;
  if (c && (s.result != tensor::DType::kBF16 || s.transpose_a)) return std::nullopt;
  RowPadding padding;
  padding.of = a ? Of::kA : b ? Of::kB : Of::kC;
  padding.rows = over_rows ? s.k : s.m;
  padding.width = a ? s.lda : b ? s.ldb : s.ldc;
  padding.leading = Aligned(padding.width);
  padding.rows_at_once = std::max<int64_t>(1, max_bytes / (padding.leading * kElementBytes));
  return padding;
}

absl::StatusOr<std::unique_ptr<Gemm>> PreparePaddedGemm(Device& device, const GemmShape& shape, const RowPadding& padding) {
  const auto prepare = [&](int64_t rows) -> absl::StatusOr<std::unique_ptr<Gemm>> {
    if (rows == 0) return nullptr;
    GemmShape stretch = shape;
    (padding.of == Of::kB || (padding.of == Of::kA && shape.transpose_a) ? stretch.k : stretch.m) = rows;
    (padding.of == Of::kA ? stretch.lda : padding.of == Of::kB ? stretch.ldb : stretch.ldc) = padding.leading;
    return PrepareGemm(device, stretch);
  };
  const int64_t rest_rows = padding.rows % padding.rows_at_once;
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<Gemm> whole, prepare(padding.rows < padding.rows_at_once ? 0 : padding.rows_at_once));
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<Gemm> rest, prepare(rest_rows));
  return std::make_unique<PaddedGemm>(device, shape, padding, std::move(whole), std::move(rest));
}

absl::StatusOr<std::unique_ptr<Gemm>> PrepareProduct(Device& device, const GemmShape& shape) {
  FUSIONLLM_ASSIGN_OR_RETURN(std::unique_ptr<Gemm> plain, PrepareGemm(device, shape));
  const std::optional<RowPadding> padding = PaddingOf(shape, kMaxPaddedBytes);
  if (device.algorithm_choice() != AlgorithmChoice::kMeasured || !padding.has_value()) return plain;
  absl::StatusOr<std::unique_ptr<Gemm>> padded = PreparePaddedGemm(device, shape, *padding);
  if (absl::IsUnimplemented(padded.status())) return plain;
  if (!padded.ok()) return padded.status();
  return PaddedIsFaster(device, shape, **padded, *plain) ? std::move(*padded) : std::move(plain);
}

}  // namespace fusionllm::kernels::cuda
