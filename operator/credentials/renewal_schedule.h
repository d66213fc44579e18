// When the certificates of a job's pods are looked at again, to be renewed where they are near their end. Not of all jobs at one moment:
// each has its own, by its UID.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "lib/base/philox.h"
#include "lib/security/certificate_authority.h"

namespace fusionllm::op {

// A sixth of a certificate's life (security::kCertificateValidity): twice at least while less than a third of it is left, so that nothing
// ends with an operator that is away for half of that.
inline constexpr absl::Duration kRenewalEvery = absl::Hours(24 * 15);

// Counts the looks of a job.
inline int64_t RenewalRound(const std::string& job_uid, absl::Time now) {
  const int64_t every = absl::ToInt64Seconds(kRenewalEvery);
  return (absl::ToUnixSeconds(now) + static_cast<int64_t>(base::StableHash(job_uid) % static_cast<uint64_t>(every))) / every;
}

// When the next round begins.
inline absl::Time NextRenewalRound(const std::string& job_uid, absl::Time now) {
  const int64_t every = absl::ToInt64Seconds(kRenewalEvery);
  const auto offset = static_cast<int64_t>(base::StableHash(job_uid) % static_cast<uint64_t>(every));
  return absl::FromUnixSeconds((RenewalRound(job_uid, now) + 1) * every - offset);
}

}  // namespace fusionllm::op
