#include "lib/kernels/cuda/gemm.h"

#include <cublasLt.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/base/shared_library.h"
#include "lib/base/status_macros.h"
#include "lib/kernels/cuda/measure.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::kernels::cuda {
namespace {

constexpr uint64_t kMaxWorkspaceBytes = uint64_t{32} << 20;
constexpr int kMaxMeasured = 8;
// The library takes 256 bytes for granted, and tensors in an arena have less.
constexpr uint32_t kMinAlignment = tensor::kAlignment;
// Parts of a sum are put together in fp32 and in an order of their own. The library's other ways round parts to the result's type, or add
// them to the result as they come.
constexpr uint32_t kReductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

// What is used of the library.
struct CublasLt {
  decltype(cublasLtCreate)* create;
  decltype(cublasLtMatmulDescCreate)* desc_create;
  decltype(cublasLtMatmulDescDestroy)* desc_destroy;
  decltype(cublasLtMatmulDescSetAttribute)* desc_set;
  decltype(cublasLtMatrixLayoutCreate)* layout_create;
  decltype(cublasLtMatrixLayoutDestroy)* layout_destroy;
  decltype(cublasLtMatrixLayoutSetAttribute)* layout_set;
  decltype(cublasLtMatmulPreferenceCreate)* preference_create;
  decltype(cublasLtMatmulPreferenceDestroy)* preference_destroy;
  decltype(cublasLtMatmulPreferenceSetAttribute)* preference_set;
  decltype(cublasLtMatmulAlgoGetHeuristic)* heuristic;
  decltype(cublasLtMatmul)* matmul;
  cublasLtHandle_t handle = nullptr;
};

cudaDataType_t TypeOf(tensor::DType type) { return type == tensor::DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F; }

absl::Status ToStatus(cublasStatus_t status, absl::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat("%s: cuBLASLt answers %d", what, static_cast<int>(status)));
}

absl::StatusOr<CublasLt> Load() {
  FUSIONLLM_ASSIGN_OR_RETURN(const base::SharedLibrary library, base::SharedLibrary::Open({"libcublasLt.so.13", "libcublasLt.so"}));
  CublasLt l;
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cublasLtCreate", l.create));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cublasLtMatmulDescCreate", l.desc_create));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cublasLtMatmulDescDestroy", l.desc_destroy));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cublasLtMatmulDescSetAttribute", l.desc_set));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cublasLtMatrixLayoutCreate", l.layout_create));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cublasLtMatrixLayoutDestroy", l.layout_destroy));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cublasLtMatrixLayoutSetAttribute", l.layout_set));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cublasLtMatmulPreferenceCreate", l.preference_create));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cublasLtMatmulPreferenceDestroy", l.preference_destroy));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cublasLtMatmulPreferenceSetAttribute", l.preference_set));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cublasLtMatmulAlgoGetHeuristic", l.heuristic));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cublasLtMatmul", l.matmul));
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(l.create(&l.handle), "opening cuBLASLt"));
  return l;
}

// One handle for the process: it belongs to the device that is current when it is made, and a process has one device.
const absl::StatusOr<CublasLt>& Library() {
  static const auto* const library = new absl::StatusOr<CublasLt>(Load());
  return *library;
}

// cuBLASLt's matrices are column-major; read so, ours are their transposes, and c' = op(b)' op(a)'. So b is its first operand and a its
// second.
class CublasGemm final : public Gemm {
 public:
  CublasGemm(const CublasLt& library, Device& device, const GemmShape& shape) : l_(library), device_(device), s_(shape) {}
  ~CublasGemm() override {
    for (const cublasLtMatrixLayout_t layout : {a_, b_, c_}) {
      if (layout != nullptr) l_.layout_destroy(layout);
    }
    if (desc_ != nullptr) l_.desc_destroy(desc_);
  }

  absl::Status Prepare() {
    if (Empty()) return absl::OkStatus();
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(l_.desc_create(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product"));
    const cublasOperation_t first = s_.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, second = s_.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    FUSIONLLM_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSA, first));
    FUSIONLLM_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_TRANSB, second));
    FUSIONLLM_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE, Epilogue()));
    if (s_.bias || Sums()) {
      FUSIONLLM_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(Sums() ? CUDA_R_32F : TypeOf(s_.result))));
    }
    if (UsesAux()) FUSIONLLM_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, s_.ldc));
    // Of these the heuristic asks for no alignment: it takes that of the address, and null for one without (cublasLt.h,
    // CUBLASLT_MATMUL_DESC_BIAS_POINTER). What is there is not read.
    const auto* const somewhere = reinterpret_cast<const void*>(uintptr_t{kMinAlignment});
    if (s_.bias || Sums()) FUSIONLLM_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, somewhere));
    if (UsesAux()) FUSIONLLM_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, somewhere));
    FUSIONLLM_RETURN_IF_ERROR(Layout(s_.transpose_b ? s_.k : s_.n, s_.transpose_b ? s_.n : s_.k, s_.ldb, s_.stride_b, s_.factors, b_));
    FUSIONLLM_RETURN_IF_ERROR(Layout(s_.transpose_a ? s_.m : s_.k, s_.transpose_a ? s_.k : s_.m, s_.lda, s_.stride_a, s_.factors, a_));
    FUSIONLLM_RETURN_IF_ERROR(Layout(s_.n, s_.m, s_.ldc, s_.stride_c, s_.result, c_));
    return Choose();
  }

  size_t workspace_bytes() const override { return choice_.workspaceSize; }

  absl::Status Run(const GemmData& data, void* workspace) const override { return RunBy(choice_, data, workspace); }

 private:
  absl::Status RunBy(const cublasLtMatmulHeuristicResult_t& choice, const GemmData& data, void* workspace) const {
    if (Empty()) return absl::OkStatus();
    if (s_.bias) FUSIONLLM_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, data.bias));
    if (Sums()) FUSIONLLM_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, data.sums));
    if (UsesAux()) FUSIONLLM_RETURN_IF_ERROR(Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, data.aux));
    const float alpha = 1;
    return ToStatus(l_.matmul(l_.handle, desc_, &alpha, data.b, b_, data.a, a_, &data.beta, data.c, c_, data.c, c_, &choice.algo, workspace,
                              choice.workspaceSize, device_.stream()),
                    "a matrix product");
  }

  bool Sums() const { return s_.extra == GemmExtra::kSumsOfA || s_.extra == GemmExtra::kSumsOfB; }
  bool UsesAux() const { return s_.extra == GemmExtra::kGelu || s_.extra == GemmExtra::kGeluGrad; }
  cublasLtEpilogue_t Epilogue() const {
    switch (s_.extra) {
      case GemmExtra::kNone:
        return s_.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
      case GemmExtra::kGelu:
        return s_.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      case GemmExtra::kGeluGrad:
        return CUBLASLT_EPILOGUE_DGELU;
      case GemmExtra::kSumsOfA:
        return CUBLASLT_EPILOGUE_BGRADB;  // a is the library's second operand
      case GemmExtra::kSumsOfB:
        return CUBLASLT_EPILOGUE_BGRADA;
    }
    return CUBLASLT_EPILOGUE_DEFAULT;
  }

  bool Empty() const { return s_.m * s_.n * s_.batch == 0; }

  template <typename T>
  absl::Status Set(cublasLtMatmulDescAttributes_t attribute, const T& value) const {
    return ToStatus(l_.desc_set(desc_, attribute, &value, sizeof(value)), "describing a product");
  }

  absl::Status Layout(int64_t rows, int64_t columns, int64_t leading, int64_t stride, tensor::DType type,
                      cublasLtMatrixLayout_t& layout) const {
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(l_.layout_create(&layout, TypeOf(type), rows, columns, leading), "describing a matrix"));
    if (s_.batch == 1) return absl::OkStatus();
    const auto batch = static_cast<int32_t>(s_.batch);
    FUSIONLLM_RETURN_IF_ERROR(
        ToStatus(l_.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch)), "describing a matrix"));
    return ToStatus(l_.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)), "describing a matrix");
  }

  // The library's first few, in its own order.
  absl::StatusOr<std::vector<cublasLtMatmulHeuristicResult_t>> Algorithms(int most) const {
    cublasLtMatmulPreference_t preference = nullptr;
    FUSIONLLM_RETURN_IF_ERROR(ToStatus(l_.preference_create(&preference), "choosing an algorithm"));
    int found = 0;
    std::vector<cublasLtMatmulHeuristicResult_t> algorithms(static_cast<size_t>(most));
    cublasStatus_t status =
        l_.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kMaxWorkspaceBytes, sizeof(kMaxWorkspaceBytes));
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = l_.preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &kReductions, sizeof(kReductions));
    }
    for (const cublasLtMatmulPreferenceAttributes_t matrix :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      if (status == CUBLAS_STATUS_SUCCESS) status = l_.preference_set(preference, matrix, &kMinAlignment, sizeof(kMinAlignment));
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = l_.heuristic(l_.handle, desc_, b_, a_, c_, c_, preference, most, algorithms.data(), &found);
    }
    l_.preference_destroy(preference);
    algorithms.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(found) : 0);
    std::erase_if(algorithms, [](const cublasLtMatmulHeuristicResult_t& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
    if (algorithms.empty()) {
      return absl::UnimplementedError(
          absl::StrFormat("cuBLASLt knows no way to multiply [%d, %d] by [%d, %d] in %s, %d times (it answers %d)", s_.m, s_.k, s_.k, s_.n,
                          tensor::Name(s_.factors), s_.batch, static_cast<int>(status)));
    }
    return algorithms;
  }

  absl::StatusOr<cublasLtMatmulHeuristicResult_t> Fastest(const std::vector<cublasLtMatmulHeuristicResult_t>& algorithms) const {
    size_t workspace_bytes = 0;
    for (const cublasLtMatmulHeuristicResult_t& algorithm : algorithms)
      workspace_bytes = std::max(workspace_bytes, algorithm.workspaceSize);
    const auto elements = [&](int64_t rows, int64_t leading, int64_t stride) { return (s_.batch - 1) * stride + rows * leading; };
    const auto take = [&](int64_t count, tensor::DType type) {
      return AllocateZeroed(device_, static_cast<size_t>(count) * tensor::SizeOf(type));
    };
    FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock a, take(elements(s_.transpose_a ? s_.k : s_.m, s_.lda, s_.stride_a), s_.factors));
    FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock b, take(elements(s_.transpose_b ? s_.n : s_.k, s_.ldb, s_.stride_b), s_.factors));
    FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock c, take(elements(s_.m, s_.ldc, s_.stride_c), s_.result));
    FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock aux, take(UsesAux() ? elements(s_.m, s_.ldc, s_.stride_c) : 0, s_.result));
    FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock beside, take(std::max(s_.m, s_.n), tensor::DType::kF32));
    FUSIONLLM_ASSIGN_OR_RETURN(const tensor::MemoryBlock workspace, device_.memory().Allocate(workspace_bytes));
    const GemmData data{.a = a.data(),
                        .b = b.data(),
                        .c = c.data(),
                        .bias = beside.data(),
                        .aux = aux.data(),
                        .sums = reinterpret_cast<float*>(beside.data())};
    FUSIONLLM_ASSIGN_OR_RETURN(const size_t fastest, FastestOf(device_, algorithms.size(),
                                                               [&](size_t i) { return RunBy(algorithms[i], data, workspace.data()); }));
    return algorithms[fastest];
  }

  absl::StatusOr<cublasLtMatmulHeuristicResult_t> Chosen() const {
    const bool measure = device_.algorithm_choice() == AlgorithmChoice::kMeasured;
    FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<cublasLtMatmulHeuristicResult_t> algorithms, Algorithms(measure ? kMaxMeasured : 1));
    if (algorithms.size() == 1) return algorithms[0];
    absl::StatusOr<cublasLtMatmulHeuristicResult_t> fastest = Fastest(algorithms);
    if (fastest.ok()) return fastest;
    // For lack of memory, mostly: no reason not to train.
    base::Log(base::LogLevel::kWarning,
              absl::StrFormat("measuring products of [%d, %d] and [%d, %d] failed; taking the first way that cuBLASLt names: %s", s_.m,
                              s_.k, s_.k, s_.n, fastest.status().message()));
    return algorithms[0];
  }

  // Once in the process for a shape, a card and a way of choosing, for all callers. That there is no way is kept as well, and no other
  // error.
  absl::Status Choose() {
    using Key = std::tuple<int, AlgorithmChoice, GemmShape>;
    static base::Mutex mutex;
    static auto* const chosen ABSL_PT_GUARDED_BY(mutex) = new std::map<Key, absl::StatusOr<cublasLtMatmulHeuristicResult_t>>;
    const base::MutexLock lock(mutex);
    const Key key(device_.info().index, device_.algorithm_choice(), s_);
    const auto found = chosen->find(key);
    const absl::StatusOr<cublasLtMatmulHeuristicResult_t> choice = found != chosen->end() ? found->second : Chosen();
    if (choice.ok() || absl::IsUnimplemented(choice.status())) chosen->emplace(key, choice);
    if (!choice.ok()) return choice.status();
    choice_ = *choice;
    return absl::OkStatus();
  }

  const CublasLt& l_;
  Device& device_;
  const GemmShape s_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  cublasLtMatmulHeuristicResult_t choice_ = {};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Gemm>> PrepareGemm(Device& device, const GemmShape& shape) {
  FUSIONLLM_RETURN_IF_ERROR(CheckTypes(shape));
  if (!Library().ok()) return Library().status();
  auto gemm = std::make_unique<CublasGemm>(*Library(), device, shape);
  FUSIONLLM_RETURN_IF_ERROR(gemm->Prepare());
  return gemm;
}

}  // namespace fusionllm::kernels::cuda
