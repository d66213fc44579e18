// The folder in which the stages of a step put their shards before they are a checkpoint (layout.h).
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace fusionllm::checkpoint {

// Makes the folder and what it lies in, then calls `create`, which creates files there. A writer that fails takes the folder away when it
// is empty; where that comes between the two steps of another writer, `create` finds no folder (NotFound), and both steps are taken again.
// Blocks on the file system. Errors: those of base::MakeFolders and of `create`; the last, if the folder goes time and again.
absl::Status CreateInStaging(const std::string& folder, absl::FunctionRef<absl::Status()> create);

}  // namespace fusionllm::checkpoint
