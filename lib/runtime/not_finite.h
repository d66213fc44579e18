// Errors for NaN and infinite numbers. DataLoss, with a mark by which a caller tells them from damaged files.
//
// Pure functions; thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace fusionllm::runtime {

absl::Status NotFiniteError(const std::string& message);
bool IsNotFinite(const absl::Status& status);

}  // namespace fusionllm::runtime
