// Replicas on NVIDIA GPUs of one site, each with a card of its own: NCCL, over NVLink, PCIe or the network, whichever it finds.
//
// Its calls go into the device's stream. Communicators are made so that none of NCCL's functions blocks: what is not done yet is asked for
// again and again, which an abort or the end of somebody's timeout ends; NCCL is then asked to let its kernels go (ncclCommAbort), so that
// who waits for the device (Device::Synchronize, copies to the host) goes on as well, with tensors of no worth.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/collective/communicator.h"
#include "lib/collective/rendezvous.h"
#include "lib/kernels/cuda/device.h"

namespace fusionllm::collective {

struct NcclOptions {
  Timeouts timeout;
  std::vector<std::string> libraries = {"libnccl.so.2"};  // NCCL, by the first of these names that there is
  std::string card;                                       // for tests, which have but one: another name than its own
};

// Whether there is a library to load. Errors: NcclLibrary::Load's.
absl::Status FindNccl(const NcclOptions& options);
// What tells the device's card from all others, of other machines, too.
std::string CardOf(kernels::cuda::Device& device, const NcclOptions& options);

// Blocks until all ranks have called this. On the thread that uses the device, which must outlive the communicator, as must what is in
// its stream when it is destroyed. Errors: NcclLibrary::Load's; ExchangePeerInfo's, which for two replicas on one card names both;
// Unavailable when a rank does not come; Internal and Unavailable in NCCL's words.
absl::StatusOr<std::unique_ptr<Communicator>> JoinNccl(Rendezvous& rendezvous, const GroupRank& group_rank, kernels::cuda::Device& device,
                                                       const NcclOptions& options = {}, std::stop_token stop = {});

}  // namespace fusionllm::collective
