// A file by which executors find out whether they share a folder with the broker: who reads its random words has the folder itself in view,
// be it on this machine or through a network file system. It is no secret.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace fusionllm::services {

class SharedFolder {
 public:
  // Makes the folder if there is none, and the file, which replaces that of an earlier broker. Blocks. Errors: those of
  // base/output_file.h, naming the path.
  static absl::StatusOr<SharedFolder> Mark(const std::string& folder);
  SharedFolder() = default;  // not shared
  SharedFolder(SharedFolder&& other) noexcept { *this = std::move(other); }
  SharedFolder& operator=(SharedFolder&& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(token_, other.token_);
    return *this;
  }
  ~SharedFolder();  // removes the file

  const std::string& file() const { return file_; }
  const std::string& token() const { return token_; }

 private:
  std::string file_, token_;
};

}  // namespace fusionllm::services
