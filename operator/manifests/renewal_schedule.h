// When the certificates of a job's pods are looked at again, to be renewed where they are near their end. Not of all jobs at one moment:
// each has its own, by its UID.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "lib/base/philox.h"
#include "lib/security/certificate_authority.h"

namespace fusionllm::op::manifests {

// A sixth of a certificate's life (security::kCertificateValidity): twice at least while less than a third of it is left, so that nothing
// ends with an operator that is away for half of that.
inline constexpr absl::Duration kRenewalEvery = absl::Hours(24 * 15);

// By how much the rounds of a job begin before those that are counted from 1970.
inline int64_t RenewalOffsetSeconds(const std::string& job_uid) {
  return static_cast<int64_t>(base::StableHash(job_uid) % static_cast<uint64_t>(absl::ToInt64Seconds(kRenewalEvery)));
}

// Number of the renewal round that `now` is in; it grows by one every kRenewalEvery.
inline int64_t RenewalRound(const std::string& job_uid, absl::Time now) {
  return (absl::ToUnixSeconds(now) + RenewalOffsetSeconds(job_uid)) / absl::ToInt64Seconds(kRenewalEvery);
}

// When the next round begins.
inline absl::Time NextRenewalRound(const std::string& job_uid, absl::Time now) {
  const int64_t next = RenewalRound(job_uid, now) + 1;
  return absl::FromUnixSeconds(next * absl::ToInt64Seconds(kRenewalEvery) - RenewalOffsetSeconds(job_uid));
}

}  // namespace fusionllm::op::manifests
