// Whether this build's kernels run on a card: machine code runs on cards of its compute capability's major number from its minor number on,
// PTX on all from its capability on ("CUDA C++ Programming Guide", release 13.0, sections 3.1.2 and 3.1.3).
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace fusionllm::kernels::cuda {

// `built`: architectures as CMake has them (CMAKE_CUDA_ARCHITECTURES) and separated by spaces, such as "80-real 90": -real has machine code
// alone, -virtual PTX alone, neither both. Words that name none ("native") promise nothing and refuse nothing. Errors: FailedPrecondition,
// saying what the build has and what to do, without naming the card.
absl::Status CheckArchitecture(absl::string_view built, int major, int minor);

}  // namespace fusionllm::kernels::cuda
