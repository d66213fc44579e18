// Ranks in different processes that can write to each other meet by chunks, before they have a communicator.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/collective/channel.h"
#include "lib/collective/rendezvous.h"

namespace fusionllm::collective {

// Of one group in one epoch, whose channel it uses: ranks of others cannot be met by mistake. Every rank makes the same meetings in the
// same order. Not thread-safe.
class ChannelRendezvous final : public Rendezvous {
 public:
  // Ranks whose meetings may part ways (where one fails before another) go on in another `series`.
  explicit ChannelRendezvous(PointToPointChannel& channel, int series = 0) : channel_(channel), series_(series) {}
  // Errors: the channel's; Unavailable, naming who is missing, after `timeout`; Cancelled when `stop` says so. Ranks that count
  // themselves differently are found out by ExchangePeerInfo.
  absl::StatusOr<std::vector<std::string>> Exchange(const GroupRank& group_rank, std::string bytes, absl::Duration timeout,
                                                    std::stop_token stop) override;

 private:
  PointToPointChannel& channel_;
  const int series_;
  int64_t meetings_ = 0;
};

}  // namespace fusionllm::collective
