// What an object store says of the model that a job starts from, so that its sizes need not be written down: as of a folder here.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "lib/job/initial_model.h"

namespace fusionllm::cli {

// Of the manifest of a checkpoint or the config.json of a Hugging Face GPT-2 at `uri`, or beside it where it is a .safetensors file; a
// few small requests. A store that cannot be asked is reported on stderr, once for each URI, and says nothing: what reads the parameters
// fails there. Errors: InvalidArgument, as job::ReadInitialModel.
absl::StatusOr<std::optional<job::InitialModel>> ReadRemoteStart(const std::string& uri);

// StoreOptions::retried of a fusionctl: on stderr.
void PrintRetry(const std::string& sentence);

}  // namespace fusionllm::cli
