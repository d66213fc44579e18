// Chunks between the replicas of a stage, as messages of the plan epoch: they come and go with those of the stages, and end with them.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/collective/channel.h"
#include "lib/runtime/message.h"

namespace fusionllm::services {

// Thread-safe.
class ReplicaChannel final : public collective::PointToPointChannel {
 public:
  // `port`: replica r of the stage is at place first_place + r. Both references must outlive the channel.
  ReplicaChannel(runtime::MessagePort& port, runtime::Inbox& inbox, int first_place, int replica, int replicas)
      : port_(port), inbox_(inbox), first_place_(first_place), replica_(replica), replicas_(replicas) {}

  absl::Status Send(int to_rank, const collective::Chunk& chunk, std::vector<std::byte> bytes) override;
  absl::StatusOr<std::vector<std::byte>> Receive(int from_rank, const collective::Chunk& chunk, absl::Time deadline) override;
  // Cancels the inbox: what the stages wait for ends, too.
  void Cancel(absl::Status why) override;

 private:
  runtime::MessageKey KeyOf(int from_rank, const collective::Chunk& chunk) const;

  runtime::MessagePort& port_;
  runtime::Inbox& inbox_;
  const int first_place_, replica_, replicas_;
};

}  // namespace fusionllm::services
