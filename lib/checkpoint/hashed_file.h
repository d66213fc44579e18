// Files that are hashed while they are written, so that a manifest can name their checksums.
//
// All functions block on the file system. Errors: those of base/output_file.h and base/source_file.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/output_file.h"

namespace fusionllm::checkpoint {

// SHA-256 of a stream of bytes (FIPS 180-4, by OpenSSL). Movable.
class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();
  void Update(std::span<const std::byte> bytes);
  // 64 lower-case hex digits. Ends the stream: call it once, last.
  std::string HexDigest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The checksum of a whole file.
absl::StatusOr<std::string> Sha256OfFile(const std::string& path);

struct WrittenFile {
  int64_t bytes = 0;
  std::string sha256;
};

// A base::OutputFile that knows what was written. Movable, not thread-safe.
class HashedFile {
 public:
  static absl::StatusOr<HashedFile> Create(std::string path);

  const std::string& path() const { return file_.path(); }
  absl::Status Write(std::span<const std::byte> bytes);
  // As base::OutputFile::Finish. Call it once, last.
  absl::StatusOr<WrittenFile> Finish();

 private:
  explicit HashedFile(base::OutputFile file) : file_(std::move(file)) {}

  base::OutputFile file_;
  int64_t bytes_ = 0;
  Sha256 hash_;
};

// Writes a small file through HashedFile.
absl::StatusOr<WrittenFile> WriteHashedFile(const std::string& path, absl::string_view text);

}  // namespace fusionllm::checkpoint
