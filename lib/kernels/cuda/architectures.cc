#include "lib/kernels/cuda/architectures.h"

#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace fusionllm::kernels::cuda {

absl::Status CheckArchitecture(absl::string_view built, int major, int minor) {
  const int card = 10 * major + minor;
  std::vector<std::string> what;
  for (absl::string_view word : absl::StrSplit(built, ' ', absl::SkipEmpty())) {
    const bool real_only = absl::ConsumeSuffix(&word, "-real"), virtual_only = absl::ConsumeSuffix(&word, "-virtual");
    // 90a and the like run on that capability alone.
    const bool that_alone = !word.empty() && absl::ascii_isalpha(static_cast<unsigned char>(word.back()));
    int number = 0;
    if (!absl::SimpleAtoi(that_alone ? word.substr(0, word.size() - 1) : word, &number)) return absl::OkStatus();
    const bool by_code = !virtual_only && (that_alone ? card == number : card / 10 == number / 10 && card >= number);
    const bool by_ptx = !real_only && (that_alone ? card == number : card >= number);
    if (by_code || by_ptx) return absl::OkStatus();
    const std::string capability = absl::StrFormat("%d.%d", number / 10, number % 10);
    if (!virtual_only) what.push_back(absl::StrCat("machine code for ", capability));
    if (!real_only) what.push_back(absl::StrCat("PTX of ", capability));
  }
  if (what.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("has compute capability %d.%d, and this build has %s: build with -DCMAKE_CUDA_ARCHITECTURES=%d, or run on the CPU "
                      "(--device cpu)",
                      major, minor, absl::StrJoin(what, ", "), card));
}

}  // namespace fusionllm::kernels::cuda
