#include "lib/collective/channel_rendezvous.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "lib/base/status_macros.h"

namespace fusionllm::collective {
namespace {

// A stop that comes without the end of the channel is noticed so late.
constexpr absl::Duration kLook = absl::Milliseconds(100);

std::vector<std::byte> BytesOf(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ChannelRendezvous::Exchange(const GroupRank& group_rank, std::string bytes, absl::Duration timeout,
                                                                     std::stop_token stop) {
  FUSIONLLM_RETURN_IF_ERROR(CheckGroupRank(group_rank));
  const Chunk chunk{.call = -++meetings_, .round = series_};
  const absl::Time deadline = absl::Now() + timeout;
  for (int rank = 0; rank < group_rank.size; ++rank) {
    if (rank != group_rank.rank) FUSIONLLM_RETURN_IF_ERROR(channel_.Send(rank, chunk, BytesOf(bytes)));
  }
  std::vector<std::string> all(static_cast<size_t>(group_rank.size));
  all[static_cast<size_t>(group_rank.rank)] = std::move(bytes);
  for (int rank = 0; rank < group_rank.size; ++rank) {
    if (rank == group_rank.rank) continue;
    absl::StatusOr<std::vector<std::byte>> brought = absl::DeadlineExceededError("");
    while (absl::IsDeadlineExceeded(brought.status())) {
      if (stop.stop_requested())
        return absl::CancelledError(absl::StrCat(group_rank.ToString(), " was stopped while it waited for the others"));
      const absl::Time now = absl::Now();
      if (now >= deadline) {
        return absl::UnavailableError(
            absl::StrFormat("%s waited %s for replica %d to come", group_rank.ToString(), absl::FormatDuration(timeout), rank));
      }
      brought = channel_.Receive(rank, chunk, std::min(deadline, now + kLook));
    }
    FUSIONLLM_RETURN_IF_ERROR(brought.status());
    all[static_cast<size_t>(rank)].assign(reinterpret_cast<const char*>(brought->data()), brought->size());
  }
  return all;
}

}  // namespace fusionllm::collective
