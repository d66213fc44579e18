#include "lib/security/credential_files.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lib/base/certificate_clock.h"
#include "lib/base/status_macros.h"
#include "lib/security/pem.h"
#include "lib/security/private_file.h"

namespace fusionllm::security {
namespace {

// Where the texts are, or what to call them when they are in no folder.
struct Paths {
  Paths(absl::string_view folder, absl::string_view name) {
    const std::string prefix = folder.empty() ? "" : absl::StrCat(folder, "/");
    const std::string stem = name.empty() ? "certificate" : std::string(name);
    ca = prefix + "ca.pem";
    certificate = absl::StrCat(prefix, stem, ".pem");
    key = absl::StrCat(prefix, stem, ".key");
  }
  std::string ca;
  std::string certificate;
  std::string key;
};

// The first few of the names in a certificate, which anybody may have written.
std::string Quoted(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(names.size(), 4); ++i) {
    absl::StrAppend(&text, i == 0 ? "'" : ", '", absl::CHexEscape(names[i].substr(0, 64)), "'");
  }
  return text;
}

std::string Moment(const ASN1_TIME& time) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || ASN1_TIME_print_ex(bio.get(), &time, ASN1_DTFLGS_ISO8601) != 1) return "an unreadable time";
  const char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

// The certificate that the check stumbled on is our own at depth 0, an issuer above.
absl::Status Explain(X509_STORE_CTX& context, const std::string& path, const std::string& ca_path, absl::Time now) {
  const int error = X509_STORE_CTX_get_error(&context);
  const bool own = X509_STORE_CTX_get_error_depth(&context) == 0;
  const std::string where = own ? absl::StrCat("the certificate in ", path) : absl::StrCat("an issuer's certificate in ", ca_path);
  const X509* found = X509_STORE_CTX_get_current_cert(&context);
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return absl::FailedPreconditionError(absl::StrCat(where, " expired at ", Moment(*X509_get0_notAfter(found)), "; ",
                                                        base::ClockReading(now), ": it is out of date, or the clock is ahead"));
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return absl::FailedPreconditionError(absl::StrCat(where, " is not valid before ", Moment(*X509_get0_notBefore(found)), "; ",
                                                        base::ClockReading(now), ": it is behind"));
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
      return absl::InvalidArgumentError(
          absl::StrCat("the certificate in ", path, " was not issued by the CA in ", ca_path, ": it is of another job, or damaged"));
    default:
      return absl::InvalidArgumentError(absl::StrCat(where, " is not usable: ", X509_verify_cert_error_string(error)));
  }
}

// `chain` begins with our own certificate; what follows may help to reach an issuer, but is not trusted itself.
absl::Status CheckChain(std::vector<CertificatePtr>& chain, const std::string& path, std::vector<CertificatePtr>& issuers,
                        const std::string& ca_path, absl::Time now) {
  const StorePtr store(X509_STORE_new());
  const StoreContextPtr context(X509_STORE_CTX_new());
  STACK_OF(X509)* helpers = sk_X509_new_null();
  bool ready = store != nullptr && context != nullptr && helpers != nullptr;
  for (const CertificatePtr& issuer : issuers) ready = ready && X509_STORE_add_cert(store.get(), issuer.get()) == 1;
  for (size_t i = 1; i < chain.size(); ++i) ready = ready && sk_X509_push(helpers, chain[i].get()) > 0;
  ready = ready && X509_STORE_CTX_init(context.get(), store.get(), chain.front().get(), helpers) == 1;
  absl::Status status;
  if (!ready) {
    status = absl::InternalError(absl::StrCat("cannot prepare to check ", path, ": ", TakeOpenSslError()));
  } else {
    X509_STORE_CTX_set_time(context.get(), 0, absl::ToTimeT(now));
    // The CA's own signature proves nothing about trust, but finds a damaged ca.pem here rather than in a handshake.
    X509_STORE_CTX_set_flags(context.get(), X509_V_FLAG_CHECK_SS_SIGNATURE);
    X509_STORE_CTX_set_purpose(context.get(), X509_PURPOSE_SSL_CLIENT);
    if (X509_verify_cert(context.get()) != 1) status = Explain(*context, path, ca_path, now);
  }
  sk_X509_free(helpers);  // the stack only; its certificates are the caller's
  ERR_clear_error();
  return status;
}

}  // namespace

absl::StatusOr<PemCredentials> IssueCredentials(const CertificateAuthority& authority, absl::string_view name,
                                                const IssueOptions& options) {
  FUSIONLLM_ASSIGN_OR_RETURN(IssuedCertificate issued, authority.Issue(name, options));
  return PemCredentials{.ca_pem = authority.certificate_pem(),
                        .certificate_pem = std::move(issued.certificate_pem),
                        .private_key_pem = std::move(issued.private_key_pem)};
}

absl::Status WriteCredentials(const std::string& folder, absl::string_view name, const PemCredentials& texts) {
  FUSIONLLM_RETURN_IF_ERROR(CheckProcessName(name));
  FUSIONLLM_RETURN_IF_ERROR(MakePrivateFolder(folder));
  const Paths paths(folder, name);
  FUSIONLLM_RETURN_IF_ERROR(WritePrivateFile(paths.ca, texts.ca_pem));
  FUSIONLLM_RETURN_IF_ERROR(WritePrivateFile(paths.key, texts.private_key_pem));
  return WritePrivateFile(paths.certificate, texts.certificate_pem);
}

absl::Status CheckDates(absl::string_view certificate_pem, absl::string_view whose, absl::Time now) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<CertificatePtr> certificates, ParseCertificates(certificate_pem, std::string(whose)));
  time_t moment = absl::ToTimeT(now);
  for (const CertificatePtr& certificate : certificates) {
    const ASN1_TIME* const begin = X509_get0_notBefore(certificate.get());
    const ASN1_TIME* const end = X509_get0_notAfter(certificate.get());
    if (X509_cmp_time(begin, &moment) > 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(base::ClockReading(now), ", and ", whose, " is not valid before ", Moment(*begin), ": the clock is behind"));
    }
    if (X509_cmp_time(end, &moment) < 0) {
      return absl::FailedPreconditionError(absl::StrCat(base::ClockReading(now), ", and ", whose, " expired at ", Moment(*end),
                                                        ": it is out of date, or the clock is ahead"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCredentials(const PemCredentials& texts, absl::string_view name, absl::Time now, absl::string_view folder) {
  const Paths paths(folder, name);
  FUSIONLLM_ASSIGN_OR_RETURN(std::vector<CertificatePtr> issuers, ParseCertificates(texts.ca_pem, paths.ca));
  FUSIONLLM_ASSIGN_OR_RETURN(std::vector<CertificatePtr> chain, ParseCertificates(texts.certificate_pem, paths.certificate));
  FUSIONLLM_ASSIGN_OR_RETURN(const KeyPtr key, ParsePrivateKey(texts.private_key_pem, paths.key));
  FUSIONLLM_RETURN_IF_ERROR(CheckKeyPair(*chain.front(), *key, paths.certificate, paths.key));
  const std::vector<std::string> names = DnsNames(*chain.front());
  if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
    return absl::InvalidArgumentError(absl::StrCat("the certificate in ", paths.certificate, " was issued to ",
                                                   names.empty() ? "nobody" : Quoted(names), ", not to '", name, "'"));
  }
  return CheckChain(chain, paths.certificate, issuers, paths.ca, now);
}

absl::StatusOr<PemCredentials> ReadCredentials(const std::string& folder, absl::string_view name, absl::Time now) {
  FUSIONLLM_RETURN_IF_ERROR(CheckProcessName(name));
  const Paths paths(folder, name);
  PemCredentials texts;
  FUSIONLLM_ASSIGN_OR_RETURN(texts.ca_pem, ReadSmallFile(paths.ca, kMaxPemBytes));
  FUSIONLLM_ASSIGN_OR_RETURN(texts.certificate_pem, ReadSmallFile(paths.certificate, kMaxPemBytes));
  FUSIONLLM_ASSIGN_OR_RETURN(texts.private_key_pem, ReadSmallFile(paths.key, kMaxPemBytes));
  FUSIONLLM_RETURN_IF_ERROR(CheckCredentials(texts, name, now, folder));
  return texts;
}

}  // namespace fusionllm::security
