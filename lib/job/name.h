// Names of sites, devices and clusters; and of jobs. Pure.
#pragma once

#include "absl/strings/string_view.h"

namespace fusionllm::job {

inline constexpr char kNameRule[] = "1 to 63 letters, digits, '-', '_' or '.', the first a letter or digit";
// As kNameRule says, for a name becomes part of file names and labels.
bool IsName(absl::string_view text);

// `<job>-<cluster>-<index>` names a Pod's host and must have at most 63 characters, with a cluster's name of 20 and an index of up to four
// digits. The API server refuses by the same words and pattern (lib/kubeapi/rules.cc).
inline constexpr size_t kMaxJobName = 37;
inline constexpr char kJobNameRule[] =
    "at most 37 lower-case letters, digits and '-', the first a letter, the last not '-': Pods are named after it";
inline constexpr char kJobNamePattern[] = "^[a-z]([-a-z0-9]*[a-z0-9])?$";
bool IsJobName(absl::string_view text);

}  // namespace fusionllm::job
