// A text that two processes have in common when they run on one kernel and see the same mounts: a path then means the same file to both.
// Empty where /proc does not tell.
#pragma once

#include <unistd.h>

#include <fstream>
#include <string>

namespace fusionllm::services {

inline std::string MachineIdentity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  char mounts[64];
  const ssize_t length = readlink("/proc/self/ns/mnt", mounts, sizeof mounts);
  if (boot.empty() || length <= 0) return "";
  return boot + " " + std::string(mounts, static_cast<size_t>(length));
}

}  // namespace fusionllm::services
