// The shards that an executor keeps in its own site, in a folder that outlives it and that the executors of the site share.
//
// A shard is written once, into a folder that no other save has (layout.h): what a manifest names never changes under it, and the rename of
// the manifest, in the committer's folder, is the one point at which a checkpoint begins to be. What no manifest names is removed by
// GarbageCollect. All functions block on the disk. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/checkpoint/manifest.h"
#include "lib/checkpoint/writer.h"

namespace fusionllm::checkpoint {

// What the committer has decided: up to a step of a plan epoch, each shard is in a checkpoint or in none.
struct CommitProgress {
  uint32_t epoch = 0;
  int64_t step = 0;
  std::set<std::string> kept;  // folders that checkpoints have in this site
  // Devices that may have written what is not decided yet; null where another executor removes what devices that are gone have left.
  const std::set<std::string>* present = nullptr;
};

class SiteStore {
 public:
  // `directory`: of the site. `id`: in whose name shards are kept (IsShardsId). `device`: the writer.
  SiteStore(std::string directory, std::string id, std::string device)
      : directory_(std::move(directory)), id_(std::move(id)), device_(std::move(device)) {}

  // Writes a shard and syncs it and the folders it is in. The entries have site_folder. Errors: those of WriteShard; nothing is left then.
  absl::StatusOr<std::vector<FileEntry>> Write(uint32_t epoch, int64_t step, int stage, int stages, const ShardContents& contents);

  // Where a file is: a path that may have nothing. InvalidArgument for what names no file of a shard.
  absl::StatusOr<std::string> PathOf(const std::string& site_folder, const std::string& name) const;

  // Removes what this device has written up to there and no checkpoint has, of earlier lives too; and with `present` what devices have that
  // are not among these. Other `id`s are not looked at.
  absl::Status GarbageCollect(const CommitProgress& decided);

 private:
  std::string Root() const;
  absl::Status GarbageCollectDevice(const std::string& device, const CommitProgress& decided);

  const std::string directory_, id_, device_;
  base::Mutex mutex_;
  std::map<std::string, std::pair<uint32_t, int64_t>> written_ ABSL_GUARDED_BY(mutex_);  // by this object: folder -> epoch, step
};

// OK: shards can be kept in `directory`, made when it is not there, or there may be some. An error: it can be neither made nor written, and
// holds none. A full disk is no error: it may have room by the time of a save.
absl::Status CanKeepShards(const std::string& directory);

struct ShardsId {
  std::string id;
  // Set where the folder was found to be a copy, and this call made its id: the one that it had, and where the folder was that has it
  // still. What lies in sites under that one can be read, and goes when the other folder has it no more.
  std::string copied_id, copied_from;
};

// The id of the folder of checkpoints `root`, made when there is none yet: the same for all threads of the one process that writes there.
// A folder that has moved (another path), or whose volume was mounted again (another device or inode), keeps it. A copy, which has both,
// gets one of its own: else it would have the shards of the other removed. Not seen: a copy that has taken the path of the one it was made
// of, which may be on another machine or volume.
absl::StatusOr<ShardsId> ShardsIdOf(const std::string& root);

}  // namespace fusionllm::checkpoint
