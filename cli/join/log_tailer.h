// Shows the lines that another process writes to its log, as they come.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace fusionllm::cli {

// Reads the file from where it stopped the last time. Not thread-safe.
class LogTailer {
 public:
  LogTailer(std::string path, std::FILE* out) : path_(std::move(path)), out_(out) {}

  // Writes the whole lines that are new; what cannot be read now is read later. At most kMaxBytesPerCall a call.
  void Show();
  // Also a last line without an end.
  void ShowRest();

 private:
  static constexpr int64_t kMaxBytesPerCall = 64 << 10;
  std::string NewText() const;

  const std::string path_;
  std::FILE* const out_;
  int64_t shown_ = 0;
};

}  // namespace fusionllm::cli
