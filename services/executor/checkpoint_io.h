// A stage's parameters, optimizer state and residuals of error feedback, to and from checkpoints: directly where this executor shares the
// broker's folder, in the folder of its site where it has one, else by way of the broker. Blocking, except ShardWriter::Save.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/checkpoint/site_store.h"
#include "lib/checkpoint/writer.h"
#include "lib/runtime/parameter_store.h"
#include "lib/runtime/stage_executor.h"
#include "lib/workload/workload.h"
#include "services/executor/checkpoint_client.h"
#include "services/messages_fwd.h"

namespace fusionllm::services {

// Which of the broker's files this executor has in view itself. Cheap to copy.
class SharedFiles {
 public:
  SharedFiles() = default;  // none
  // Reads the token that the broker left in the folder of checkpoints. Blocks. `of_the_run`: where this is the broker's machine, all of its
  // files are in view, else that folder alone.
  explicit SharedFiles(const v1::Welcome& welcome, bool of_the_run = true);

  // Whether what is written into `directory`, where the job's checkpoints are to be, is in the broker's folder.
  bool HasCheckpoints(const std::string& directory) const { return !folder_.empty() && Has(directory); }
  // Whether `path` is the same file or folder here as on the broker's machine.
  bool Has(const std::string& path) const;

 private:
  std::string folder_;         // of checkpoints
  bool same_machine_ = false;  // then everything is shared
};

// Brings the stage's tensors to where an Assign says training goes on.
class StageRestorer {
 public:
  // `site`: the folder of this executor's site, which outlives this; null: it has none.
  StageRestorer(SharedFiles shared, CheckpointClient& client, checkpoint::SiteStore* site = nullptr)
      : shared_(std::move(shared)), client_(client), site_(site) {}

  using SiteFiles = google::protobuf::RepeatedPtrField<v1::SiteFile>;

  // Parameters, optimizer state and `residuals` (a subset of the stage's) from the epoch's checkpoint, of which `site_files` lie in this
  // site: what is not at hand, or not as it was written, comes by way of the broker. Errors name file and tensor (missing, another shape,
  // corrupt); Cancelled by CheckpointClient::Cancel.
  absl::StatusOr<CheckpointPosition> Restore(uint32_t epoch, const std::string& checkpoint, const SiteFiles& site_files,
                                             runtime::StageExecutor& stage, const std::vector<std::string>& residuals) const;
  // Likewise, of these tensors.
  absl::StatusOr<CheckpointPosition> Read(uint32_t epoch, const std::string& checkpoint, const SiteFiles& site_files,
                                          const CheckpointClient::Wanted& wanted) const;
  // Parameters only, from what the job starts from, spec.model.init.from at `path`: a checkpoint folder, a folder with a Hugging Face
  // index, or one .safetensors file; of a URI by way of the broker, which has fetched it. `store` is initialised: what init.skip names and
  // counters that are not there stay as they are. What can be read here is compared with the whole model first.
  absl::Status Initialize(uint32_t epoch, const std::string& path, const workload::Workload& workload,
                          runtime::ParameterStore& store) const;

 private:
  // Fills what the file has of `wanted`, and takes that out of it.
  absl::Status ReadFromSite(const v1::SiteFile& file, CheckpointClient::Wanted& wanted) const;

  const SharedFiles shared_;
  CheckpointClient& client_;
  checkpoint::SiteStore* const site_;
};

// Writes shards on a thread of its own from a copy of the tensors, one checkpoint at a time.
class ShardWriter {
 public:
  // Puts one stage's shard into the staging folder, or fails; Cancelled: it is not wanted any more.
  using Store = std::function<absl::StatusOr<std::vector<checkpoint::FileEntry>>(uint32_t epoch, int64_t step, int stage, int stages,
                                                                                 const checkpoint::ShardContents& contents)>;
  using Done = std::function<void(v1::ShardReport)>;
  // `site`: reported with each shard, where it stays there.
  ShardWriter(Store store, Done done, std::string site = "") : store_(std::move(store)), done_(std::move(done)), site_(std::move(site)) {}
  ~ShardWriter() { Wait(); }

  // Copies the tensors this stage owns and returns; `done` runs when the files are on disk or could not be written, and not when the shard
  // was cancelled. Waits for the shard before: a stage keeps at most one copy.
  void Save(uint32_t epoch, int64_t step, int stage, int stages, int64_t samples_consumed, runtime::StageExecutor& executor);
  // Until nothing is being written.
  void Wait();

 private:
  const Store store_;
  const Done done_;
  const std::string site_;
  std::thread thread_;
};

// Where shards go: into `directory`, if that is shared; into the folder of the site, if there is one; or to the broker.
ShardWriter::Store StoreFor(const SharedFiles& shared, const std::string& directory, checkpoint::SiteStore* site, CheckpointClient& client);

}  // namespace fusionllm::services
