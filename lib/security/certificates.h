// An authority and its certificates as plain pairs of texts, for those that keep neither files nor a CertificateAuthority.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::security {

struct CertificateAndKey {
  std::string certificate_pem;
  std::string key_pem;  // secret
};

// As CertificateAuthority::Create and Issue with their default options. Thread-safe: no state.
absl::StatusOr<CertificateAndKey> MakeAuthority(absl::string_view job);
absl::StatusOr<CertificateAndKey> IssueCertificate(const CertificateAndKey& authority, absl::string_view name);

}  // namespace fusionllm::security
