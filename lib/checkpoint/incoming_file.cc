#include "lib/checkpoint/incoming_file.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/output_file.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/staging.h"

namespace fusionllm::checkpoint {

absl::StatusOr<std::unique_ptr<IncomingFile>> IncomingFile::Create(const std::string& root, int64_t step, const std::string& name,
                                                                   int64_t bytes, uint64_t distinct) {
  std::string folder = StagingFolder(root, step);
  absl::StatusOr<HashedFile> file;
  FUSIONLLM_RETURN_IF_ERROR(CreateInStaging(folder, [&] {
    file = HashedFile::Create(absl::StrCat(folder, "/.", name, ".", distinct));
    return file.status();
  }));
  return std::unique_ptr<IncomingFile>(new IncomingFile(*std::move(file), std::move(folder), name, bytes));
}

absl::StatusOr<std::unique_ptr<IncomingFile>> IncomingFile::CreateIn(const std::string& folder, const std::string& name, int64_t bytes) {
  FUSIONLLM_ASSIGN_OR_RETURN(HashedFile file, HashedFile::Create(absl::StrCat(folder, "/.", name, ".recalled")));
  auto incoming = std::unique_ptr<IncomingFile>(new IncomingFile(std::move(file), folder, name, bytes));
  incoming->into_place_ = true;
  return incoming;
}

IncomingFile::~IncomingFile() {
  if (staged_) return;
  unlink(path_.c_str());
  if (!into_place_) rmdir(folder_.c_str());  // fails when others have files there
}

absl::Status IncomingFile::Write(std::span<const std::byte> piece) {
  written_ += static_cast<int64_t>(piece.size());
  if (written_ > wanted_) return absl::OutOfRangeError(absl::StrCat(name_, " has more than the ", wanted_, " bytes that were announced"));
  return file_.Write(piece);
}

absl::StatusOr<WrittenFile> IncomingFile::Seal(absl::string_view sha256) {
  if (written_ != wanted_) {
    return absl::DataLossError(absl::StrCat(name_, " ended after ", written_, " of the ", wanted_, " bytes that were announced"));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(WrittenFile written, file_.Finish());
  if (written.sha256 != sha256) {
    return absl::DataLossError(absl::StrCat(name_, " arrived with the checksum ", written.sha256, " instead of ", sha256));
  }
  return written;
}

absl::Status IncomingFile::Stage() {
  FUSIONLLM_RETURN_IF_ERROR(base::Rename(path_, absl::StrCat(folder_, "/", name_)));
  staged_ = true;
  return into_place_ ? base::SyncFolder(folder_) : absl::OkStatus();
}

}  // namespace fusionllm::checkpoint
