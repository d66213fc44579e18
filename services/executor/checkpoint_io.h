// A stage's parameters and optimizer state, to and from checkpoints. Blocking, except ShardWriter::Save.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/runtime/parameter_store.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {

// Reads every parameter the stage holds and, if `with_state`, optimizer state, by name. `path`: a checkpoint folder, a folder with a
// Hugging Face index, or one .safetensors file. Errors name file and tensor (missing, another shape, corrupt).
absl::Status RestoreStage(const std::string& path, bool with_state, runtime::ParameterStore& store);

// Step and samples consumed of a checkpoint folder.
struct CheckpointPosition {
  int64_t step = 0;
  int64_t samples_consumed = 0;
};
absl::StatusOr<CheckpointPosition> ReadPosition(const std::string& checkpoint);

// Writes shards on a thread of its own from a copy of the tensors, one checkpoint at a time.
class ShardWriter {
 public:
  using Done = std::function<void(v1::ShardReport)>;
  ShardWriter(std::string directory, Done done) : directory_(std::move(directory)), done_(std::move(done)) {}
  ~ShardWriter() { Wait(); }

  // Copies the tensors this stage owns and returns; `done` runs when the files are on disk or could not be written.
  void Save(uint32_t epoch, int64_t step, int stage, int stages, int64_t samples_consumed, runtime::ParameterStore& store);
  // Until nothing is being written.
  void Wait();

 private:
  const std::string directory_;
  const Done done_;
  std::thread thread_;
};

}  // namespace fusionllm::services
