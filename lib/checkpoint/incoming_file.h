// A file of a shard that comes from a machine which cannot write here: under a hidden name until it is whole, then staged like any other.
//
// Blocks on the disk. Not thread-safe; any number may be under way for one name, and the last to be staged stays. One that is not staged is
// removed by the destructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/checkpoint/hashed_file.h"

namespace fusionllm::checkpoint {

class IncomingFile {
 public:
  // `name`: of a shard file (layout.h), which the caller has checked. `bytes`: how long it will be. `distinct`: no two files under way at
  // once have the same. Errors: those of HashedFile.
  static absl::StatusOr<std::unique_ptr<IncomingFile>> Create(const std::string& root, int64_t step, const std::string& name, int64_t bytes,
                                                              uint64_t distinct);
  // A file of the whole checkpoint in `folder` that was missing there: Stage() puts it into its place, syncing the folder. Only one of a
  // name may be under way.
  static absl::StatusOr<std::unique_ptr<IncomingFile>> CreateIn(const std::string& folder, const std::string& name, int64_t bytes);
  ~IncomingFile();
  IncomingFile(const IncomingFile&) = delete;
  IncomingFile& operator=(const IncomingFile&) = delete;

  // OutOfRange when there are more bytes than were announced.
  absl::Status Write(std::span<const std::byte> piece);
  // Syncs. DataLoss when length or checksum are not as announced.
  absl::StatusOr<WrittenFile> Seal(absl::string_view sha256);
  // After Seal: gives the file the name under which CommitCheckpoint (writer.h) looks for it.
  absl::Status Stage();

 private:
  IncomingFile(HashedFile file, std::string folder, std::string name, int64_t bytes)
      : file_(std::move(file)), path_(file_.path()), folder_(std::move(folder)), name_(std::move(name)), wanted_(bytes) {}

  HashedFile file_;
  const std::string path_, folder_, name_;
  const int64_t wanted_;
  int64_t written_ = 0;
  bool staged_ = false;
  bool into_place_ = false;
};

}  // namespace fusionllm::checkpoint
