// Which names executors of a run may have beside each other and its services. Pure.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace fusionllm::security {

// Processes of every run, which have certificates of these names.
inline constexpr absl::string_view kServiceNames[] = {"broker", "scheduler", "client"};

// Names are compared without case, as certificates are: who is `Broker` would pass for `broker`. Their files are, too, on some disks.
struct CaseInsensitiveLess {
  bool operator()(const std::string& a, const std::string& b) const;
};

// InvalidArgument, with the name in it: one that CheckProcessName (certificate_authority.h) refuses, or that of a service.
absl::Status CheckExecutorName(absl::string_view name);

}  // namespace fusionllm::security
