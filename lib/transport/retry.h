// Which ends of a connection are worth another try, and which mean that the peer cannot be talked to.
#pragma once

#include "absl/status/status.h"

namespace fusionllm::transport {

// Broken connections are retried; refusals and violations of the protocol are not.
inline bool Retryable(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kInternal:  // gRPC's word for a stream reset in mid-frame
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kAborted:
      return true;
    default:
      return false;
  }
}

}  // namespace fusionllm::transport
