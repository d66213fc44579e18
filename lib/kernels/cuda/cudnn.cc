#include "lib/kernels/cuda/cudnn.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/shared_library.h"

namespace fusionllm::kernels::cuda {
namespace {

static_assert(CUDNN_MAJOR == 9, "libcudnn.so.9 is loaded: other headers may describe other functions");

absl::StatusOr<CudnnLibrary> Load() {
  // cuDNN takes it for granted, and aborts the process where it is not there.
  FUSIONLLM_RETURN_IF_ERROR(base::SharedLibrary::Open({"libcublasLt.so.13", "libcublasLt.so"}).status());
  FUSIONLLM_ASSIGN_OR_RETURN(const base::SharedLibrary library, base::SharedLibrary::Open({"libcudnn.so.9"}));
  CudnnLibrary l;
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cudnnGetVersion", l.version));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cudnnGetLastErrorString", l.last_error));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cudnnCreate", l.create));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cudnnSetStream", l.set_stream));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cudnnBackendCreateDescriptor", l.descriptor_create));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cudnnBackendDestroyDescriptor", l.descriptor_destroy));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cudnnBackendSetAttribute", l.descriptor_set));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cudnnBackendGetAttribute", l.descriptor_get));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cudnnBackendFinalize", l.descriptor_finalize));
  FUSIONLLM_RETURN_IF_ERROR(library.Find("cudnnBackendExecute", l.execute));
  if (const size_t major = l.version() / 10000; major != CUDNN_MAJOR) {
    return absl::FailedPreconditionError(absl::StrFormat("%s is cuDNN %d, and this build needs %d", library.name(), major, CUDNN_MAJOR));
  }
  return l;
}

}  // namespace

const absl::StatusOr<CudnnLibrary>& LoadedCudnn() {
  static const auto* const library = new absl::StatusOr<CudnnLibrary>(Load());
  return *library;
}

absl::Status ToStatus(const CudnnLibrary& library, cudnnStatus_t status, absl::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  char words[512] = {};
  library.last_error(words, sizeof(words));
  const std::string text = absl::StrFormat("%s: cuDNN answers %d (%s)", what, static_cast<int>(status), words);
  switch (CUDNN_STATUS_CATEGORY(status)) {
    case CUDNN_STATUS_CATEGORY(CUDNN_STATUS_NOT_INITIALIZED):
      return absl::FailedPreconditionError(text);
    case CUDNN_STATUS_BAD_PARAM:
    case CUDNN_STATUS_NOT_SUPPORTED:
      return absl::UnimplementedError(text);
    default:
      return absl::InternalError(text);
  }
}

CudnnDescriptor::CudnnDescriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type)
    : library_(library), status_(ToStatus(library, library.descriptor_create(type, &descriptor_), "making a descriptor")) {}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) library_.descriptor_destroy(descriptor_);
}

CudnnDescriptor& CudnnDescriptor::SetValues(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                                            const void* values) {
  if (!status_.ok()) return *this;
  status_ = ToStatus(library_, library_.descriptor_set(descriptor_, name, type, count, values),
                     absl::StrCat("setting attribute ", static_cast<int>(name)));
  return *this;
}

absl::Status CudnnDescriptor::Finalize(absl::string_view what) {
  FUSIONLLM_RETURN_IF_ERROR(status_);
  return ToStatus(library_, library_.descriptor_finalize(descriptor_), what);
}

absl::StatusOr<int64_t> CudnnDescriptor::Count(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
  int64_t count = 0;
  FUSIONLLM_RETURN_IF_ERROR(ToStatus(library_, library_.descriptor_get(descriptor_, name, type, 0, &count, nullptr),
                                     absl::StrCat("counting attribute ", static_cast<int>(name))));
  return count;
}

absl::Status CudnnDescriptor::GetValues(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                                        void* values) const {
  if (count == 0) return absl::OkStatus();
  int64_t got = 0;
  return ToStatus(library_, library_.descriptor_get(descriptor_, name, type, count, &got, values),
                  absl::StrCat("asking for attribute ", static_cast<int>(name)));
}

absl::StatusOr<std::vector<CudnnDescriptor>> CudnnDescriptor::GetDescriptors(cudnnBackendAttributeName_t name,
                                                                             cudnnBackendDescriptorType_t type) const {
  FUSIONLLM_ASSIGN_OR_RETURN(const int64_t count, Count(name, CUDNN_TYPE_BACKEND_DESCRIPTOR));
  std::vector<CudnnDescriptor> descriptors;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    raw.push_back(descriptors.emplace_back(library_, type).get());
    FUSIONLLM_RETURN_IF_ERROR(descriptors.back().status_);
  }
  FUSIONLLM_RETURN_IF_ERROR(GetValues(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, raw.data()));
  return descriptors;
}

}  // namespace fusionllm::kernels::cuda
