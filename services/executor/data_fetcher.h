// Training data that lies in an object store, brought here before the stage that reads it is built.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/data/config.h"
#include "lib/objectstore/settings.h"

namespace fusionllm::services {

// Whether any of the data must be fetched first.
bool IsInObjectStore(const data::DatasetConfig& config);

// A folder for what is fetched: $FUSIONLLM_SCRATCH, else `shared`, the one of the run if this machine has it, else a temporary one that
// goes with this object.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // Made at the first call. `shared` empty: none.
  absl::StatusOr<std::string> Folder(const std::string& shared, const objectstore::Environment& environment);

 private:
  std::string folder_, temporary_;
};

struct FetchOptions {
  std::string scratch;
  objectstore::Environment environment;
  std::function<void(int64_t bytes)> progress;  // with how many since the last call
  std::stop_token stop;
  std::function<void(const std::string& sentence)> retried;  // objectstore::StoreOptions::retried
};

// Replaces URIs among the paths of `config` by paths here. Blocks, as long as it takes. Errors: those of objectstore::Fetch, and
// InvalidArgument naming a variable that is not set.
absl::Status FetchData(data::DatasetConfig& config, const FetchOptions& options);

}  // namespace fusionllm::services
