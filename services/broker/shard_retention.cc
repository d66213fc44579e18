#include "services/broker/shard_retention.h"

#include <set>

#include "lib/base/status_macros.h"
#include "lib/checkpoint/catalog.h"
#include "lib/checkpoint/manifest.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {

absl::StatusOr<RetentionMessages> RetentionMessagesUpTo(const broker::RunState& state, const std::string& directory, int64_t step) {
  RetentionMessages orders;
  // What a device that was lost has reported may become a checkpoint until the next epoch begins.
  const broker::Phase phase = state.phase();
  if (phase != broker::Phase::kRunning && phase != broker::Phase::kFinishing) return orders;
  std::vector<const broker::Executor*> holders;
  for (const auto& [name, executor] : state.executors()) {
    if (executor.holds_shards) holders.push_back(&executor);
  }
  if (holders.empty()) return orders;
  FUSIONLLM_ASSIGN_OR_RETURN(const auto folders, checkpoint::SiteFoldersOf(directory));
  std::set<std::string> notified_sites;
  for (const broker::Executor* const holder : holders) {
    v1::BrokerMessage message;
    v1::KeepShards& keep = *message.mutable_keep_shards();
    keep.set_epoch(state.epoch());
    keep.set_step(step);
    keep.set_incarnation(holder->incarnation);
    if (const auto found = folders.find(holder->site); found != folders.end()) {
      for (const std::string& folder : found->second) keep.add_site_folders(folder);
    }
    keep.set_of_others(notified_sites.insert(holder->site).second);
    for (const auto& [name, executor] : state.executors()) keep.add_present(name);
    orders.emplace_back(holder->name, std::move(message));
  }
  return orders;
}

void AddSiteFiles(const std::string& checkpoint, const broker::Executor& executor, v1::Assign& assign) {
  if (checkpoint.empty() || !executor.holds_shards) return;
  const absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::LoadManifest(checkpoint);
  if (!manifest.ok()) return;  // the stages' error
  for (const checkpoint::FileEntry& file : manifest->files) {
    if (file.site != executor.site) continue;
    v1::SiteFile& out = *assign.add_site_files();
    out.set_name(file.name);
    out.set_site_folder(file.site_folder);
    out.set_bytes(file.bytes);
    out.set_sha256(file.sha256);
  }
}

}  // namespace fusionllm::services
