#include "services/broker/shard_collection.h"

#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

namespace fusionllm::services {
namespace {

using checkpoint::FileEntry;

// One after the other, as an executor sends them. The first that cannot be had ends it.
absl::Status CollectOf(ShardFetcher& fetcher, const std::string& folder, const std::vector<const FileEntry*>& files,
                       absl::Duration silence) {
  absl::Time moved_at = absl::Now();
  for (const FileEntry* const file : files) {
    const absl::Status one = fetcher.FetchShard(
        folder, *file, [&] { return absl::Now() - moved_at > silence; }, [&] { moved_at = absl::Now(); });
    if (absl::IsCancelled(one)) return absl::CancelledError(absl::StrCat("nothing has come for ", absl::FormatDuration(silence)));
    if (!one.ok()) return one;
    moved_at = absl::Now();
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CollectShards(ShardFetcher& fetcher, const std::string& folder, const std::vector<FileEntry>& files, absl::Duration silence) {
  std::map<std::string, std::pair<std::vector<const FileEntry*>, absl::Status>> sites;
  for (const FileEntry& file : files) sites[file.site].first.push_back(&file);
  std::vector<std::thread> threads;
  for (auto& [site, work] : sites) {
    threads.emplace_back([&fetcher, &folder, &work, silence] { work.second = CollectOf(fetcher, folder, work.first, silence); });
  }
  for (std::thread& thread : threads) thread.join();
  absl::Status first;
  std::vector<std::string> missing;
  for (const auto& [site, work] : sites) {
    first.Update(work.second);
    if (!work.second.ok()) missing.push_back(absl::StrCat("site ", site, ": ", work.second.message()));
  }
  return absl::Status(first.code(), absl::StrJoin(missing, "; "));
}

}  // namespace fusionllm::services
