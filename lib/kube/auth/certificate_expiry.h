// Until when a certificate is good.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace fusionllm::kube {

// Of the first certificate of a PEM text, which is its owner's. Nothing: there is none that can be read.
std::optional<absl::Time> CertificateExpiry(absl::string_view pem);

}  // namespace fusionllm::kube
