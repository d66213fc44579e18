// Members in different processes that can write to each other meet by chunks, before they have a communicator.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/collective/channel.h"
#include "lib/collective/rendezvous.h"

namespace fusionllm::collective {

// Of one group in one epoch, whose channel it uses: members of others cannot be met by mistake. Every member makes the same meetings in the
// same order. Not thread-safe.
class ChannelRendezvous final : public Rendezvous {
 public:
  // Members whose meetings may part ways (where one fails before another) go on in another `series`.
  explicit ChannelRendezvous(PointToPointChannel& channel, int series = 0) : channel_(channel), series_(series) {}
  // Errors: the channel's; Unavailable, naming who is missing, after `timeout`; Cancelled when `stop` says so. Members that count
  // themselves differently are found out by Meet.
  absl::StatusOr<std::vector<std::string>> Exchange(const Membership& member, std::string bytes, absl::Duration timeout,
                                                    std::stop_token stop) override;

 private:
  PointToPointChannel& channel_;
  const int series_;
  int64_t meetings_ = 0;
};

}  // namespace fusionllm::collective
