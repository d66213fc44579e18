#include "services/executor/process_memory.h"

#include <malloc.h>

#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace fusionllm::services {
namespace {

int64_t StatusKilobytes(absl::string_view key) {
  std::ifstream in("/proc/self/status");
  std::string line;
  while (std::getline(in, line)) {
    if (!absl::StartsWith(line, key)) continue;
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    int64_t kilobytes = 0;
    if (words.size() >= 2 && absl::SimpleAtoi(words[1], &kilobytes)) return kilobytes;
  }
  return 0;
}

}  // namespace

int64_t ResidentBytes() { return StatusKilobytes("VmRSS:") * 1024; }
int64_t PeakResidentBytes() { return StatusKilobytes("VmHWM:") * 1024; }

void ResetPeak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";  // proc(5): resets VmHWM
}

}  // namespace fusionllm::services
