// As much of cuDNN's graph API as this back end uses: the library, loaded when it is first needed, and its descriptors, which are made,
// given attributes, and finalized (https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/cudnn-graph-library.html).
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/status_macros.h"

namespace fusionllm::kernels::cuda {

// Its functions; found once for the process.
struct CudnnLibrary {
  decltype(cudnnGetVersion)* version;
  decltype(cudnnGetLastErrorString)* last_error;
  decltype(cudnnCreate)* create;
  decltype(cudnnSetStream)* set_stream;
  decltype(cudnnBackendCreateDescriptor)* descriptor_create;
  decltype(cudnnBackendDestroyDescriptor)* descriptor_destroy;
  decltype(cudnnBackendSetAttribute)* descriptor_set;
  decltype(cudnnBackendGetAttribute)* descriptor_get;
  decltype(cudnnBackendFinalize)* descriptor_finalize;
  decltype(cudnnBackendExecute)* execute;
};

// Errors: FailedPrecondition, naming the library, where it or what it needs cannot be loaded, or is of another major version. No device is
// needed.
const absl::StatusOr<CudnnLibrary>& LoadedCudnn();

// OK, or what went wrong with `what`, in the library's words: Unimplemented for what it does not support, FailedPrecondition where it
// cannot work on this machine, else Internal.
absl::Status ToStatus(const CudnnLibrary& library, cudnnStatus_t status, absl::string_view what);

// What the library calls the type of such values.
constexpr cudnnBackendAttributeType_t CudnnTypeOf(const int64_t*) { return CUDNN_TYPE_INT64; }
constexpr cudnnBackendAttributeType_t CudnnTypeOf(const float*) { return CUDNN_TYPE_FLOAT; }
constexpr cudnnBackendAttributeType_t CudnnTypeOf(const char*) { return CUDNN_TYPE_CHAR; }
constexpr cudnnBackendAttributeType_t CudnnTypeOf(void* const*) { return CUDNN_TYPE_VOID_PTR; }
constexpr cudnnBackendAttributeType_t CudnnTypeOf(const cudnnHandle_t*) { return CUDNN_TYPE_HANDLE; }
constexpr cudnnBackendAttributeType_t CudnnTypeOf(const cudnnDataType_t*) { return CUDNN_TYPE_DATA_TYPE; }
constexpr cudnnBackendAttributeType_t CudnnTypeOf(const cudnnConvolutionMode_t*) { return CUDNN_TYPE_CONVOLUTION_MODE; }
constexpr cudnnBackendAttributeType_t CudnnTypeOf(const cudnnBackendHeurMode_t*) { return CUDNN_TYPE_HEUR_MODE; }
constexpr cudnnBackendAttributeType_t CudnnTypeOf(const cudnnBackendNumericalNote_t*) { return CUDNN_TYPE_NUMERICAL_NOTE; }
constexpr cudnnBackendAttributeType_t CudnnTypeOf(const cudnnBackendBehaviorNote_t*) { return CUDNN_TYPE_BEHAVIOR_NOTE; }

// One of the library's descriptors. Attributes are set in a row; the first that fails is reported by Finalize. `library` must outlive it,
// and so must the descriptors that it is given.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : library_(other.library_), descriptor_(std::exchange(other.descriptor_, nullptr)), status_(std::move(other.status_)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;

  template <typename T>
  CudnnDescriptor& Set(cudnnBackendAttributeName_t name, std::span<const T> values) {
    return SetValues(name, CudnnTypeOf(values.data()), static_cast<int64_t>(values.size()), values.data());
  }
  template <typename T>
  CudnnDescriptor& Set(cudnnBackendAttributeName_t name, std::initializer_list<T> values) {
    return Set(name, std::span<const T>(values.begin(), values.size()));
  }
  template <typename T>
  CudnnDescriptor& Set(cudnnBackendAttributeName_t name, const T& value) {
    return Set(name, std::span<const T>(&value, 1));
  }
  CudnnDescriptor& Set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    return SetValues(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
  }
  absl::Status Finalize(absl::string_view what);

  template <typename T>
  absl::StatusOr<std::vector<T>> Get(cudnnBackendAttributeName_t name) const {
    std::vector<T> values;
    FUSIONLLM_ASSIGN_OR_RETURN(const int64_t count, Count(name, CudnnTypeOf(values.data())));
    values.resize(static_cast<size_t>(count));
    FUSIONLLM_RETURN_IF_ERROR(GetValues(name, CudnnTypeOf(values.data()), count, values.data()));
    return values;
  }
  // Descriptors of `type` that are an attribute, as many as there are.
  absl::StatusOr<std::vector<CudnnDescriptor>> GetDescriptors(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) const;

  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  CudnnDescriptor& SetValues(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values);
  absl::StatusOr<int64_t> Count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const;
  absl::Status GetValues(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, void* values) const;

  const CudnnLibrary& library_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
  absl::Status status_;
};

}  // namespace fusionllm::kernels::cuda
