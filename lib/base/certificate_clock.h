// What a TLS library leaves out when it refuses a certificate for its dates: that the clock here may be the one that is wrong. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace fusionllm::base {

// "the clock of this machine says 2026-11-28 18:40:03Z".
std::string ClockReading(absl::Time now);

// `error` of libcurl or OpenSSL, with the clock where it says that a certificate has expired or is not yet valid, whether this side found
// it or the other end sent an alert; any other error unchanged.
std::string WithClock(absl::string_view error, absl::Time now = absl::Now());

}  // namespace fusionllm::base
