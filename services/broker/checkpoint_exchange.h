// The broker's end of checkpoint.proto: takes in shards of executors that cannot write into the run's folder, and gives them the tensors
// they have to start from.
//
// What comes is bounded: only devices of the plan epoch in force are heard, each for its own stage, those of replica 0 for what is written,
// and with one file at a time; a file is no longer than the device's memory lets it be and has room on the disk before its first byte is
// taken. Names are compared with those that the stage's files have, and no path is taken from the wire. What goes is bounded likewise: a
// device is given the tensors that its stage holds, each once in a call, and no other's. Thread-safe; a call blocks its own thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/base/mutex.h"
#include "lib/checkpoint/incoming_file.h"
#include "lib/checkpoint/reader.h"
#include "proto/fusionllm/v1/checkpoint.grpc.pb.h"
#include "services/broker/executor_call_limiter.h"
#include "services/broker/shard_fetcher.h"
#include "services/broker/stage_tensors.h"

namespace fusionllm::services {

struct CheckpointExchangeOptions {
  std::string checkpoint_directory;  // where shards go; empty: the job keeps none
  std::string init_from;             // what the job starts from; empty: nothing
  int64_t total_steps = 0;
  bool require_certificate = true;
  ShardFetcher* shard_fetcher = nullptr;  // brings files that lie in sites; null: there are none. Outlives the exchange
  ExecutorCallLimiter* calls = nullptr;   // counts calls; null: they are not counted. Outlives the exchange
  // For a checkpoint of an earlier step to be committed, when a stage has as many files here as it may: it saves faster than that.
  absl::Duration settle_timeout = absl::Seconds(60);
  // Bytes that may still be written under a path; not set: what the file system says.
  std::function<int64_t(const std::string& path)> free_bytes;
};

class CheckpointExchange final : public v1::CheckpointExchange::Service {
 public:
  struct Epoch {
    uint32_t number = 0;
    std::vector<std::string> devices;   // by rank (broker::RunPlan)
    std::vector<int64_t> memory_bytes;  // by rank; 0: not known
    int replicas = 1;
    std::string restore_from;  // a checkpoint; empty: none
    StageTensors tensors;      // that each stage may have
  };

  explicit CheckpointExchange(CheckpointExchangeOptions options);

  // From now on this epoch is served; calls of another one end.
  void Open(Epoch epoch);
  // No call is served until the next Open, and calls end. No file appears in the staging folder any more.
  void Close();
  // The checkpoint of this step was committed or abandoned: its files are staged no more.
  void Settled(int64_t step);
  // Called, from calls' threads and at most once a second, when bytes are flowing. Set before the server starts.
  void OnProgress(std::function<void()> progress) { progress_ = std::move(progress); }
  // Called, from calls' threads, when files of the checkpoint that an epoch restores lie in a site and cannot be had from there; then the
  // call fails. Set before the server starts.
  using Unusable = std::function<void(uint32_t epoch, const std::string& checkpoint, const absl::Status& why)>;
  void OnUnusable(Unusable unusable) { unusable_ = std::move(unusable); }

  grpc::Status PutShardFile(grpc::ServerContext* context, grpc::ServerReader<v1::ShardFilePiece>* reader,
                            v1::ShardFileReceipt* receipt) override;
  grpc::Status FetchTensors(grpc::ServerContext* context, const v1::FetchTensorsRequest* request,
                            grpc::ServerWriter<v1::TensorPiece>* writer) override;

 private:
  class Call;

  absl::StatusOr<ExecutorCallLimiter::Permit> Enter(const grpc::ServerContext& context) const;
  absl::StatusOr<std::unique_ptr<Call>> Admit(grpc::ServerContext* context, const std::string& executor, uint32_t epoch, bool puts);
  absl::Status CheckHeader(const Call& call, const v1::ShardFileHeader& header) const;
  absl::Status AwaitRoomForStep(const Call& call, const v1::ShardFileHeader& header);
  absl::Status TakeFile(Call& call, const v1::ShardFileHeader& header, grpc::ServerReader<v1::ShardFilePiece>& reader,
                        v1::ShardFileReceipt& receipt);
  absl::Status ReceiveFetched(grpc::ServerContext* context, const v1::ShardFileHeader& header,
                              grpc::ServerReader<v1::ShardFilePiece>& reader, v1::ShardFileReceipt& receipt);
  // The pieces of one file; `moved` is called for each.
  static absl::StatusOr<checkpoint::WrittenFile> Receive(checkpoint::IncomingFile& file, grpc::ServerReader<v1::ShardFilePiece>& reader,
                                                         const std::string& name, const std::function<void()>& moved);
  // Brings what the names are in and is not here; `reader` is opened again then.
  absl::Status FetchMissing(const Call& call, const v1::FetchTensorsRequest& request, grpc::ServerContext& context,
                            checkpoint::CheckpointReader& reader);
  // Whether the executor may have what it asks for, before anything is read.
  static absl::Status CheckNames(const Call& call, const v1::FetchTensorsRequest& request);
  absl::Status CheckRoom(const v1::ShardFileHeader& header, const std::string& folder) const;
  absl::StatusOr<std::string> PathOf(const Call& call, v1::FetchTensorsRequest::Source source) const;
  absl::Status SendTensor(const checkpoint::CheckpointReader& reader, const std::string& name, grpc::ServerWriter<v1::TensorPiece>& writer);
  void Progress();

  const CheckpointExchangeOptions options_;
  std::function<void()> progress_;
  Unusable unusable_;

  mutable base::Mutex mutex_;
  std::condition_variable settled_;  // or a call was overtaken
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  Epoch epoch_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_call_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, grpc::ServerContext*> calls_ ABSL_GUARDED_BY(mutex_);
  std::map<int, uint64_t> putting_ ABSL_GUARDED_BY(mutex_);          // stage -> the call that may stage its file
  std::map<int, std::set<int64_t>> staged_ ABSL_GUARDED_BY(mutex_);  // by stage: steps that files were taken of and that are not settled
  int64_t last_progress_s_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace fusionllm::services
