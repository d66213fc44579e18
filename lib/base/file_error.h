// Errors of the file system as statuses, by what helps against them.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace fusionllm::base {

// The Status of an errno for an attempt to do `what` ("read", "sync") with `path`: "cannot read FILE: Permission denied".
//   NotFound           it is not there
//   PermissionDenied   this user may not
//   ResourceExhausted  no space, quota or descriptors are left
//   FailedPrecondition something else is in its place: a folder for a file, a file for a folder, a circle of links
//   Unavailable        a network file system that does not answer; another try may help
//   Internal           anything else
// But for Unavailable they are lasting: another try ends the same.
absl::Status FileError(int error, absl::string_view what, absl::string_view path);

}  // namespace fusionllm::base
