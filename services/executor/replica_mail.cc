#include "services/executor/replica_mail.h"

#include <limits>
#include <utility>

#include "absl/strings/str_format.h"

namespace fusionllm::services {

// An inbox holds what all replicas send: the sender is part of the name.
runtime::MessageKey ReplicaMail::KeyOf(int from_rank, const collective::Letter& letter) const {
  return {
      .step = letter.call, .kind = runtime::MessageKind::kReplica, .micro_batch = letter.round, .id = letter.part * replicas_ + from_rank};
}

absl::Status ReplicaMail::Send(int to_rank, const collective::Letter& letter, std::vector<std::byte> bytes) {
  if (letter.part < 0 || letter.part >= std::numeric_limits<int32_t>::max() / replicas_) {
    return absl::InvalidArgumentError(absl::StrFormat("letter %d among %d replicas has no number", letter.part, replicas_));
  }
  return port_.Send(first_place_ + to_rank, KeyOf(replica_, letter), std::move(bytes));
}

absl::StatusOr<std::vector<std::byte>> ReplicaMail::Take(int from_rank, const collective::Letter& letter, absl::Time deadline) {
  return inbox_.Take(KeyOf(from_rank, letter), deadline);
}

void ReplicaMail::Cancel(absl::Status why) { inbox_.Cancel(std::move(why)); }

}  // namespace fusionllm::services
