// Lets devices of other machines into a run: a join token in exchange for a name and a certificate of the job's CA.
//
// Thread-safe. Whoever has the token may enroll until the run ends, at most kMaxEnrolled times.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/security/certificate_authority.h"
#include "lib/security/join_token.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {

inline constexpr size_t kMaxEnrolled = 10'000;

class Enrollment {
 public:
  // Reads ca.pem, ca.key and token from `directory`. `taken`: names that nobody may get. Errors: NotFound, InvalidArgument naming the file.
  static absl::StatusOr<std::unique_ptr<Enrollment>> Load(const std::string& directory, const std::vector<std::string>& taken);

  // `peer`: gRPC's name of the caller's address ("ipv4:10.0.0.7:51234"); the certificate also holds for that host, where other executors
  // will dial it. A wanted name that is taken gets a number behind it. Errors: Unauthenticated: not this run's token; InvalidArgument: the
  // name; ResourceExhausted.
  absl::StatusOr<v1::EnrollResponse> Enroll(const v1::EnrollRequest& request, absl::string_view peer);

 private:
  Enrollment(security::CertificateAuthority authority, security::JoinSecret secret, std::set<std::string> taken);

  const security::CertificateAuthority authority_;
  const security::JoinSecret secret_;
  std::mutex mutex_;
  std::set<std::string> taken_;  // guarded by mutex_
  size_t enrolled_ = 0;          // guarded by mutex_
};

// The host of a gRPC peer name; empty when it is none of the network ("unix:...").
std::string HostOfPeer(absl::string_view peer);

}  // namespace fusionllm::services
