// An executor's end of checkpoint.proto: its shards to the broker, tensors from it. For executors that do not share the broker's folder.
//
// Thread-safe; calls block their caller, over a connection of their own that is opened by the first of them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/checkpoint/writer.h"
#include "lib/tensor/tensor.h"
#include "proto/fusionllm/v1/checkpoint.grpc.pb.h"

namespace fusionllm::services {

struct CheckpointClientOptions {
  std::string address;  // of the broker
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::string executor;
};

struct CheckpointPosition {
  int64_t step = 0;
  int64_t samples_consumed = 0;
};

class CheckpointClient {
 public:
  explicit CheckpointClient(CheckpointClientOptions options) : options_(std::move(options)) {}

  // Sends the stage's files one after the other, in pieces of at most 256 KiB. A broker that cannot be reached is tried again, since a
  // run outlives its broker. Errors: Cancelled (by Cancel, or the broker serves this plan epoch no more), Unavailable when it stays away
  // for minutes, else what the broker says.
  absl::StatusOr<std::vector<checkpoint::FileEntry>> PutShard(uint32_t epoch, int64_t step, int stage, int stages,
                                                              const checkpoint::ShardContents& contents);

  // Fills the tensors by name, from the checkpoint that the epoch restores or from what the job starts from; of a start, what it lacks and
  // workload::MayBeginAtZero allows stays as it is. Errors: Cancelled, Unavailable, InvalidArgument for another shape or dtype, DataLoss
  // for a checksum, else what the broker says; then some tensors may be filled.
  using Wanted = std::vector<std::pair<std::string, tensor::TensorView>>;
  absl::StatusOr<CheckpointPosition> Fetch(uint32_t epoch, v1::FetchTensorsRequest::Source source, const Wanted& wanted);

  // Sends a file of this site that the broker asked for, or why it cannot be. In whatever plan epoch. Only a broker that cannot be reached
  // is tried again. Errors: as above; those of reading the file, with what the broker says to them.
  absl::Status SendFile(uint64_t fetch_id, const std::string& name, const std::string& path);

  // Calls of this plan epoch and those before end, now and later.
  void Cancel(uint32_t epoch);

 private:
  class Call;

  v1::CheckpointExchange::Stub& Stub();
  absl::StatusOr<checkpoint::FileEntry> PutFile(uint32_t epoch, int64_t step, int stage, const checkpoint::ShardFileImage& file);
  struct SendAttempt {
    absl::Status read;    // of the file here
    absl::Status answer;  // the broker's; Unavailable: it was not reached
  };
  SendAttempt TrySendFile(uint64_t fetch_id, const std::string& name, const std::string& path);
  // Blocks; false when the epoch was cancelled meanwhile.
  bool Pause(uint32_t epoch);

  const CheckpointClientOptions options_;
  base::Mutex mutex_;
  std::condition_variable cancelled_;
  uint32_t cancelled_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::multimap<uint32_t, grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);  // by epoch
  std::unique_ptr<v1::CheckpointExchange::Stub> stub_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace fusionllm::services
