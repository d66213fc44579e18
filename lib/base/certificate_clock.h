// What a TLS library leaves out when it refuses a certificate for its dates: that the clock here may be the one that is wrong. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace fusionllm::base {

// "the clock of this machine says 2026-11-28 18:40:03Z".
std::string ClockSays(absl::Time now);

// `error` of libcurl or OpenSSL, with the clock where it says that a certificate has expired or is not yet valid, be it said here or by the
// other end of what it was shown (an alert); any other error as it is.
std::string WithClock(absl::string_view error, absl::Time now = absl::Now());

}  // namespace fusionllm::base
