// Times as Kubernetes writes them: RFC 3339 in UTC. Thread-safe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace fusionllm::kube {

// metav1.Time, whole seconds: "2024-05-06T07:08:09Z".
std::string TimeText(absl::Time time);
// metav1.MicroTime: "2024-05-06T07:08:09.000000Z". The server refuses any other number of digits.
std::string MicroTimeText(absl::Time time);
// Either of them, with any fraction and offset. InvalidArgument for all else.
absl::StatusOr<absl::Time> TimeFromText(absl::string_view text);

}  // namespace fusionllm::kube
