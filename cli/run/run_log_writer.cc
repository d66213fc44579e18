#include "cli/run/run_log_writer.h"

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "lib/base/output_file.h"

namespace fusionllm::cli {

absl::Status RunLogWriter::CheckWritable(const std::string& events_path, const std::string& traces_path) {
  for (const std::string& path : {events_path, traces_path}) {
    errno = 0;
    if (!std::ofstream(path, std::ios::out | std::ios::app)) return base::FileError(errno, "write", path);
  }
  return absl::OkStatus();
}

RunLogWriter::RunLogWriter(std::string events_path, std::string traces_path, Options options)
    : events_path_(std::move(events_path)), traces_path_(std::move(traces_path)), options_(options) {
  if (!options_.hold_back) Begin();
}

void RunLogWriter::Begin() {
  if (begun_) return;
  begun_ = true;
  const std::ios::openmode mode = options_.replace ? std::ios::trunc : std::ios::app;
  for (const auto& [file, path] : {std::pair(&events_, &events_path_), std::pair(&traces_, &traces_path_)}) {
    errno = 0;
    file->open(*path, std::ios::out | mode);
    if (status_.ok() && !*file) status_ = base::FileError(errno, "write", *path);
  }
  for (const Held& held : std::exchange(held_, {})) Add(held.line, held.trace);
}

void RunLogWriter::Add(absl::string_view line, bool trace) {
  if (!begun_) {
    if (held_.size() < kMaxHeldLines) held_.push_back({std::string(line), trace});
    return;
  }
  std::ofstream& file = trace ? traces_ : events_;
  file.clear();  // there may be room again
  errno = 0;
  file << line << std::endl;
  if (status_.ok() && !file) status_ = base::FileError(errno, "write", trace ? traces_path_ : events_path_);
}

absl::Status RunLogWriter::Status() const {
  std::error_code error;
  for (const std::string& path : {events_path_, traces_path_}) {
    if (status_.ok() && begun_ && !std::filesystem::exists(path, error)) return base::FileError(ENOENT, "write", path);
  }
  return status_;
}

}  // namespace fusionllm::cli
