#include "services/broker/shared_folder.h"

#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "lib/base/output_file.h"
#include "lib/base/status_macros.h"
#include "lib/security/join_token.h"
#include "services/checkpoint_directory.h"

namespace fusionllm::services {

absl::StatusOr<SharedFolder> SharedFolder::Mark(const std::string& folder) {
  FUSIONLLM_RETURN_IF_ERROR(base::MakeFolders(folder));
  SharedFolder shared;
  FUSIONLLM_ASSIGN_OR_RETURN(const security::JoinSecret words, security::MakeJoinSecret());  // no two runs have the same
  shared.token_ = absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(words.data()), words.size()));
  const std::string file = absl::StrCat(folder, "/", kSharedMark);
  FUSIONLLM_RETURN_IF_ERROR(base::WriteFile(file, shared.token_));
  shared.file_ = file;
  return shared;
}

SharedFolder::~SharedFolder() {
  if (!file_.empty()) unlink(file_.c_str());
}

}  // namespace fusionllm::services
