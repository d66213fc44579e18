#include "lib/base/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace fusionllm::base {

int64_t AllowedMemoryBytes(const std::string& cgroup_folder) {
  int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  // Version 2 says "max" where there is no limit, version 1 a number that no machine has.
  for (const char* const file : {"/memory.max", "/memory/memory.limit_in_bytes"}) {
    int64_t limit = 0;
    if (std::ifstream in(cgroup_folder + file); in >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  // What the kernel refuses, where somebody has set it (ulimit -v, ulimit -d).
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
      bytes = std::min(bytes, static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX)));
    }
  }
  return bytes;
}

}  // namespace fusionllm::base
