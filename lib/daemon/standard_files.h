// stdin, stdout and stderr, for programs that may be started without some of them.
#pragma once

namespace fusionllm::daemon {

// Fills the places of those that are closed, so that no file which is opened later becomes stdout and receives what is printed. Reading
// from or writing to them fails as before. Before anything is opened and any thread is made.
void HoldStandardFiles();

}  // namespace fusionllm::daemon
