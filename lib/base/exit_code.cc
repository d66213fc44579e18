#include "lib/base/exit_code.h"

namespace fusionllm::base {

int ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitDone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
      return kExitBadInput;
    default:
      return kExitFailed;
  }
}

absl::Status AsBadInput(const absl::Status& status) {
  if (status.ok() || absl::IsResourceExhausted(status)) return status;
  return absl::InvalidArgumentError(status.message());
}

absl::Status AsBadInputIfPermanent(const absl::Status& status) { return absl::IsUnavailable(status) ? status : AsBadInput(status); }

absl::Status AsDataLossInRun(const absl::Status& status) {
  return ExitCodeFor(status) == kExitBadInput ? absl::DataLossError(status.message()) : status;
}

}  // namespace fusionllm::base
