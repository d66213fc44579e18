#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::base {

// One line that a terminal shows and does not obey, whatever a peer sent: line breaks and tabs become "\n", "\r", "\t", other control
// characters and what is not UTF-8 "\xNN". Up to four times as long as `text`.
std::string PrintableText(absl::string_view text);

}  // namespace fusionllm::base
