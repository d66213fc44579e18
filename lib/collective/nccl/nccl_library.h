// NVIDIA's NCCL as it is loaded when a group is made. Nothing of it is needed to build, or to start without it.
// Internal to lib/collective/nccl.
#pragma once

#include <nccl.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::collective {

struct NcclLibrary {
  decltype(ncclGetUniqueId)* get_unique_id = nullptr;
  decltype(ncclCommInitRankConfig)* init = nullptr;
  decltype(ncclCommFinalize)* finalize = nullptr;
  decltype(ncclCommDestroy)* destroy = nullptr;
  decltype(ncclCommAbort)* abort = nullptr;
  decltype(ncclCommGetAsyncError)* async_error = nullptr;
  decltype(ncclGetErrorString)* error_string = nullptr;
  decltype(ncclGetLastError)* last_error = nullptr;
  decltype(ncclGroupStart)* group_start = nullptr;
  decltype(ncclGroupEnd)* group_end = nullptr;
  decltype(ncclAllReduce)* all_reduce = nullptr;
  decltype(ncclReduceScatter)* reduce_scatter = nullptr;
  decltype(ncclAllGather)* all_gather = nullptr;
  decltype(ncclBroadcast)* broadcast = nullptr;
  std::string version;  // "2.27.3"

  // The first of `names` that the system finds. Errors: FailedPrecondition, a sentence that says what to do, when there is none or an old
  // one.
  static absl::StatusOr<NcclLibrary> Load(const std::vector<std::string>& names);

  // `result`, neither success nor in progress, in NCCL's words: Unavailable when a peer, a link or the system let it down, else Internal.
  // `comm` may be null.
  absl::Status Error(absl::string_view what, ncclResult_t result, ncclComm_t comm) const;
};

}  // namespace fusionllm::collective
