#include "lib/security/join_token.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/security/pem.h"

namespace fusionllm::security {
namespace {

constexpr absl::string_view kPrefix = "fj1.";

absl::Status TooLong(size_t size) {
  return absl::InvalidArgumentError(
      absl::StrCat("this join token has ", size, " characters, more than the ", kMaxJoinTokenBytes, " that one may have"));
}

int SixBits(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '-') return 62;
  if (c == '_') return 63;
  return -1;
}

// Stricter than absl's: one text for each value, and an error that says where. `offset` is that of `text` in what the user typed.
absl::StatusOr<std::string> DecodeBase64Url(absl::string_view text, size_t offset) {
  std::string bytes;
  bytes.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int held = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int value = SixBits(text[i]);
    if (value < 0) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "character %d of the join token ('%s') does not belong into one: it is made of letters, digits, '-' and '_' after '%s'",
          offset + i + 1, absl::CHexEscape(text.substr(i, 1)), kPrefix));
    }
    bits = (bits << 6 | static_cast<uint32_t>(value)) & 0xffff;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes.push_back(static_cast<char>(bits >> held & 0xff));
  }
  if (held == 6 || (bits & ((1u << held) - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the join token is cut short or damaged near its end (character ", offset + text.size(), ")"));
  }
  return bytes;
}

// The size that the DER object at the start of `der` says it has, header included; nothing when that header is cut short or damaged.
std::optional<size_t> DeclaredSize(absl::string_view der) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(der[i]); };
  if (der.size() < 2 || at(0) != 0x30) return std::nullopt;
  if (at(1) < 0x80) return 2 + at(1);
  const size_t length_bytes = at(1) & 0x7f;
  if (length_bytes == 0 || length_bytes > 3 || der.size() < 2 + length_bytes) return std::nullopt;
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) length = length << 8 | at(2 + i);
  return 2 + length_bytes + length;
}

absl::StatusOr<CertificatePtr> ParseCa(absl::string_view der) {
  const std::optional<size_t> declared = DeclaredSize(der);
  if (declared.has_value() && *declared > der.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the join token is cut short: ", der.size(), " bytes of its certificate are there, ", *declared, " are expected"));
  }
  if (declared.has_value() && *declared < der.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the join token has something after its end: ", der.size() - *declared, " bytes follow its certificate"));
  }
  ERR_clear_error();
  const auto* next = reinterpret_cast<const unsigned char*>(der.data());
  CertificatePtr certificate(d2i_X509(nullptr, &next, static_cast<long>(der.size())));
  // Self-signed: its own key checks it, so a damaged character in it does not go unnoticed until a handshake fails.
  const bool whole = certificate != nullptr && X509_check_ca(certificate.get()) == 1 &&
                     X509_verify(certificate.get(), X509_get0_pubkey(certificate.get())) == 1;
  ERR_clear_error();
  if (!whole) return absl::InvalidArgumentError("the join token is damaged: it does not hold the certificate of a job's CA");
  return certificate;
}

}  // namespace

absl::StatusOr<JoinSecret> MakeJoinSecret() {
  JoinSecret secret{};
  if (RAND_bytes(secret.data(), secret.size()) == 1) return secret;
  return absl::UnavailableError(absl::StrCat("the system's random generator gives no secret: ", TakeOpenSslError()));
}

absl::StatusOr<std::string> MakeJoinToken(const JoinSecret& secret, absl::string_view ca_pem) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<CertificatePtr> certificates, ParseCertificates(ca_pem, "the CA's certificate"));
  if (certificates.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("a join token carries one CA certificate, not ", certificates.size()));
  }
  unsigned char* der = nullptr;
  const int der_size = i2d_X509(certificates.front().get(), &der);
  if (der_size <= 0) return absl::InternalError(absl::StrCat("cannot write the CA's certificate as DER: ", TakeOpenSslError()));
  std::string bytes(secret.begin(), secret.end());
  bytes.append(reinterpret_cast<const char*>(der), static_cast<size_t>(der_size));
  OPENSSL_free(der);
  std::string token = absl::StrCat(kPrefix, absl::WebSafeBase64Escape(bytes));
  if (token.size() > kMaxJoinTokenBytes) return TooLong(token.size());
  if (absl::StatusOr<JoinToken> back = ParseJoinToken(token); !back.ok()) {
    return absl::InvalidArgumentError("the certificate given for a join token is not the self-signed one of a CA");
  }
  return token;
}

absl::StatusOr<JoinToken> ParseJoinToken(absl::string_view text) {
  if (text.size() > kMaxJoinTokenBytes) return TooLong(text.size());
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  if (token.empty()) return absl::InvalidArgumentError("the join token is empty");
  if (!absl::StartsWith(token, kPrefix)) {
    const size_t dot = token.find('.');
    const absl::string_view version = dot == absl::string_view::npos ? "" : token.substr(0, dot);
    const bool other_version = version.size() > 2 && version.size() <= 8 && absl::StartsWith(version, "fj") &&
                               version.find_first_not_of("0123456789", 2) == absl::string_view::npos;
    if (other_version) {
      return absl::InvalidArgumentError(absl::StrCat("this join token has version ", version.substr(2),
                                                     ", this build reads version 1: use the same release on both machines"));
    }
    return absl::InvalidArgumentError(absl::StrCat("this is no join token: one begins with '", kPrefix, "'"));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string bytes, DecodeBase64Url(token.substr(kPrefix.size()), kPrefix.size()));
  if (bytes.size() <= kJoinSecretBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the join token is cut short: after ", token.size(), " characters it holds no certificate yet"));
  }
  JoinToken result;
  std::copy_n(bytes.begin(), kJoinSecretBytes, result.secret.begin());
  FUSIONLLM_ASSIGN_OR_RETURN(const CertificatePtr ca, ParseCa(absl::string_view(bytes).substr(kJoinSecretBytes)));
  FUSIONLLM_ASSIGN_OR_RETURN(result.ca_pem, CertificateToPem(*ca));
  return result;
}

bool SameSecret(const JoinSecret& a, const JoinSecret& b) { return CRYPTO_memcmp(a.data(), b.data(), kJoinSecretBytes) == 0; }

}  // namespace fusionllm::security
