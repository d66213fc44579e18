#include "lib/collective/nccl/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/collective/nccl/nccl_library.h"

namespace fusionllm::collective {
namespace {

using kernels::cuda::Device;
using tensor::DType;
using tensor::TensorType;
using tensor::TensorView;

// Of asking again: short beside a sum of gradients, and then longer, so that who waits for minutes does not burn a core.
constexpr std::chrono::microseconds kMinPollInterval(20), kMaxPollInterval(1000);
// A group that is done ends at once; one whose ranks are gone is aborted after this.
constexpr absl::Duration kFinalizeTimeout = absl::Seconds(5);

ncclDataType_t TypeOf(DType type) {
  switch (type) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kF16:
      return ncclFloat16;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kI32:
      return ncclInt32;
    case DType::kI64:
      return ncclInt64;
    case DType::kU8:
      return ncclUint8;
  }
  return ncclUint8;
}

size_t Elements(const TensorType& type) { return static_cast<size_t>(type.elements()); }

// Tells machines apart whose cards have the same place on their buses, and is the same in all containers of one.
std::string Machine() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(GroupRank group_rank, const NcclLibrary& library, Device& device, absl::Duration timeout)
      : Communicator(std::move(group_rank)), l_(library), device_(device), timeout_(timeout) {}

  ~NcclCommunicator() override {
    base::UniqueLock lock(mutex_);
    if (comm_ == nullptr) return;
    const ncclResult_t result = l_.finalize(comm_);
    if ((result == ncclSuccess || result == ncclInProgress) && Settle(lock, "ending", kFinalizeTimeout).ok()) {
      l_.destroy(std::exchange(comm_, nullptr));
    }
    if (comm_ != nullptr) l_.abort(comm_);
  }

  absl::Status Begin(const ncclUniqueId& id, absl::Duration timeout, const std::stop_token& stop) {
    const std::stop_callback on_stop(stop, [this] { Abort(absl::CancelledError("stopped while waiting for the others")); });
    base::UniqueLock lock(mutex_);
    FUSIONLLM_RETURN_IF_ERROR(ended_);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t result = l_.init(&comm_, size(), id, rank(), &config);
    if (result != ncclSuccess && result != ncclInProgress) return End(l_.Error(Named("joining"), result, comm_));
    return Settle(lock, "joining", timeout);
  }

  tensor::Memory& memory() const override { return device_.memory(); }

  absl::Status AllReduce(std::span<const TensorView> tensors) override {
    FUSIONLLM_RETURN_IF_ERROR(CheckSums("AllReduce", tensors));
    return Together("AllReduce", tensors, [&](const TensorView& t, ncclComm_t comm) {
      return l_.all_reduce(t.data, t.data, Elements(t.type), TypeOf(t.type.dtype), ncclSum, comm, device_.stream());
    });
  }
  absl::Status ReduceScatter(std::span<const Exchange> exchanges) override {
    FUSIONLLM_RETURN_IF_ERROR(CheckReduceScatter(exchanges, size()));
    return Together("ReduceScatter", exchanges, [&](const Exchange& e, ncclComm_t comm) {
      return l_.reduce_scatter(e.from.data, e.to.data, Elements(e.to.type), TypeOf(e.to.type.dtype), ncclSum, comm, device_.stream());
    });
  }
  absl::Status AllGather(std::span<const Exchange> exchanges) override {
    FUSIONLLM_RETURN_IF_ERROR(CheckAllGather(exchanges, size()));
    return Together("AllGather", exchanges, [&](const Exchange& e, ncclComm_t comm) {
      return l_.all_gather(e.from.data, e.to.data, Elements(e.from.type), TypeOf(e.from.type.dtype), comm, device_.stream());
    });
  }
  absl::Status Broadcast(std::span<const TensorView> tensors, int root) override {
    FUSIONLLM_RETURN_IF_ERROR(CheckRoot(root, size()));
    return Together("Broadcast", tensors, [&](const TensorView& t, ncclComm_t comm) {
      return l_.broadcast(t.data, t.data, Elements(t.type), TypeOf(t.type.dtype), root, comm, device_.stream());
    });
  }

  absl::Status Wait() override {
    base::UniqueLock lock(mutex_);
    return Until(lock, "waiting for the device", timeout_, [this]() -> absl::StatusOr<bool> {
      const cudaError_t asked = cudaStreamQuery(device_.stream());
      if (asked == cudaSuccess) return true;
      cudaGetLastError();  // so that no later call takes it for its own
      if (asked == cudaErrorNotReady) return false;
      return kernels::cuda::ToStatus(asked, Named("waiting for the device"));
    });
  }

  void Abort(absl::Status why) override {
    const base::MutexLock lock(mutex_);
    const absl::Status reason = why.ok() ? absl::CancelledError("aborted") : std::move(why);
    End(absl::Status(reason.code(), absl::StrCat(group_rank().ToString(), ": ", reason.message()))).IgnoreError();
  }

 private:
  std::string Named(absl::string_view what) const { return absl::StrCat(group_rank().ToString(), ", ", what); }

  static const TensorType& TypeIn(const TensorView& tensor) { return tensor.type; }
  static const TensorType& TypeIn(const Exchange& exchange) { return exchange.from.type; }

  // One group call. NCCL starts it in a thread of its own, and takes no other before it has.
  template <typename Item, typename Call>
  absl::Status Together(absl::string_view name, std::span<const Item> items, const Call& call) {
    base::UniqueLock lock(mutex_);
    FUSIONLLM_RETURN_IF_ERROR(ended_);
    ncclResult_t result = l_.group_start();
    if (result != ncclSuccess) return End(l_.Error(Named(name), result, comm_));
    for (const Item& item : items) {
      if (TypeIn(item).elements() == 0) continue;
      result = call(item, comm_);
      if (result != ncclSuccess && result != ncclInProgress) break;
      result = ncclSuccess;
    }
    const ncclResult_t ended = l_.group_end();  // in any case: the group belongs to the thread
    if (result == ncclSuccess) result = ended;
    if (result != ncclSuccess && result != ncclInProgress) return End(l_.Error(Named(name), result, comm_));
    return Settle(lock, name, timeout_);
  }

  // Until NCCL has done what it does on the host.
  absl::Status Settle(std::unique_lock<std::mutex>& lock, absl::string_view what, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return Until(lock, what, timeout, [] { return true; });
  }

  // Until NCCL is ready and `done` too. Lets an abort in between two questions.
  template <typename Done>
  absl::Status Until(std::unique_lock<std::mutex>& lock, absl::string_view what, absl::Duration timeout, const Done& done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const absl::Time deadline = absl::Now() + timeout;
    std::chrono::microseconds pause = kMinPollInterval;
    while (true) {
      FUSIONLLM_RETURN_IF_ERROR(ended_);
      ncclResult_t state = ncclSuccess;
      const ncclResult_t asked = l_.async_error(comm_, &state);
      if (asked != ncclSuccess && asked != ncclInProgress) state = asked;
      if (state == ncclSuccess) {
        const absl::StatusOr<bool> is_done = done();
        if (!is_done.ok()) return End(is_done.status());
        if (*is_done) return absl::OkStatus();
      } else if (state != ncclInProgress) {
        return End(l_.Error(Named(what), state, comm_));
      }
      if (absl::Now() >= deadline) {
        return End(absl::UnavailableError(
            absl::StrFormat("%s: the other replicas did not come within %s", Named(what), absl::FormatDuration(timeout))));
      }
      changed_.wait_for(lock, pause);
      pause = std::min(2 * pause, kMaxPollInterval);
    }
  }

  // The first reason stays.
  absl::Status End(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (ended_.ok()) ended_ = std::move(why);
    if (comm_ != nullptr) l_.abort(std::exchange(comm_, nullptr));
    changed_.notify_all();
    return ended_;
  }

  const NcclLibrary l_;
  Device& device_;
  const absl::Duration timeout_;
  base::Mutex mutex_;  // held for all calls with comm_, none of which blocks
  std::condition_variable changed_;
  ncclComm_t comm_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status FindNccl(const NcclOptions& options) { return NcclLibrary::Load(options.libraries).status(); }

std::string CardOf(Device& device, const NcclOptions& options) {
  return absl::StrCat("card ", options.card.empty() ? device.info().pci_bus_id : options.card, " of machine ", Machine());
}

absl::StatusOr<std::unique_ptr<Communicator>> JoinNccl(Rendezvous& rendezvous, const GroupRank& group_rank, Device& device,
                                                       const NcclOptions& options, std::stop_token stop) {
  FUSIONLLM_RETURN_IF_ERROR(CheckGroupRank(group_rank));
  FUSIONLLM_ASSIGN_OR_RETURN(const NcclLibrary library, NcclLibrary::Load(options.libraries));
  FUSIONLLM_RETURN_IF_ERROR(
      kernels::cuda::ToStatus(cudaSetDevice(device.info().index), absl::StrCat("choosing cuda:", device.info().index)));
  ncclUniqueId id = {};
  PeerInfo own{.kind = "nccl", .device = CardOf(device, options)};
  if (group_rank.rank == 0) {
    if (const ncclResult_t result = library.get_unique_id(&id); result != ncclSuccess) {
      return library.Error(absl::StrCat(group_rank.ToString(), ", making the group's id"), result, nullptr);
    }
    own.secret.assign(id.internal, sizeof(id.internal));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<PeerInfo> all, ExchangePeerInfo(rendezvous, group_rank, own, options.timeout.to_join, stop));
  if (all.front().secret.size() != sizeof(id.internal)) {
    return absl::InvalidArgumentError(
        absl::StrCat(group_rank.ToString(), ": replica 0 sent an id of ", all.front().secret.size(), " bytes"));
  }
  std::memcpy(id.internal, all.front().secret.data(), sizeof(id.internal));
  auto communicator = std::make_unique<NcclCommunicator>(group_rank, library, device, options.timeout.per_call);
  FUSIONLLM_RETURN_IF_ERROR(communicator->Begin(id, options.timeout.to_join, stop));
  return communicator;
}

}  // namespace fusionllm::collective
