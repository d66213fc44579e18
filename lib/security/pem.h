// PEM text to OpenSSL objects and back. `what` opens every error message: a path, or what the text is.
// Input may come from anywhere: it is at most kMaxPemBytes long, and no password is ever asked for. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/security/openssl_handles.h"

namespace fusionllm::security {

inline constexpr size_t kMaxPemBytes = 256 << 10;
inline constexpr size_t kMaxChainCertificates = 16;

// All certificates of the text in order, at least one. InvalidArgument: empty, not PEM, damaged, too many.
absl::StatusOr<std::vector<CertificatePtr>> ParseCertificates(absl::string_view pem, absl::string_view what);

// The first private key of the text. InvalidArgument: empty, not PEM, damaged, protected by a password.
absl::StatusOr<KeyPtr> ParsePrivateKey(absl::string_view pem, absl::string_view what);

// A public key alone (SubjectPublicKeyInfo). InvalidArgument: empty, not PEM, damaged.
absl::StatusOr<KeyPtr> ParsePublicKey(absl::string_view pem, absl::string_view what);

bool IsP256(EVP_PKEY& key);

absl::StatusOr<std::string> CertificateToPem(X509& certificate);
absl::StatusOr<std::string> PublicKeyToPem(EVP_PKEY& key);
absl::StatusOr<std::string> PrivateKeyToPem(EVP_PKEY& key);  // PKCS #8, in clear

// Of a certificate's dates; the infinite past when that is not known.
absl::Time ToTime(const ASN1_TIME& time);

// The DNS names for which the certificate was issued (subjectAltName), in its order.
std::vector<std::string> DnsNames(X509& certificate);

// OK if `key` is the private half of the certificate's key, checked with the private value itself.
absl::Status CheckKeyPair(X509& certificate, EVP_PKEY& key, absl::string_view certificate_what, absl::string_view key_what);

}  // namespace fusionllm::security
