// A certificate authority for one job, and the certificates of its services and executors.
//
// EC P-256 keys, SHA-256 signatures (OpenSSL 3). Names in certificates: the subject's common name and DNS names of the subject alternative
// name. Every certificate serves both ends of a connection, since executors listen and dial. Keys leave these functions only as PEM text:
// the caller hands them to a process or writes them with WritePrivateFile(). Thread-safe: no state.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::security {

struct CertificateAndKey {
  std::string certificate_pem;
  std::string key_pem;  // secret
};

inline constexpr std::chrono::hours kLifetimeMax{24 * 825};  // what common verifiers accept of a leaf

// A self-signed authority named after the job (1 to 64 bytes). It may sign leaves only (path length 0).
absl::StatusOr<CertificateAndKey> MakeAuthority(absl::string_view job, std::chrono::seconds lifetime = std::chrono::hours(24 * 30));

// A certificate for `name` (a DNS name of 1 to 64 bytes: letters, digits, '-', '.'), localhost and 127.0.0.1, signed by the authority and
// valid from a minute ago, for clocks that differ. Negative lifetimes make an expired certificate. Errors: INVALID_ARGUMENT: the name, the
// lifetime, or an authority that is no PEM pair.
absl::StatusOr<CertificateAndKey> IssueCertificate(const CertificateAndKey& authority, absl::string_view name,
                                                   std::chrono::seconds lifetime = std::chrono::hours(24 * 7));

struct CertificateInfo {
  std::string common_name;
  std::vector<std::string> dns_names;
  std::chrono::system_clock::time_point not_before, not_after;
};
absl::StatusOr<CertificateInfo> ReadCertificate(absl::string_view certificate_pem);

// Says in words why a peer would refuse this certificate: UNAUTHENTICATED: expired, not yet valid, signed by another authority, or not for
// `name` (empty: any name). To be called before a connection is tried, since a failed TLS handshake tells little.
absl::Status CheckCertificate(absl::string_view certificate_pem, absl::string_view authority_pem, absl::string_view name = "");
// INVALID_ARGUMENT when the key is not the certificate's.
absl::Status CheckKey(const CertificateAndKey& pair);

// Writes a file that only its owner can read (mode 0600): aside, synced, renamed.
absl::Status WritePrivateFile(const std::string& path, absl::string_view content);

}  // namespace fusionllm::security
