// The joining side of a run that listens: exchanges a token for credentials.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/security/credential_files.h"

namespace fusionllm::cli {

struct Enrolled {
  std::string name;  // as the broker made it unique
  security::CredentialTexts credentials;
};

// Asks the broker at `address` ("host:port") for credentials; waits for it to come up, at most `patience_s`. It must show a certificate of
// the CA in the token. Errors: InvalidArgument: token or address; Unavailable: nobody answers; others: what the broker says.
absl::StatusOr<Enrolled> Enroll(const std::string& address, const std::string& token, const std::string& wanted_name, double patience_s);

// The address of this machine from which the host of `address` is reached: where others of that network reach this machine.
absl::StatusOr<std::string> LocalAddressTowards(const std::string& address);

}  // namespace fusionllm::cli
