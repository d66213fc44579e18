#include "absl/strings/str_format.h"
#include "cli/commands/command.h"
#include "lib/base/exit_code.h"

namespace fusionllm::cli {

int ReportError(const absl::Status& status) {
  absl::FPrintF(stderr, "fusionctl: %s\n", status.message());
  return base::ExitCodeFor(status);
}

}  // namespace fusionllm::cli
