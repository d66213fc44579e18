// Names of sites, devices and clusters. Pure.
#pragma once

#include "absl/strings/string_view.h"

namespace fusionllm::job {

inline constexpr char kNameRule[] = "1 to 63 letters, digits, '-', '_' or '.', the first a letter or digit";
// As kNameRule says, for a name becomes part of file names and labels.
bool IsName(absl::string_view text);

}  // namespace fusionllm::job
