// What one process needs for TLS, as files of a folder: NAME.pem (its certificate, then any intermediates), NAME.key and ca.pem.
// Blocks on the file system. Errors are sentences that name the file.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lib/security/certificate_authority.h"

namespace fusionllm::security {

struct PemCredentials {
  std::string ca_pem;  // the issuers to trust
  std::string certificate_pem;
  std::string private_key_pem;
};

// A new certificate of the authority for `name`, with what its holder trusts. Errors as CertificateAuthority::Issue.
absl::StatusOr<PemCredentials> IssueCredentials(const CertificateAuthority& authority, absl::string_view name,
                                                const IssueOptions& options = {});

// Makes the folder (mode 0700) if there is none; one that others may write to is refused. Files have mode 0600 and are replaced whole, the
// certificate last: who finds NAME.pem finds the rest. The texts are not examined. InvalidArgument: a bad name.
absl::Status WriteCredentials(const std::string& folder, absl::string_view name, const PemCredentials& texts);

// Whether a handshake with these texts can succeed: the key belongs to the certificate, the certificate was issued to `name` (empty: to
// anybody) by an issuer of ca_pem, for a server and client, and all are valid at `now`. A failed handshake itself says little. `folder`, if
// given, is named in errors. InvalidArgument: empty, too long, not PEM, damaged, or they do not fit together. FailedPrecondition: expired
// or not yet valid. Does not block.
absl::Status CheckCredentials(const PemCredentials& texts, absl::string_view name, absl::Time now = absl::Now(),
                              absl::string_view folder = "");

// Whether `now` is within the dates of a certificate in PEM; else FailedPrecondition that names the date and, in `whose` words, the
// certificate ("the run's certificate"): a handshake that fails for a wrong clock says nothing of it. InvalidArgument: not PEM, damaged.
absl::Status CheckDates(absl::string_view certificate_pem, absl::string_view whose, absl::Time now = absl::Now());

// Reads the three files and checks them as CheckCredentials. NotFound: a file is missing.
absl::StatusOr<PemCredentials> ReadCredentials(const std::string& folder, absl::string_view name, absl::Time now = absl::Now());

}  // namespace fusionllm::security
