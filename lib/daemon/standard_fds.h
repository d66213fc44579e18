// Files of a program that is started with some of the standard ones closed, or with a limit on their size.
#pragma once

namespace fusionllm::daemon {

// Fills the places of those that are closed, so that no file which is opened later becomes stdout and receives what is printed. Reading
// from or writing to them fails as before. Before anything is opened and any thread is made.
void ReserveStandardFds();

// Writes beyond the largest size that a file may have (`ulimit -f`) fail with EFBIG, "File too large", instead of ending the process by
// SIGXFSZ. Programs that it starts inherit that, unless they are given signals of their own.
void FailWritesBeyondSizeLimit();

}  // namespace fusionllm::daemon
