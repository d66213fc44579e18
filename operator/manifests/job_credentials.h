// The secrets of one job: an authority of its own, kept on the hub, and the certificates that its pods get. Not thread-safe; issuing a
// certificate takes milliseconds.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/security/certificate_authority.h"

namespace fusionllm::op::manifests {

// File name to text, as in a Secret.
using Files = std::map<std::string, std::string>;

class JobCredentials {
 public:
  // Of the authority, longer than jobs run: pods that go on cannot be given another. Their certificates are renewed (Renewed).
  static constexpr absl::Duration kValidity = security::kAuthorityValidity;
  // An attempt that begins with less left of its authority gets a new one: half of the above, so that each has as much at least.
  static constexpr absl::Duration kMinRemaining = absl::Hours(24 * 365 * 5);

  // New ones, at `now`. `job_name` names the authority.
  static absl::StatusOr<JobCredentials> Create(const std::string& job_name, absl::Time now);
  // From what AuthorityFiles() gave. InvalidArgument when a file is missing or damaged.
  static absl::StatusOr<JobCredentials> FromFiles(const Files& files);

  bool HasEnoughLeft(absl::Time now) const { return authority_.expires() - now >= kMinRemaining; }
  const std::string& certificate_pem() const { return authority_.certificate_pem(); }

  // For the hub alone: who has it can make certificates of the job.
  Files AuthorityFiles() const;
  // What the broker's pod needs: it may also take in executors by token.
  absl::StatusOr<Files> BrokerFiles(absl::Time now) const;
  // What the executors of one cluster need; each mounts its own two files.
  absl::StatusOr<Files> ExecutorFiles(const std::vector<std::string>& devices, absl::Time now) const;
  // The same files, with certificates for the same keys in place of those that are near their end (security::NeedsRenewal).
  // InvalidArgument, PermissionDenied: one is damaged or of another authority.
  absl::StatusOr<Files> Renewed(Files files, absl::Time now) const;

 private:
  JobCredentials(security::CertificateAuthority authority, std::string token)
      : authority_(std::move(authority)), token_(std::move(token)) {}

  absl::Status Issue(const std::string& name, absl::Time now, Files& files) const;

  security::CertificateAuthority authority_;
  std::string token_;
};

}  // namespace fusionllm::op::manifests
