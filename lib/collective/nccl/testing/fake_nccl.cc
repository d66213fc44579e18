#include "lib/collective/nccl/testing/fake_nccl.h"

#include <nccl.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "lib/base/mutex.h"
#include "lib/tensor/bf16.h"

namespace {

using Bytes = std::vector<std::byte>;

fusionllm::collective::testing::FakeNcclControls controls;

struct Operation {
  std::string text;
  enum class Kind { kSum, kSumOfShare, kGather, kBroadcast } kind;
  ncclDataType_t type;
  int root;
  Bytes brought;
  void* to;
  cudaStream_t stream;
};
using Group = std::vector<Operation>;

struct World {
  explicit World(int size) : called(static_cast<size_t>(size)) {}
  int joined = 0;
  std::vector<std::vector<Group>> called;  // by rank, in the order of calls
};

fusionllm::base::Mutex mutex;
std::map<std::string, std::shared_ptr<World>> worlds ABSL_GUARDED_BY(mutex);
int ids ABSL_GUARDED_BY(mutex) = 0;

size_t SizeOf(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
    case ncclInt32:
      return 4;
    case ncclInt64:
      return 8;
    case ncclBfloat16:
    case ncclFloat16:
      return 2;
    default:
      return 1;
  }
}

void Add(Bytes& sum, const Bytes& term, ncclDataType_t type) {
  for (size_t at = 0; at < sum.size(); at += SizeOf(type)) {
    if (type == ncclFloat32) {
      float a, b;
      std::memcpy(&a, &sum[at], 4);
      std::memcpy(&b, &term[at], 4);
      a += b;
      std::memcpy(&sum[at], &a, 4);
    } else {
      uint16_t a, b;
      std::memcpy(&a, &sum[at], 2);
      std::memcpy(&b, &term[at], 2);
      a = fusionllm::tensor::RoundToBf16(fusionllm::tensor::UpcastBf16(a) + fusionllm::tensor::UpcastBf16(b));
      std::memcpy(&sum[at], &a, 2);
    }
  }
}

void Record(const std::string& call) {
  const fusionllm::base::MutexLock lock(controls.mutex);
  controls.calls.push_back(call);
}

thread_local int depth = 0;
thread_local Group pending;
thread_local ncclComm_t pending_of = nullptr;

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world;
  int rank;
  size_t done = 0;

  size_t size() const { return world->called.size(); }
  bool AllHaveCalled(size_t group) const {
    for (const auto& called : world->called) {
      if (called.size() <= group) return false;
    }
    return true;
  }
  bool Fit(size_t group) const {
    for (const auto& called : world->called) {
      if (called[group].size() != world->called[0][group].size()) return false;
      for (size_t i = 0; i < called[group].size(); ++i) {
        if (called[group][i].text != world->called[0][group][i].text) return false;
      }
    }
    return true;
  }
  void CarryOut(size_t group) const {
    const Group& own = world->called[static_cast<size_t>(rank)][group];
    for (size_t i = 0; i < own.size(); ++i) {
      Bytes result;
      for (size_t r = 0; r < size(); ++r) {
        const Bytes& brought = world->called[r][group][i].brought;
        if (own[i].kind == Operation::Kind::kGather) {
          result.insert(result.end(), brought.begin(), brought.end());
        } else if (own[i].kind == Operation::Kind::kBroadcast) {
          if (static_cast<int>(r) == own[i].root) result = brought;
        } else if (r == 0) {
          result = brought;
        } else {
          Add(result, brought, own[i].type);
        }
      }
      size_t bytes = result.size(), begin = 0;
      if (own[i].kind == Operation::Kind::kSumOfShare) {
        bytes /= size();
        begin = static_cast<size_t>(rank) * bytes;
      }
      controls.copy(own[i].to, result.data() + begin, bytes, own[i].stream);
    }
  }
};

namespace {

ncclResult_t Call(const char* name, Operation::Kind kind, const void* from, void* to, size_t count, size_t brought, ncclDataType_t type,
                  int root, ncclComm_t comm, cudaStream_t stream) {
  const std::string text = std::string(name) + " " + std::to_string(type) + "[" + std::to_string(count) + "]";
  Record(text);
  if (const int result = controls.call_result; result != 0) return static_cast<ncclResult_t>(result);
  if (depth == 0) return ncclInvalidUsage;
  const fusionllm::base::MutexLock lock(mutex);
  Operation operation{
      .text = text, .kind = kind, .type = type, .root = root, .brought = Bytes(brought * SizeOf(type)), .to = to, .stream = stream};
  controls.copy(operation.brought.data(), from, operation.brought.size(), stream);
  pending.push_back(std::move(operation));
  pending_of = comm;
  return ncclSuccess;
}

}  // namespace

extern "C" {

fusionllm::collective::testing::FakeNcclControls* fakeNcclControls() { return &controls; }

ncclResult_t ncclGetVersion(int* version) {
  *version = controls.version;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const fusionllm::base::MutexLock lock(mutex);
  std::memset(id->internal, 0x7F, sizeof(id->internal));
  ++ids;
  std::memcpy(id->internal, &ids, sizeof(ids));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (const int result = controls.init_result; result != 0) return static_cast<ncclResult_t>(result);
  if (config->blocking != 0 || config->magic != 0xcafebeef || config->size < sizeof(size_t) * 5) return ncclInvalidArgument;
  const fusionllm::base::MutexLock lock(mutex);
  std::shared_ptr<World>& world = worlds[std::string(id.internal, sizeof(id.internal))];
  if (world == nullptr) world = std::make_shared<World>(ranks);
  ++world->joined;
  *comm = new ncclComm{.world = world, .rank = rank};
  ++controls.alive;
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const fusionllm::base::MutexLock lock(mutex);
  *error = static_cast<ncclResult_t>(controls.async_result.load());
  if (*error != ncclSuccess) return ncclSuccess;
  *error = ncclInProgress;
  if (comm->world->joined < static_cast<int>(comm->size())) return ncclSuccess;
  while (comm->done < comm->world->called[static_cast<size_t>(comm->rank)].size()) {
    if (!comm->AllHaveCalled(comm->done) || !comm->Fit(comm->done)) return ncclSuccess;
    comm->CarryOut(comm->done++);
  }
  *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) {
  Record("Finalize");
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  Record("Destroy");
  const fusionllm::base::MutexLock lock(mutex);
  --controls.alive;
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  Record("Abort");
  const fusionllm::base::MutexLock lock(mutex);
  --controls.alive;
  ++controls.aborted;
  delete comm;
  return ncclInProgress;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : result == ncclUnhandledCudaError ? "unhandled cuda error" : "an error";
}
const char* ncclGetLastError(ncclComm_t) { return "as the fake was told"; }
ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  Record("GroupEnd");
  if (--depth > 0 || pending_of == nullptr) return ncclSuccess;
  const fusionllm::base::MutexLock lock(mutex);
  pending_of->world->called[static_cast<size_t>(pending_of->rank)].push_back(std::exchange(pending, {}));
  pending_of = nullptr;
  return ncclInProgress;
}
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return op != ncclSum ? ncclInvalidArgument : Call("AllReduce", Operation::Kind::kSum, from, to, count, count, type, 0, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
  if (op != ncclSum) return ncclInvalidArgument;
  return Call("ReduceScatter", Operation::Kind::kSumOfShare, from, to, count, count * comm->size(), type, 0, comm, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream) {
  return Call("AllGather", Operation::Kind::kGather, from, to, count, count, type, 0, comm, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
  return Call("Broadcast", Operation::Kind::kBroadcast, from, to, count, count, type, root, comm, stream);
}

}  // extern "C"
