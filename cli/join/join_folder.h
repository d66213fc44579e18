// The folder in which `fusionctl join` keeps its key while it runs: only its user can read it, and it goes with the process, if not by the
// process itself then by the next one that joins on this machine.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace fusionllm::cli {

// Locked (flock) for as long as it lives, which is how others know that it is in use. Movable.
class JoinFolder {
 public:
  // Makes a new folder PARENT/fusionctl-join-XXXXXX, after it has removed those of processes that are gone. Blocks on the file system.
  // Unavailable when it cannot be made; what cannot be removed stays.
  static absl::StatusOr<JoinFolder> Create(const std::string& parent);
  JoinFolder(JoinFolder&& other) noexcept;
  JoinFolder& operator=(JoinFolder&&) = delete;
  ~JoinFolder();  // removes it

  const std::string& path() const { return path_; }

 private:
  JoinFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  std::string path_;
  int lock_ = -1;
};

}  // namespace fusionllm::cli
