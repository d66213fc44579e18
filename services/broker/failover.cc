#include "services/broker/failover.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/checkpoint/layout.h"
#include "lib/checkpoint/manifest.h"

namespace fusionllm::services {
namespace {

// A folder of that step may be there since an earlier run: only one with the same files is what these shards became.
bool Holds(const checkpoint::Manifest& manifest, const broker::ShardWritten& shard) {
  return std::all_of(shard.files.begin(), shard.files.end(), [&](const checkpoint::FileEntry& file) {
    return std::any_of(manifest.files.begin(), manifest.files.end(), [&](const checkpoint::FileEntry& entry) {
      return entry.name == file.name && entry.sha256 == file.sha256 && entry.site_folder == file.site_folder;
    });
  });
}

}  // namespace

std::map<int64_t, std::string> RecoverCommitted(const std::string& directory, JournalState& past, broker::RunOptions& options) {
  std::map<int64_t, std::string> taken_up;
  std::map<int64_t, std::set<int>> stages;  // a shard that was reported again after a reconnect stands in the journal twice
  for (const broker::ShardWritten& shard : past.shards) stages[shard.step].insert(shard.stage);
  for (const auto& entry : stages) {
    const int64_t step = entry.first;  // clang 14 lets no lambda capture a structured binding
    const std::set<int>& reported = entry.second;
    if (!past.checkpoint_path.empty() && step <= past.checkpoint_step) continue;  // the run has come further
    if (static_cast<int>(reported.size()) < past.plan.stages()) continue;
    const std::string folder = absl::StrCat(directory, "/", checkpoint::StepFolderName(step));
    const absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::LoadManifest(folder);
    const bool committed = manifest.ok() && std::all_of(past.shards.begin(), past.shards.end(), [&](const broker::ShardWritten& shard) {
                             return shard.step != step || Holds(*manifest, shard);
                           });
    if (!committed) continue;
    options.start_step = step;
    taken_up[step] = options.start_checkpoint = folder;
    std::erase_if(past.shards, [step](const broker::ShardWritten& shard) { return shard.step <= step; });
  }
  return taken_up;
}

absl::Status LogAndRecord(const std::map<int64_t, std::string>& taken_up, RunLog& log, Journal& journal) {
  for (const auto& [step, path] : taken_up) {
    log.Event({.reason = "CheckpointSaved", .step = step, .message = path});
    if (absl::Status status = journal.RecordCheckpoint(step, path); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace fusionllm::services
