// Join tokens: what a device outside the cluster shows to be let in. 256 random bits, printed as "fllm-" and 64 hexadecimal digits.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace fusionllm::security {

absl::StatusOr<std::string> MakeJoinToken();

// Takes the same time wherever two tokens of one length differ. An empty expectation admits nobody.
bool SameToken(absl::string_view presented, absl::string_view expected);

}  // namespace fusionllm::security
