#include "lib/collective/nccl/nccl_library.h"

#include "absl/strings/str_cat.h"
#include "lib/base/shared_library.h"
#include "lib/base/status_macros.h"

namespace fusionllm::collective {
namespace {

// Communicators that do not block, and their configuration as declared/nccl.h has it.
constexpr int kOldest = 21800;

constexpr char kWhatToDo[] =
    ": install NCCL 2 (Debian: libnccl2; pip: nvidia-nccl-cu13) and put its folder into LD_LIBRARY_PATH, or run the job with "
    "spec.strategy.replicas 1";

std::string Spelled(int version) { return absl::StrCat(version / 10000, ".", version % 10000 / 100, ".", version % 100); }

}  // namespace

absl::StatusOr<NcclLibrary> NcclLibrary::Load(const std::vector<std::string>& names) {
  const absl::StatusOr<base::SharedLibrary> library = base::SharedLibrary::Open(names);
  if (!library.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("replicas on GPUs add their gradients by NCCL: ", library.status().message(), kWhatToDo));
  }
  NcclLibrary l;
  decltype(ncclGetVersion)* get_version = nullptr;
  FUSIONLLM_RETURN_IF_ERROR(library->Find("ncclGetVersion", get_version));
  int version = 0;
  if (get_version(&version) != ncclSuccess || version < kOldest) {
    return absl::FailedPreconditionError(absl::StrCat(library->name(), " is NCCL ", Spelled(version), ", and replicas on GPUs need ",
                                                      Spelled(kOldest), " or newer", kWhatToDo));
  }
  l.version = Spelled(version);
  FUSIONLLM_RETURN_IF_ERROR(library->Find("ncclGetUniqueId", l.get_unique_id));
  FUSIONLLM_RETURN_IF_ERROR(library->Find("ncclCommInitRankConfig", l.init));
  FUSIONLLM_RETURN_IF_ERROR(library->Find("ncclCommFinalize", l.finalize));
  FUSIONLLM_RETURN_IF_ERROR(library->Find("ncclCommDestroy", l.destroy));
  FUSIONLLM_RETURN_IF_ERROR(library->Find("ncclCommAbort", l.abort));
  FUSIONLLM_RETURN_IF_ERROR(library->Find("ncclCommGetAsyncError", l.async_error));
  FUSIONLLM_RETURN_IF_ERROR(library->Find("ncclGetErrorString", l.error_string));
  FUSIONLLM_RETURN_IF_ERROR(library->Find("ncclGetLastError", l.last_error));
  FUSIONLLM_RETURN_IF_ERROR(library->Find("ncclGroupStart", l.group_start));
  FUSIONLLM_RETURN_IF_ERROR(library->Find("ncclGroupEnd", l.group_end));
  FUSIONLLM_RETURN_IF_ERROR(library->Find("ncclAllReduce", l.all_reduce));
  FUSIONLLM_RETURN_IF_ERROR(library->Find("ncclReduceScatter", l.reduce_scatter));
  FUSIONLLM_RETURN_IF_ERROR(library->Find("ncclAllGather", l.all_gather));
  FUSIONLLM_RETURN_IF_ERROR(library->Find("ncclBroadcast", l.broadcast));
  return l;
}

absl::Status NcclLibrary::Error(absl::string_view what, ncclResult_t result, ncclComm_t comm) const {
  const char* last = last_error(comm);
  const std::string text = absl::StrCat(what, ": NCCL ", version, " answers '", error_string(result), "'",
                                        last == nullptr || *last == '\0' ? "" : absl::StrCat(": ", last));
  return result == ncclRemoteError || result == ncclSystemError ? absl::UnavailableError(text) : absl::InternalError(text);
}

}  // namespace fusionllm::collective
