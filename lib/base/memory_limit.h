// How much memory this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace fusionllm::base {

// Bytes: the machine's, or what its container or a limit of the process (ulimit -v, ulimit -d) allows where that is less. `cgroup_folder`:
// of the process's own control group, either version.
int64_t AllowedMemoryBytes(const std::string& cgroup_folder = "/sys/fs/cgroup");

}  // namespace fusionllm::base
