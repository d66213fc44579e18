#include "lib/security/pem.h"

#include <openssl/pem.h>

#include <ctime>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace fusionllm::security {
namespace {

// Without a callback OpenSSL would ask for the password of an encrypted key at the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

// Errors that need no parser to find.
absl::Status CheckPemText(absl::string_view pem, absl::string_view what, absl::string_view wanted) {
  if (pem.empty()) return absl::InvalidArgumentError(absl::StrCat(what, " is empty"));
  if (pem.size() > kMaxPemBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", pem.size(), " bytes, more than the ", kMaxPemBytes, " that a PEM file may have"));
  }
  if (!absl::StrContains(pem, "-----BEGIN ")) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is not a PEM file: it has no line -----BEGIN ", wanted, "-----"));
  }
  return absl::OkStatus();
}

BioPtr ReadOnly(absl::string_view text) { return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

bool AtEndOfPem() {
  const unsigned long error = ERR_peek_last_error();
  return ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
}

absl::StatusOr<std::string> Contents(BIO& bio) {
  const char* data = nullptr;
  const long size = BIO_get_mem_data(&bio, &data);
  if (size <= 0) return absl::InternalError("OpenSSL wrote an empty PEM text");
  return std::string(data, static_cast<size_t>(size));
}

}  // namespace

absl::StatusOr<std::vector<CertificatePtr>> ParseCertificates(absl::string_view pem, absl::string_view what) {
  if (absl::Status status = CheckPemText(pem, what, "CERTIFICATE"); !status.ok()) return status;
  ERR_clear_error();
  const BioPtr bio = ReadOnly(pem);
  std::vector<CertificatePtr> certificates;
  while (CertificatePtr certificate{PEM_read_bio_X509(bio.get(), nullptr, NoPassword, nullptr)}) {
    if (certificates.size() == kMaxChainCertificates) {
      return absl::InvalidArgumentError(absl::StrCat(what, " has more than ", kMaxChainCertificates, " certificates"));
    }
    certificates.push_back(std::move(certificate));
  }
  const bool at_end = AtEndOfPem();
  const std::string error = TakeOpenSslError();
  if (!at_end) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": certificate ", certificates.size() + 1, " is damaged or cut short (", error, ")"));
  }
  if (certificates.empty()) return absl::InvalidArgumentError(absl::StrCat(what, " is a PEM file without a certificate"));
  return certificates;
}

absl::StatusOr<KeyPtr> ParsePrivateKey(absl::string_view pem, absl::string_view what) {
  if (absl::Status status = CheckPemText(pem, what, "PRIVATE KEY"); !status.ok()) return status;
  if (!absl::StrContains(pem, "PRIVATE KEY-----")) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is a PEM file without a private key"));
  }
  if (absl::StrContains(pem, "ENCRYPTED")) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is protected by a password; store the key without one"));
  }
  ERR_clear_error();
  const BioPtr bio = ReadOnly(pem);
  KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  const std::string error = TakeOpenSslError();
  if (key != nullptr) return key;
  return absl::InvalidArgumentError(absl::StrCat(what, ": the private key is damaged or cut short (", error, ")"));
}

absl::StatusOr<KeyPtr> ParsePublicKey(absl::string_view pem, absl::string_view what) {
  if (absl::Status status = CheckPemText(pem, what, "PUBLIC KEY"); !status.ok()) return status;
  ERR_clear_error();
  const BioPtr bio = ReadOnly(pem);
  KeyPtr key(PEM_read_bio_PUBKEY(bio.get(), nullptr, NoPassword, nullptr));
  const std::string error = TakeOpenSslError();
  if (key != nullptr) return key;
  return absl::InvalidArgumentError(absl::StrCat(what, " is damaged, cut short or no public key (", error, ")"));
}

bool IsP256(EVP_PKEY& key) {
  char group[32] = {};
  size_t length = 0;
  const bool named = EVP_PKEY_get_group_name(&key, group, sizeof group, &length) == 1;
  ERR_clear_error();
  return named && absl::string_view(group, length) == SN_X9_62_prime256v1;
}

absl::StatusOr<std::string> CertificateToPem(X509& certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || PEM_write_bio_X509(bio.get(), &certificate) != 1) {
    return absl::InternalError(absl::StrCat("cannot write a certificate as PEM: ", TakeOpenSslError()));
  }
  return Contents(*bio);
}

absl::StatusOr<std::string> PrivateKeyToPem(EVP_PKEY& key) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || PEM_write_bio_PKCS8PrivateKey(bio.get(), &key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return absl::InternalError(absl::StrCat("cannot write a private key as PEM: ", TakeOpenSslError()));
  }
  return Contents(*bio);
}

absl::StatusOr<std::string> PublicKeyToPem(EVP_PKEY& key) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || PEM_write_bio_PUBKEY(bio.get(), &key) != 1) {
    return absl::InternalError(absl::StrCat("cannot write a public key as PEM: ", TakeOpenSslError()));
  }
  return Contents(*bio);
}

absl::Time ToTime(const ASN1_TIME& time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(&time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

std::vector<std::string> DnsNames(X509& certificate) {
  std::vector<std::string> names;
  const GeneralNamesPtr all(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));  // null when there are none
  for (int i = 0; all != nullptr && i < sk_GENERAL_NAME_num(all.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(all.get(), i);
    if (name->type != GEN_DNS) continue;
    names.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)), ASN1_STRING_length(name->d.dNSName));
  }
  ERR_clear_error();
  return names;
}

absl::Status CheckKeyPair(X509& certificate, EVP_PKEY& key, absl::string_view certificate_what, absl::string_view key_what) {
  // The first comparison is of public halves only, and the key file carries its own copy of that: the second looks at the secret.
  const KeyContextPtr context(EVP_PKEY_CTX_new_from_pkey(nullptr, &key, nullptr));
  const bool same = X509_check_private_key(&certificate, &key) == 1;
  const bool whole = same && context != nullptr && EVP_PKEY_pairwise_check(context.get()) == 1;
  ERR_clear_error();
  if (!same) {
    return absl::InvalidArgumentError(
        absl::StrCat("the private key in ", key_what, " does not belong to the certificate in ", certificate_what));
  }
  if (!whole) return absl::InvalidArgumentError(absl::StrCat(key_what, ": the private key is damaged"));
  return absl::OkStatus();
}

}  // namespace fusionllm::security
