// The certificate authority of one job: every process of a run gets a certificate from it, and trusts no other issuer.
//
// Keys are EC P-256, signatures ECDSA with SHA-256, serial numbers 128 random bits. A certificate's name is the identity of its process:
// subject CN=NAME, and the first DNS entry of subjectAltName, which is what gRPC's GetPeerIdentity() gives. All certificates also
// carry DNS:localhost and IP:127.0.0.1, so that processes of one machine dial each other by address. GetPeerIdentity() gives these too, so
// they identify no one: CheckProcessName refuses them as names, and a server that looks for a peer's name should compare the
// CN (property "x509_common_name"), of which there is one.
//
// Who holds ca.key can become any process of the job: only the process that enrolls others keeps it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace fusionllm::security {

inline constexpr size_t kMaxProcessNameBytes = 63;
inline constexpr size_t kMaxCertificateHosts = 64;
// An authority outlives its run: nothing can take its place while the run goes on. Certificates end sooner and are renewed (renewal.h).
inline constexpr absl::Duration kAuthorityValidity = absl::Hours(24 * 365 * 10);
inline constexpr absl::Duration kCertificateValidity = absl::Hours(24 * 90);

struct CertificateAuthorityOptions {
  std::string common_name = "fusionllm job";  // 1 to 64 printable ASCII characters
  absl::Duration validity = kAuthorityValidity;
  absl::Time now = absl::Now();
};

struct IssueOptions {
  std::vector<std::string> hosts;                  // more DNS names or IP addresses under which the process is dialled; trusted as given
  absl::Duration validity = kCertificateValidity;  // ends no later than the CA itself
  absl::Time now = absl::Now();
};

struct RenewOptions {
  absl::Duration validity = kCertificateValidity;
  absl::Time now = absl::Now();
};

// A key whose private half stays where it was made. EC P-256.
struct PemKeyPair {
  std::string private_key_pem;  // PKCS #8, in clear
  std::string public_key_pem;   // SubjectPublicKeyInfo
};
absl::StatusOr<PemKeyPair> GenerateKeyPair();
// InvalidArgument: not PEM, damaged, or not a public EC key of P-256.
absl::Status CheckPublicKey(absl::string_view public_key_pem);

struct IssuedCertificate {
  std::string certificate_pem;
  std::string private_key_pem;  // PKCS #8, in clear
};

// A process name has 1 to 63 letters, digits, '-', '_' or '.' (neither first nor last), and is none of those that files or every
// certificate use already ("ca", "localhost", anything that reads as an IP address). InvalidArgument says which rule.
absl::Status CheckProcessName(absl::string_view name);

// Immutable, copyable, thread-safe. Validity begins an hour before `now`: clocks of distant machines disagree.
class CertificateAuthority {
 public:
  // A new key and its self-signed certificate. InvalidArgument for a bad name or a validity that is not positive.
  static absl::StatusOr<CertificateAuthority> Create(const CertificateAuthorityOptions& options = {});

  // InvalidArgument: a text is not PEM, they do not belong together, or the certificate is not that of a CA. `folder` is named in errors.
  static absl::StatusOr<CertificateAuthority> FromPem(std::string certificate_pem, std::string private_key_pem,
                                                      absl::string_view folder = "");

  // Reads what Save wrote. NotFound or Unavailable by the file system, else as FromPem; blocks on the file system.
  static absl::StatusOr<CertificateAuthority> Load(const std::string& folder);

  // Writes ca.pem and ca.key; makes the folder (mode 0700, files 0600) if there is none. Each file is replaced whole. Blocks.
  absl::Status Save(const std::string& folder) const;

  // A new key with a certificate for servers and clients. InvalidArgument: name or hosts; FailedPrecondition: the CA is not valid at
  // options.now. Issuing a name twice is allowed: refusing names in use is up to the caller, who knows the members of the run.
  absl::StatusOr<IssuedCertificate> Issue(absl::string_view name, const IssueOptions& options = {}) const;

  // The same for a key that somebody else has made (GenerateKeyPair); answers the certificate, in PEM. InvalidArgument also as
  // CheckPublicKey.
  absl::StatusOr<std::string> IssueFor(absl::string_view name, absl::string_view public_key_pem, const IssueOptions& options = {}) const;

  // A certificate like this one, for the same key, name and hosts, that begins and ends later, in PEM. What follows the first certificate
  // of the text is passed over. InvalidArgument: damaged; PermissionDenied: it is of another issuer; FailedPrecondition: as Issue. That
  // it has expired does not matter: who may ask for a new one is up to the caller.
  absl::StatusOr<std::string> Renew(absl::string_view certificate_pem, const RenewOptions& options = {}) const;

  // When its certificate is no longer valid, nor any that it has issued; the infinite past when that is not known.
  absl::Time expires() const;

  const std::string& certificate_pem() const { return certificate_pem_; }
  const std::string& private_key_pem() const { return private_key_pem_; }  // to no other process but one that enrolls

 private:
  // What the texts hold: reading a key takes OpenSSL 3.0 longer than making one and signing with it.
  struct Parsed;
  // How long what is issued at `now` is valid; FailedPrecondition when the CA is not.
  absl::StatusOr<std::pair<absl::Time, absl::Time>> DatesAt(absl::Time now, absl::Duration validity) const;
  CertificateAuthority(std::string certificate_pem, std::string private_key_pem, std::shared_ptr<const Parsed> parsed)
      : certificate_pem_(std::move(certificate_pem)), private_key_pem_(std::move(private_key_pem)), parsed_(std::move(parsed)) {}

  std::string certificate_pem_;
  std::string private_key_pem_;
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace fusionllm::security
