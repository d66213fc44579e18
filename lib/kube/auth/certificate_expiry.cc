#include "lib/kube/auth/certificate_expiry.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <ctime>

#include "absl/cleanup/cleanup.h"

namespace fusionllm::kube {
namespace {

// It would ask at the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

}  // namespace

std::optional<absl::Time> CertificateExpiry(absl::string_view pem) {
  // What is left in the queue of errors the next TLS call of this thread would report as its own.
  const absl::Cleanup forget_errors = [] { ERR_clear_error(); };
  BIO* const text = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  if (text == nullptr) return std::nullopt;
  const absl::Cleanup free_text = [text] { BIO_free(text); };
  X509* const certificate = PEM_read_bio_X509(text, nullptr, NoPassword, nullptr);
  if (certificate == nullptr) return std::nullopt;
  const absl::Cleanup free_certificate = [certificate] { X509_free(certificate); };
  std::tm end = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1) return std::nullopt;
  return absl::FromTM(end, absl::UTCTimeZone());
}

}  // namespace fusionllm::kube
