// Members in different processes that can write to each other meet by letters, before they have a communicator.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/collective/mail.h"
#include "lib/collective/rendezvous.h"

namespace fusionllm::collective {

// Of one group in one epoch, whose mail it uses: members of others cannot be met by mistake. Every member makes the same meetings in the
// same order. Not thread-safe.
class MailRendezvous final : public Rendezvous {
 public:
  // Members whose meetings may part ways (where one fails before another) go on in another `series`.
  explicit MailRendezvous(Mail& mail, int series = 0) : mail_(mail), series_(series) {}
  // Errors: the mail's; Unavailable, naming who is missing, after `patience`; Cancelled when `stop` says so. Members that count themselves
  // differently are found out by Meet.
  absl::StatusOr<std::vector<std::string>> Exchange(const Membership& member, std::string bytes, absl::Duration patience,
                                                    std::stop_token stop) override;

 private:
  Mail& mail_;
  const int series_;
  int64_t meetings_ = 0;
};

}  // namespace fusionllm::collective
