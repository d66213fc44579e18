#include "lib/checkpoint/staging.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "lib/base/output_file.h"
#include "lib/base/status_macros.h"

namespace fusionllm::checkpoint {
namespace {

// Each further attempt means that one more writer failed just then. As many in a row are no accident: somebody deletes what is written.
constexpr int kMaxAttempts = 1000;

}  // namespace

absl::Status CreateInStaging(const std::string& folder, absl::FunctionRef<absl::Status()> create) {
  FUSIONLLM_RETURN_IF_ERROR(base::MakeFolders(std::filesystem::path(folder).parent_path().string()));
  absl::Status created;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    // Not by MakeFolders, which looks again at a folder that was there, and fails when it is gone by then.
    if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) return base::FileError(errno, "create folder", folder);
    created = create();
    if (!absl::IsNotFound(created)) return created;
  }
  return created;
}

}  // namespace fusionllm::checkpoint
