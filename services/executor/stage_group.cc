#include "services/executor/stage_group.h"

#include <string>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/collective/channel_group.h"
#ifdef FUSIONLLM_CUDA
#include "lib/collective/nccl/nccl_communicator.h"
#include "lib/kernels/cuda/cuda.h"
#endif

namespace fusionllm::services {
namespace {

// The broker watches the progress of steps and ends an epoch that makes none: it knows how long they take, the ranks do not.
constexpr collective::Timeouts kTimeouts = {.to_join = absl::Minutes(2), .per_call = absl::Hours(24)};

void OfferNccl([[maybe_unused]] const collective::GroupRank& group_rank, kernels::Backend& backend, bool near,
               collective::ChannelGroupOptions& options) {
  if (backend.memory().on_host()) {
    options.why_not_fast = "it computes on a CPU";
    return;
  }
  if (!near) {
    options.why_not_fast = "not all replicas are in one site";
    return;
  }
#ifdef FUSIONLLM_CUDA
  kernels::cuda::Device& device = *kernels::cuda::DeviceOf(backend);
  const collective::NcclOptions nccl{.timeout = kTimeouts};
  if (const absl::Status loads = collective::FindNccl(nccl); !loads.ok()) {
    options.why_not_fast = std::string(loads.message());
    return;
  }
  options.fast = collective::FastTransport{.kind = "nccl",
                                           .device = collective::CardOf(device, nccl),
                                           .join = [group_rank, &device, nccl](collective::Rendezvous& rendezvous, std::stop_token stop) {
                                             return collective::JoinNccl(rendezvous, group_rank, device, nccl, std::move(stop));
                                           }};
#endif
}

}  // namespace

absl::StatusOr<std::unique_ptr<collective::Communicator>> JoinGroup(const collective::GroupRank& group_rank, kernels::Backend& backend,
                                                                    collective::PointToPointChannel& channel, const StageChain& chain,
                                                                    bool near, std::stop_token stop) {
  collective::ChannelGroupOptions options{
      .timeout = kTimeouts, .chain = chain.replicas, .chunk_bytes = static_cast<size_t>(chain.chunk_bytes)};
  OfferNccl(group_rank, backend, near, options);
  std::string account;
  FUSIONLLM_ASSIGN_OR_RETURN(auto communicator,
                             collective::JoinOverChannel(group_rank, backend.memory(), channel, options, std::move(stop), &account));
  base::Log(base::LogLevel::kInfo, account);
  return communicator;
}

}  // namespace fusionllm::services
