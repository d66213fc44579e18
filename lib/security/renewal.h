// Renewing the certificates of a run while it goes on.
//
// The holder of the authority signs the key that is there once more and replaces NAME.pem; the key stays, so that the two fit at every
// moment. Processes take the new one up by themselves (grpc/credentials.h). `fusionctl run` renews those of its folder, the broker those of
// executors that have joined and are there, the operator those in Secrets.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/security/certificate_authority.h"

namespace fusionllm::security {

// Whether less than a third of the first certificate's life is left at `now`, or nothing. InvalidArgument: not PEM, damaged.
absl::StatusOr<bool> NeedsRenewal(absl::string_view certificate_pem, absl::Time now);

// Whether two certificates, in PEM, are of one key, as one is and what renewed it; what is damaged is like no other. Of a text the first
// one counts.
bool HaveSameKey(absl::string_view certificate_pem, absl::string_view other_pem);

// Renews each NAME.pem of the folder that needs it and that has a NAME.key beside it. All are tried; answers the first error, which names
// the file. Blocks on the file system.
absl::Status RenewFolder(const CertificateAuthority& authority, const std::string& folder, absl::Time now);

// Calls `renew` on a thread of its own when it is made, and every `interval` from then on; what fails is logged as a warning, with
// `what` before it, and tried again at the next time. The destructor waits for a call under way.
class RenewalThread {
 public:
  static constexpr absl::Duration kCheckInterval = absl::Hours(1);

  RenewalThread(std::string what, std::function<absl::Status()> renew, absl::Duration interval = kCheckInterval);

 private:
  std::jthread thread_;
};

}  // namespace fusionllm::security
