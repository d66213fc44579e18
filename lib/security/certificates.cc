#include "lib/security/certificates.h"

#include <utility>

#include "lib/base/status_macros.h"
#include "lib/security/certificate_authority.h"

namespace fusionllm::security {

absl::StatusOr<CertificateAndKey> MakeAuthority(absl::string_view job) {
  FUSIONLLM_ASSIGN_OR_RETURN(const CertificateAuthority authority, CertificateAuthority::Create({.common_name = std::string(job)}));
  return CertificateAndKey{authority.certificate_pem(), authority.private_key_pem()};
}

absl::StatusOr<CertificateAndKey> IssueCertificate(const CertificateAndKey& authority, absl::string_view name) {
  FUSIONLLM_ASSIGN_OR_RETURN(const CertificateAuthority issuer,
                             CertificateAuthority::FromPem(authority.certificate_pem, authority.key_pem));
  FUSIONLLM_ASSIGN_OR_RETURN(IssuedCertificate issued, issuer.Issue(name));
  return CertificateAndKey{std::move(issued.certificate_pem), std::move(issued.private_key_pem)};
}

}  // namespace fusionllm::security
