#include "lib/security/certificate_authority.h"

#include <openssl/core_names.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/security/pem.h"
#include "lib/security/private_file.h"

namespace fusionllm::security {
namespace {

constexpr absl::Duration kClockSkew = absl::Hours(1);
constexpr absl::Duration kMaxValidity = absl::Hours(24 * 365 * 100);
constexpr int kSerialBits = 128;

absl::Status OpenSslFailure(absl::string_view what) { return absl::InternalError(absl::StrCat("cannot ", what, ": ", TakeOpenSslError())); }

bool IsIpAddress(const std::string& text) {
  ASN1_OCTET_STRING* address = a2i_IPADDRESS(text.c_str());
  ERR_clear_error();
  const bool is = address != nullptr;
  ASN1_OCTET_STRING_free(address);
  return is;
}

bool HasHostCharacters(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.'; });
}

absl::Status CheckHosts(const std::vector<std::string>& hosts) {
  if (hosts.size() > kMaxCertificateHosts) {
    return absl::InvalidArgumentError(
        absl::StrCat("a certificate is issued for at most ", kMaxCertificateHosts, " hosts, not ", hosts.size()));
  }
  for (const std::string& host : hosts) {
    if (host.find('\0') == std::string::npos && IsIpAddress(host)) continue;
    if (host.empty() || host.size() > 253 || !HasHostCharacters(host)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", absl::CHexEscape(host.substr(0, 253)), "' is neither a host name nor an IP address"));
    }
  }
  return absl::OkStatus();
}

absl::Status SetSerialAndDates(X509& certificate, absl::Time from, absl::Time until) {
  const BignumPtr serial(BN_new());
  // The top bit is set, so a serial is never zero and always 128 bits long.
  const bool ok = serial != nullptr && BN_rand(serial.get(), kSerialBits, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
                  BN_to_ASN1_INTEGER(serial.get(), X509_get_serialNumber(&certificate)) != nullptr &&
                  ASN1_TIME_set(X509_getm_notBefore(&certificate), absl::ToTimeT(from)) != nullptr &&
                  ASN1_TIME_set(X509_getm_notAfter(&certificate), absl::ToTimeT(until)) != nullptr;
  return ok ? absl::OkStatus() : OpenSslFailure("date a certificate");
}

// Everything of a certificate but its key, its extensions and the signature.
absl::StatusOr<CertificatePtr> Blank(absl::string_view common_name, absl::Time from, absl::Time until) {
  CertificatePtr certificate(X509_new());
  if (certificate == nullptr) return OpenSslFailure("make a certificate");
  FUSIONLLM_RETURN_IF_ERROR(SetSerialAndDates(*certificate, from, until));
  const bool ok = X509_set_version(certificate.get(), X509_VERSION_3) == 1 &&
                  X509_NAME_add_entry_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, MBSTRING_UTF8,
                                             reinterpret_cast<const unsigned char*>(common_name.data()),
                                             static_cast<int>(common_name.size()), -1, 0) == 1;
  if (!ok) return OpenSslFailure("fill in a certificate");
  return certificate;
}

// The same as X509_set_pubkey() for one that is only written down: that function encodes the key and decodes it again, which takes
// OpenSSL 3.0 longer than to make it and to sign with it. X509_get0_pubkey() finds none in such a certificate until it is read again.
absl::Status SetP256Key(X509& certificate, EVP_PKEY& key) {
  size_t length = 0;
  if (EVP_PKEY_get_octet_string_param(&key, OSSL_PKEY_PARAM_PUB_KEY, nullptr, 0, &length) != 1) return OpenSslFailure("size a public key");
  BytesPtr point(static_cast<unsigned char*>(OPENSSL_malloc(length)));
  const bool ok = point != nullptr && EVP_PKEY_get_octet_string_param(&key, OSSL_PKEY_PARAM_PUB_KEY, point.get(), length, &length) == 1 &&
                  X509_PUBKEY_set0_param(X509_get_X509_PUBKEY(&certificate), OBJ_nid2obj(NID_X9_62_id_ecPublicKey), V_ASN1_OBJECT,
                                         OBJ_nid2obj(NID_X9_62_prime256v1), point.get(), static_cast<int>(length)) == 1;
  if (!ok) return OpenSslFailure("put a public key into a certificate");
  point.release();  // owned by the certificate now
  return absl::OkStatus();
}

// `value` in the syntax of OpenSSL's configuration files: constants only, never text from outside.
absl::Status AddExtension(X509& certificate, X509& issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, &issuer, &certificate, nullptr, nullptr, 0);
  const ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  if (extension == nullptr || X509_add_ext(&certificate, extension.get(), -1) != 1) {
    return OpenSslFailure(absl::StrCat("add the extension ", OBJ_nid2sn(nid)));
  }
  return absl::OkStatus();
}

absl::Status AddAlternativeName(GENERAL_NAMES& names, const std::string& host) {
  GeneralNamePtr name(GENERAL_NAME_new());
  if (name == nullptr) return OpenSslFailure("make a subject alternative name");
  if (ASN1_OCTET_STRING* address = a2i_IPADDRESS(host.c_str()); address != nullptr) {
    GENERAL_NAME_set0_value(name.get(), GEN_IPADD, address);
  } else {
    ERR_clear_error();
    ASN1_IA5STRING* text = ASN1_IA5STRING_new();
    GENERAL_NAME_set0_value(name.get(), GEN_DNS, text);
    if (text == nullptr || ASN1_STRING_set(text, host.data(), static_cast<int>(host.size())) != 1) {
      return OpenSslFailure("make a subject alternative name");
    }
  }
  if (sk_GENERAL_NAME_push(&names, name.get()) == 0) return OpenSslFailure("add a subject alternative name");
  name.release();  // owned by `names` now
  return absl::OkStatus();
}

absl::Status AddAlternativeNames(X509& certificate, std::vector<std::string> hosts) {
  const GeneralNamesPtr names(GENERAL_NAMES_new());
  if (names == nullptr) return OpenSslFailure("make subject alternative names");
  std::vector<std::string> seen;
  for (std::string& host : hosts) {
    if (std::find(seen.begin(), seen.end(), host) != seen.end()) continue;
    FUSIONLLM_RETURN_IF_ERROR(AddAlternativeName(*names, host));
    seen.push_back(std::move(host));
  }
  if (X509_add1_ext_i2d(&certificate, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT) != 1) {
    return OpenSslFailure("add subject alternative names");
  }
  return absl::OkStatus();
}

absl::StatusOr<KeyPtr> ParseP256(absl::string_view public_key_pem) {
  FUSIONLLM_ASSIGN_OR_RETURN(KeyPtr key, ParsePublicKey(public_key_pem, "the public key"));
  if (!IsP256(*key)) return absl::InvalidArgumentError("the public key is not an EC key of P-256");
  return key;
}

absl::Status CheckValidity(absl::Duration validity) {
  if (validity > absl::ZeroDuration() && validity <= kMaxValidity) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a certificate's validity of ", absl::FormatDuration(validity), " is not between 0 and ",
                                                 absl::FormatDuration(kMaxValidity)));
}

}  // namespace

struct CertificateAuthority::Parsed {
  using Dates = std::pair<absl::Time, absl::Time>;
  // In PEM, for `subject_key`, which is one of P-256. Name and hosts are checked.
  absl::StatusOr<std::string> Certify(absl::string_view name, EVP_PKEY& subject_key, const Dates& dates,
                                      const std::vector<std::string>& more_hosts) const;

  CertificatePtr certificate;
  KeyPtr key;
};

absl::StatusOr<PemKeyPair> GenerateKeyPair() {
  const KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpenSslFailure("generate a key");
  PemKeyPair texts;
  FUSIONLLM_ASSIGN_OR_RETURN(texts.private_key_pem, PrivateKeyToPem(*key));
  FUSIONLLM_ASSIGN_OR_RETURN(texts.public_key_pem, PublicKeyToPem(*key));
  return texts;
}

absl::Status CheckPublicKey(absl::string_view public_key_pem) { return ParseP256(public_key_pem).status(); }

absl::Status CheckProcessName(absl::string_view name) {
  const std::string quoted = absl::StrCat("the name '", absl::CHexEscape(name.substr(0, 2 * kMaxProcessNameBytes)), "'");
  if (name.empty() || name.size() > kMaxProcessNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(quoted, " has ", name.size(), " bytes; a process name has 1 to ", kMaxProcessNameBytes));
  }
  // TLS libraries that compare a peer's name take "broker." for "broker": a dot behind a host name says only that nothing is to be added to
  // it.
  if (!HasHostCharacters(name) || name.front() == '.' || name.back() == '.') {
    return absl::InvalidArgumentError(
        absl::StrCat(quoted, " is no process name: letters, digits, '-', '_' and '.' (neither first nor last) make one"));
  }
  if (absl::EqualsIgnoreCase(name, "ca")) {
    return absl::InvalidArgumentError(absl::StrCat(quoted, " is taken: the files ca.pem and ca.key belong to the job's CA"));
  }
  if (absl::EqualsIgnoreCase(name, "localhost") || IsIpAddress(std::string(name))) {
    return absl::InvalidArgumentError(
        absl::StrCat(quoted, " cannot tell a process from others: certificates name addresses of machines too"));
  }
  return absl::OkStatus();
}

absl::StatusOr<CertificateAuthority> CertificateAuthority::Create(const CertificateAuthorityOptions& options) {
  const std::string& name = options.common_name;
  if (name.empty() || name.size() > 64 || !std::all_of(name.begin(), name.end(), absl::ascii_isprint)) {
    return absl::InvalidArgumentError("the common name of a certificate authority has 1 to 64 printable ASCII characters");
  }
  FUSIONLLM_RETURN_IF_ERROR(CheckValidity(options.validity));
  ERR_clear_error();
  KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpenSslFailure("generate a key");
  FUSIONLLM_ASSIGN_OR_RETURN(CertificatePtr certificate, Blank(name, options.now - kClockSkew, options.now + options.validity));
  if (X509_set_pubkey(certificate.get(), key.get()) != 1) return OpenSslFailure("put a public key into a certificate");
  if (X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get())) != 1) return OpenSslFailure("name the issuer");
  // pathlen:0: no certificate issued here can issue others.
  FUSIONLLM_RETURN_IF_ERROR(AddExtension(*certificate, *certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  FUSIONLLM_RETURN_IF_ERROR(AddExtension(*certificate, *certificate, NID_key_usage, "critical,keyCertSign,cRLSign"));
  FUSIONLLM_RETURN_IF_ERROR(AddExtension(*certificate, *certificate, NID_subject_key_identifier, "hash"));
  if (X509_sign(certificate.get(), key.get(), EVP_sha256()) == 0) return OpenSslFailure("sign the CA's certificate");
  FUSIONLLM_ASSIGN_OR_RETURN(std::string certificate_pem, CertificateToPem(*certificate));
  FUSIONLLM_ASSIGN_OR_RETURN(std::string key_pem, PrivateKeyToPem(*key));
  auto parsed = std::make_shared<const Parsed>(Parsed{std::move(certificate), std::move(key)});
  return CertificateAuthority(std::move(certificate_pem), std::move(key_pem), std::move(parsed));
}

absl::StatusOr<CertificateAuthority> CertificateAuthority::FromPem(std::string certificate_pem, std::string private_key_pem,
                                                                   absl::string_view folder) {
  const std::string prefix = folder.empty() ? "" : absl::StrCat(folder, "/");
  const std::string certificate_path = prefix + "ca.pem";
  const std::string key_path = prefix + "ca.key";
  FUSIONLLM_ASSIGN_OR_RETURN(std::vector<CertificatePtr> certificates, ParseCertificates(certificate_pem, certificate_path));
  FUSIONLLM_ASSIGN_OR_RETURN(KeyPtr key, ParsePrivateKey(private_key_pem, key_path));
  FUSIONLLM_RETURN_IF_ERROR(CheckKeyPair(*certificates.front(), *key, certificate_path, key_path));
  if (X509_check_ca(certificates.front().get()) != 1) {
    return absl::InvalidArgumentError(absl::StrCat("the certificate in ", certificate_path, " is not that of a certificate authority"));
  }
  auto parsed = std::make_shared<const Parsed>(Parsed{std::move(certificates.front()), std::move(key)});
  return CertificateAuthority(std::move(certificate_pem), std::move(private_key_pem), std::move(parsed));
}

absl::StatusOr<CertificateAuthority> CertificateAuthority::Load(const std::string& folder) {
  FUSIONLLM_ASSIGN_OR_RETURN(std::string certificate_pem, ReadSmallFile(absl::StrCat(folder, "/ca.pem"), kMaxPemBytes));
  FUSIONLLM_ASSIGN_OR_RETURN(std::string key_pem, ReadSmallFile(absl::StrCat(folder, "/ca.key"), kMaxPemBytes));
  return FromPem(std::move(certificate_pem), std::move(key_pem), folder);
}

absl::Status CertificateAuthority::Save(const std::string& folder) const {
  FUSIONLLM_RETURN_IF_ERROR(MakePrivateFolder(folder));
  FUSIONLLM_RETURN_IF_ERROR(WritePrivateFile(absl::StrCat(folder, "/ca.key"), private_key_pem_));
  return WritePrivateFile(absl::StrCat(folder, "/ca.pem"), certificate_pem_);
}

absl::Time CertificateAuthority::expires() const { return ToTime(*X509_get0_notAfter(parsed_->certificate.get())); }

absl::StatusOr<std::pair<absl::Time, absl::Time>> CertificateAuthority::DatesAt(absl::Time now, absl::Duration validity) const {
  FUSIONLLM_RETURN_IF_ERROR(CheckValidity(validity));
  const absl::Time begin = ToTime(*X509_get0_notBefore(parsed_->certificate.get()));
  const absl::Time end = expires();
  if (now < begin || now >= end) {
    return absl::FailedPreconditionError(absl::StrCat("the job's CA is valid from ", absl::FormatTime(begin, absl::UTCTimeZone()), " to ",
                                                      absl::FormatTime(end, absl::UTCTimeZone()), ", so it issues nothing at ",
                                                      absl::FormatTime(now, absl::UTCTimeZone())));
  }
  return std::pair(std::max(begin, now - kClockSkew), std::min(end, now + validity));
}

absl::StatusOr<IssuedCertificate> CertificateAuthority::Issue(absl::string_view name, const IssueOptions& options) const {
  FUSIONLLM_RETURN_IF_ERROR(CheckProcessName(name));
  FUSIONLLM_RETURN_IF_ERROR(CheckHosts(options.hosts));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto dates, DatesAt(options.now, options.validity));
  const KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpenSslFailure("generate a key");
  IssuedCertificate issued;
  FUSIONLLM_ASSIGN_OR_RETURN(issued.certificate_pem, parsed_->Certify(name, *key, dates, options.hosts));
  FUSIONLLM_ASSIGN_OR_RETURN(issued.private_key_pem, PrivateKeyToPem(*key));
  return issued;
}

absl::StatusOr<std::string> CertificateAuthority::IssueFor(absl::string_view name, absl::string_view public_key_pem,
                                                           const IssueOptions& options) const {
  FUSIONLLM_RETURN_IF_ERROR(CheckProcessName(name));
  FUSIONLLM_RETURN_IF_ERROR(CheckHosts(options.hosts));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto dates, DatesAt(options.now, options.validity));
  FUSIONLLM_ASSIGN_OR_RETURN(const KeyPtr key, ParseP256(public_key_pem));
  return parsed_->Certify(name, *key, dates, options.hosts);
}

// OpenSSL guards what it keeps inside of the authority's certificate and key: many threads may issue at once.
absl::StatusOr<std::string> CertificateAuthority::Parsed::Certify(absl::string_view name, EVP_PKEY& subject_key, const Dates& dates,
                                                                  const std::vector<std::string>& more_hosts) const {
  FUSIONLLM_ASSIGN_OR_RETURN(const CertificatePtr issued, Blank(name, dates.first, dates.second));
  FUSIONLLM_RETURN_IF_ERROR(SetP256Key(*issued, subject_key));
  X509& issuer = *certificate;
  if (X509_set_issuer_name(issued.get(), X509_get_subject_name(&issuer)) != 1) return OpenSslFailure("name the issuer");
  FUSIONLLM_RETURN_IF_ERROR(AddExtension(*issued, issuer, NID_basic_constraints, "critical,CA:FALSE"));
  FUSIONLLM_RETURN_IF_ERROR(AddExtension(*issued, issuer, NID_key_usage, "critical,digitalSignature"));
  FUSIONLLM_RETURN_IF_ERROR(AddExtension(*issued, issuer, NID_ext_key_usage, "serverAuth,clientAuth"));
  FUSIONLLM_RETURN_IF_ERROR(AddExtension(*issued, issuer, NID_authority_key_identifier, "keyid:always"));
  std::vector<std::string> hosts = {std::string(name), "localhost", "127.0.0.1"};
  hosts.insert(hosts.end(), more_hosts.begin(), more_hosts.end());
  FUSIONLLM_RETURN_IF_ERROR(AddAlternativeNames(*issued, std::move(hosts)));
  if (X509_sign(issued.get(), key.get(), EVP_sha256()) == 0) return OpenSslFailure("sign a certificate");
  return CertificateToPem(*issued);
}

absl::StatusOr<std::string> CertificateAuthority::Renew(absl::string_view certificate_pem, const RenewOptions& options) const {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<CertificatePtr> chain, ParseCertificates(certificate_pem, "the certificate to renew"));
  FUSIONLLM_ASSIGN_OR_RETURN(const auto dates, DatesAt(options.now, options.validity));
  const bool own = X509_verify(chain.front().get(), X509_get0_pubkey(parsed_->certificate.get())) == 1;
  ERR_clear_error();
  if (!own) return absl::PermissionDeniedError("the certificate to renew was not issued by this job's CA");
  const CertificatePtr renewed(X509_dup(chain.front().get()));
  if (renewed == nullptr) return OpenSslFailure("copy a certificate");
  FUSIONLLM_RETURN_IF_ERROR(SetSerialAndDates(*renewed, dates.first, dates.second));
  if (X509_sign(renewed.get(), parsed_->key.get(), EVP_sha256()) == 0) return OpenSslFailure("sign a certificate");
  return CertificateToPem(*renewed);
}

}  // namespace fusionllm::security
