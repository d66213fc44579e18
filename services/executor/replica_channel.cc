#include "services/executor/replica_channel.h"

#include <limits>
#include <utility>

#include "absl/strings/str_format.h"

namespace fusionllm::services {

// An inbox holds what all replicas send: the sender is part of the name.
runtime::MessageKey ReplicaChannel::KeyOf(int from_rank, const collective::Chunk& chunk) const {
  return {.step = chunk.call, .kind = runtime::MessageKind::kReplica, .micro_batch = chunk.round, .id = chunk.part * replicas_ + from_rank};
}

absl::Status ReplicaChannel::Send(int to_rank, const collective::Chunk& chunk, std::vector<std::byte> bytes) {
  if (chunk.part < 0 || chunk.part >= std::numeric_limits<int32_t>::max() / replicas_) {
    return absl::InvalidArgumentError(absl::StrFormat("chunk %d among %d replicas has no number", chunk.part, replicas_));
  }
  return port_.Send(first_place_ + to_rank, KeyOf(replica_, chunk), std::move(bytes));
}

absl::StatusOr<std::vector<std::byte>> ReplicaChannel::Receive(int from_rank, const collective::Chunk& chunk, absl::Time deadline) {
  return inbox_.Take(KeyOf(from_rank, chunk), deadline);
}

void ReplicaChannel::Cancel(absl::Status why) { inbox_.Cancel(std::move(why)); }

}  // namespace fusionllm::services
