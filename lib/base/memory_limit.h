// How much memory this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace fusionllm::base {

// Bytes: the machine's, or its container's limit where that is less. `cgroup_folder`: of the process's own control group, either version.
int64_t AllowedMemoryBytes(const std::string& cgroup_folder = "/sys/fs/cgroup");

}  // namespace fusionllm::base
