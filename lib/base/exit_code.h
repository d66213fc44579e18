// With which code our programs end, and which error ends with which: the one place that says so.
//
// Whose turn it is decides. 2 is the user's: something that was said or named is wrong, and trying again changes nothing. Among what was
// named are files and folders, whatever is wrong with them: missing, damaged, not readable, not to be written. 1 is no one's in particular:
// the program had what it needs and failed, or a disk was full, which no other argument mends. What was in order when a run began and is
// lost under it, its own checkpoints included, is 1 too: the run failed while running. `checkpoint verify` is asked whether files are
// damaged: to find that they are is its answer, 1, and no bad input.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace fusionllm::base {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitInfeasible = 3;     // a plan was refused
inline constexpr int kExitInterrupted = 130;  // after a checkpoint, where the job keeps any

// kExitBadInput for InvalidArgument, NotFound, FailedPrecondition and PermissionDenied, kExitFailed for other errors. Of what befell a file
// that the user named, ask with AsBadInput(status).
int ExitCodeFor(const absl::Status& status);

// The error of an attempt to use a file or folder that the user named: InvalidArgument with the same words, whatever it was, so that it is
// bad input; but a full disk stays ResourceExhausted.
absl::Status AsBadInput(const absl::Status& status);
template <typename T>
absl::StatusOr<T> AsBadInput(absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return AsBadInput(result.status());
}

// The same in a program that tries again what may go well another time: of a file system that does not answer it stays Unavailable.
absl::Status AsBadInputIfPermanent(const absl::Status& status);
template <typename T>
absl::StatusOr<T> AsBadInputIfPermanent(absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return AsBadInputIfPermanent(result.status());
}

// The error of a run that had begun: what says that files are missing or wrong is DataLoss then, for they were in order at the beginning.
absl::Status AsDataLossInRun(const absl::Status& status);

}  // namespace fusionllm::base
