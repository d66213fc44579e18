#include "lib/security/certificates.h"

#include <fcntl.h>
#include <openssl/rand.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/security/openssl_handles.h"

namespace fusionllm::security {
namespace {

constexpr size_t kNameBytesMax = 64;  // X.520's bound of a common name
constexpr size_t kPemBytesMax = 64u << 10;

absl::StatusOr<Certificate> ParseCertificate(absl::string_view pem, absl::string_view what) {
  if (pem.size() > kPemBytesMax) return absl::InvalidArgumentError(absl::StrCat(std::string(what), " is longer than 64 KiB"));
  const Bio bio = ReadOnlyBio(pem);
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate == nullptr) return absl::InvalidArgumentError(absl::StrCat(std::string(what), " is no PEM certificate"));
  return certificate;
}

absl::StatusOr<Key> ParseKey(absl::string_view pem, absl::string_view what) {
  if (pem.size() > kPemBytesMax) return absl::InvalidArgumentError(absl::StrCat(std::string(what), " is longer than 64 KiB"));
  const Bio bio = ReadOnlyBio(pem);
  // An encrypted key must not make OpenSSL ask the terminal for a password.
  Key key(PEM_read_bio_PrivateKey(
      bio.get(), nullptr, [](char*, int, int, void*) { return 0; }, nullptr));
  ERR_clear_error();
  if (key == nullptr) return absl::InvalidArgumentError(absl::StrCat(std::string(what), " is no unencrypted PEM key"));
  return key;
}

std::string Drain(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);  // NOLINT(runtime/int): OpenSSL's type
  return std::string(data, static_cast<size_t>(size));
}

absl::StatusOr<CertificateAndKey> ToPem(X509* certificate, EVP_PKEY* key) {
  const Bio certificate_bio(BIO_new(BIO_s_mem())), key_bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(certificate_bio.get(), certificate) != 1 ||
      PEM_write_bio_PrivateKey(key_bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return OpenSslError("write a certificate");
  }
  return CertificateAndKey{Drain(certificate_bio.get()), Drain(key_bio.get())};
}

absl::Status CheckName(absl::string_view name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) { return absl::ascii_isalnum(c) || c == '-' || c == '.'; });
  if (!name.empty() && name.size() <= kNameBytesMax && plain) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("'%s' cannot be a certificate's name: 1 to %d letters, digits, '-' and '.'",
                                                    absl::CHexEscape(std::string(name.substr(0, 80))), kNameBytesMax));
}

absl::Status AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  if (extension == nullptr || X509_add_ext(certificate, extension.get(), -1) != 1) return OpenSslError("add a certificate extension");
  return absl::OkStatus();
}

// All fields but extensions and signature.
absl::StatusOr<Certificate> Draft(absl::string_view name, EVP_PKEY* key, std::chrono::seconds lifetime) {
  FUSIONLLM_RETURN_IF_ERROR(CheckName(name));
  if (lifetime > kLifetimeMax || lifetime < -kLifetimeMax) {
    return absl::InvalidArgumentError(absl::StrFormat("a certificate cannot live %d s", lifetime.count()));
  }
  Certificate certificate(X509_new());
  unsigned char serial[16];
  if (certificate == nullptr || RAND_bytes(serial, sizeof(serial)) != 1) return OpenSslError("draw a serial number");
  serial[0] &= 0x7f;  // a positive number
  const std::unique_ptr<BIGNUM, FreeWith<BN_free>> number(BN_bin2bn(serial, sizeof(serial), nullptr));
  const std::time_t now = std::time(nullptr);
  const std::time_t not_after = now + lifetime.count();
  const std::time_t not_before = std::min(now, not_after) - 60;
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  const bool done = X509_set_version(certificate.get(), X509_VERSION_3) == 1 && number != nullptr &&
                    BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate.get())) != nullptr &&
                    ASN1_TIME_set(X509_getm_notBefore(certificate.get()), not_before) != nullptr &&
                    ASN1_TIME_set(X509_getm_notAfter(certificate.get()), not_after) != nullptr &&
                    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.data()),
                                               static_cast<int>(name.size()), -1, 0) == 1 &&
                    X509_set_pubkey(certificate.get(), key) == 1;
  if (!done) return OpenSslError("fill in a certificate");
  return certificate;
}

absl::StatusOr<std::chrono::system_clock::time_point> ToTime(const ASN1_TIME* time) {
  std::tm broken_down{};
  if (ASN1_TIME_to_tm(time, &broken_down) != 1) return absl::InvalidArgumentError("certificate has an unreadable date");
  return std::chrono::system_clock::from_time_t(timegm(&broken_down));
}

}  // namespace

absl::StatusOr<CertificateAndKey> MakeAuthority(absl::string_view job, std::chrono::seconds lifetime) {
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpenSslError("make a key");
  FUSIONLLM_ASSIGN_OR_RETURN(Certificate certificate, Draft(job, key.get(), lifetime));
  X509* const ca = certificate.get();
  if (X509_set_issuer_name(ca, X509_get_subject_name(ca)) != 1) return OpenSslError("name the issuer");
  FUSIONLLM_RETURN_IF_ERROR(AddExtension(ca, ca, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  FUSIONLLM_RETURN_IF_ERROR(AddExtension(ca, ca, NID_key_usage, "critical,keyCertSign,cRLSign"));
  FUSIONLLM_RETURN_IF_ERROR(AddExtension(ca, ca, NID_subject_key_identifier, "hash"));
  if (X509_sign(ca, key.get(), EVP_sha256()) == 0) return OpenSslError("sign the authority");
  return ToPem(ca, key.get());
}

absl::StatusOr<CertificateAndKey> IssueCertificate(const CertificateAndKey& authority, absl::string_view name,
                                                   std::chrono::seconds lifetime) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Certificate issuer, ParseCertificate(authority.certificate_pem, "the authority's certificate"));
  FUSIONLLM_ASSIGN_OR_RETURN(const Key issuer_key, ParseKey(authority.key_pem, "the authority's key"));
  if (X509_check_private_key(issuer.get(), issuer_key.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError("the authority's key is not that of its certificate");
  }
  const Key key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpenSslError("make a key");
  FUSIONLLM_ASSIGN_OR_RETURN(Certificate certificate, Draft(name, key.get(), lifetime));
  X509* const leaf = certificate.get();
  if (X509_set_issuer_name(leaf, X509_get_subject_name(issuer.get())) != 1) return OpenSslError("name the issuer");
  FUSIONLLM_RETURN_IF_ERROR(AddExtension(leaf, issuer.get(), NID_basic_constraints, "critical,CA:FALSE"));
  FUSIONLLM_RETURN_IF_ERROR(AddExtension(leaf, issuer.get(), NID_key_usage, "critical,digitalSignature"));
  FUSIONLLM_RETURN_IF_ERROR(AddExtension(leaf, issuer.get(), NID_ext_key_usage, "serverAuth,clientAuth"));
  FUSIONLLM_RETURN_IF_ERROR(AddExtension(leaf, issuer.get(), NID_subject_key_identifier, "hash"));
  FUSIONLLM_RETURN_IF_ERROR(AddExtension(leaf, issuer.get(), NID_authority_key_identifier, "keyid"));
  const std::string alternative = absl::StrCat("DNS:", std::string(name), ",DNS:localhost,IP:127.0.0.1");
  FUSIONLLM_RETURN_IF_ERROR(AddExtension(leaf, issuer.get(), NID_subject_alt_name, alternative));
  if (X509_sign(leaf, issuer_key.get(), EVP_sha256()) == 0) return OpenSslError("sign a certificate");
  return ToPem(leaf, key.get());
}

absl::StatusOr<CertificateInfo> ReadCertificate(absl::string_view certificate_pem) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Certificate certificate, ParseCertificate(certificate_pem, "certificate"));
  CertificateInfo info;
  char name[256] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, name, sizeof(name));
  info.common_name = name;
  FUSIONLLM_ASSIGN_OR_RETURN(info.not_before, ToTime(X509_get0_notBefore(certificate.get())));
  FUSIONLLM_ASSIGN_OR_RETURN(info.not_after, ToTime(X509_get0_notAfter(certificate.get())));
  const std::unique_ptr<GENERAL_NAMES, FreeWith<GENERAL_NAMES_free>> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* entry = sk_GENERAL_NAME_value(names.get(), i);
    if (entry->type != GEN_DNS) continue;
    info.dns_names.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(entry->d.dNSName)),
                                static_cast<size_t>(ASN1_STRING_length(entry->d.dNSName)));
  }
  return info;
}

absl::Status CheckCertificate(absl::string_view certificate_pem, absl::string_view authority_pem, absl::string_view name) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Certificate certificate, ParseCertificate(certificate_pem, "certificate"));
  FUSIONLLM_ASSIGN_OR_RETURN(const Certificate authority, ParseCertificate(authority_pem, "the authority's certificate"));
  FUSIONLLM_ASSIGN_OR_RETURN(const CertificateInfo info, ReadCertificate(certificate_pem));
  const Store store(X509_STORE_new());
  const StoreContext context(X509_STORE_CTX_new());
  if (store == nullptr || context == nullptr || X509_STORE_add_cert(store.get(), authority.get()) != 1 ||
      X509_STORE_CTX_init(context.get(), store.get(), certificate.get(), nullptr) != 1) {
    return OpenSslError("prepare the verification of a certificate");
  }
  if (X509_verify_cert(context.get()) != 1) {
    const int error = X509_STORE_CTX_get_error(context.get());
    ERR_clear_error();
    return absl::UnauthenticatedError(
        absl::StrCat("the certificate of ", info.common_name, " does not hold: ", X509_verify_cert_error_string(error)));
  }
  if (!name.empty() && std::find(info.dns_names.begin(), info.dns_names.end(), name) == info.dns_names.end()) {
    return absl::UnauthenticatedError(absl::StrCat("the certificate of ", info.common_name, " is not for ", std::string(name)));
  }
  return absl::OkStatus();
}

absl::Status CheckKey(const CertificateAndKey& pair) {
  FUSIONLLM_ASSIGN_OR_RETURN(const Certificate certificate, ParseCertificate(pair.certificate_pem, "certificate"));
  FUSIONLLM_ASSIGN_OR_RETURN(const Key key, ParseKey(pair.key_pem, "key"));
  if (X509_check_private_key(certificate.get(), key.get()) == 1) return absl::OkStatus();
  ERR_clear_error();
  return absl::InvalidArgumentError("the key is not that of the certificate");
}

absl::Status WritePrivateFile(const std::string& path, absl::string_view content) {
  const std::string aside = absl::StrCat(path, ".new");
  const auto fail = [&](absl::string_view doing) {
    const std::string reason = std::strerror(errno);
    unlink(aside.c_str());
    return absl::UnavailableError(absl::StrCat("cannot ", std::string(doing), " ", path, ": ", reason));
  };
  unlink(aside.c_str());
  const int fd = open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return absl::UnavailableError(absl::StrCat("cannot create ", aside, ": ", std::strerror(errno)));
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      close(fd);
      errno = error;
      return fail("write");
    }
    content.remove_prefix(static_cast<size_t>(written));
  }
  const bool synced = fsync(fd) == 0;
  if (close(fd) != 0 || !synced) return fail("sync");
  if (rename(aside.c_str(), path.c_str()) != 0) return fail("replace");
  return absl::OkStatus();
}

}  // namespace fusionllm::security
