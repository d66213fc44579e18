#include "services/broker/shard_fetcher.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/fusionllm/v1/broker.pb.h"

namespace fusionllm::services {
namespace {

// Between looks whether a caller that waits was cancelled.
constexpr auto kLook = std::chrono::milliseconds(200);
constexpr auto kNewsPause = std::chrono::seconds(1);

absl::Status CalledOff() { return absl::CancelledError("the wait for this file was called off"); }

WaitingForSite AwaitedOf(const std::string& folder, const checkpoint::FileEntry& file) {
  WaitingForSite awaited{.site = file.site, .folder = folder, .first = file.name};
  const absl::StatusOr<checkpoint::Manifest> manifest = checkpoint::LoadManifest(folder);
  std::error_code ignored;
  for (const checkpoint::FileEntry& other : manifest.ok() ? manifest->files : std::vector<checkpoint::FileEntry>{file}) {
    if (other.site == file.site && !std::filesystem::exists(absl::StrCat(folder, "/", other.name), ignored)) ++awaited.files;
  }
  return awaited;
}

}  // namespace

void ShardFetcher::SendBy(Send send) {
  const base::MutexLock lock(mutex_);
  send_ = std::move(send);
}

void ShardFetcher::OnProgress(std::function<void()> progress) {
  const base::MutexLock lock(mutex_);
  progress_ = std::move(progress);
}

void ShardFetcher::OnFetched(std::function<void(const checkpoint::FileEntry& file, const std::string& executor)> on_fetched) {
  const base::MutexLock lock(mutex_);
  on_fetched_ = std::move(on_fetched);
}

void ShardFetcher::OnWaiting(std::function<void(const WaitingForSite& awaited)> on_awaited) {
  const base::MutexLock lock(mutex_);
  on_awaited_ = std::move(on_awaited);
}

void ShardFetcher::SetShutdownTimeout(std::chrono::milliseconds timeout) {
  const base::MutexLock lock(mutex_);
  absence_timeout_ = std::min(absence_timeout_, timeout);
  run_ends_ = true;
}

void ShardFetcher::CancelWaits() {
  const base::MutexLock lock(mutex_);
  for (const auto& [site, absence] : awaited_) absent_.insert(site);
}

void ShardFetcher::AddExecutor(const std::string& executor, const std::string& site) {
  const base::MutexLock lock(mutex_);
  holders_[executor] = site;
  leaving_.erase(executor);
  departed_.erase(executor);
  absent_.erase(site);
  // What its connection before was asked may have gone with it.
  for (auto& [id, asked] : asked_) {
    if (asked.executor != executor || asked.cancel || asked.ended) continue;
    asked.ended = true;
    asked.status = absl::UnavailableError("it has joined again");
  }
  news_.notify_all();
}

void ShardFetcher::MarkLeaving(const std::string& executor) {
  const base::MutexLock lock(mutex_);
  if (holders_.contains(executor)) leaving_.insert(executor);
  news_.notify_all();
}

void ShardFetcher::RemoveExecutor(const std::string& executor) {
  const base::MutexLock lock(mutex_);
  if (const auto holder = holders_.extract(executor); !holder.empty()) {
    departed_[executor] = {.site = holder.mapped(), .shutdown_requested = leaving_.erase(executor) > 0};
  }
  news_.notify_all();
}

bool ShardFetcher::IsLeft(const std::string& site) const {
  const auto of_site = [&](const auto& departed) { return departed.second.site == site; };
  const auto comes_back = [&](const auto& departed) { return of_site(departed) && !departed.second.shutdown_requested; };
  return std::any_of(departed_.begin(), departed_.end(), of_site) && std::none_of(departed_.begin(), departed_.end(), comes_back);
}

bool ShardFetcher::AllShuttingDown(const std::set<std::string>& sites, std::chrono::milliseconds timeout) {
  base::UniqueLock lock(mutex_);
  const auto leaves = [this](const std::string& site) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    bool one_does = IsLeft(site);
    for (const auto& [executor, of] : holders_) {
      if (of != site) continue;
      if (!leaving_.contains(executor)) return false;
      one_does = true;
    }
    return one_does && std::none_of(departed_.begin(), departed_.end(), [&](const auto& departed) {
             return departed.second.site == site && !departed.second.shutdown_requested;
           });
  };
  const auto all_leave = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return std::all_of(sites.begin(), sites.end(), leaves); };
  news_.wait_for(lock, timeout, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_ || all_leave(); });
  return all_leave();
}

void ShardFetcher::Close() {
  const base::MutexLock lock(mutex_);
  closed_ = true;
  send_ = nullptr;
  news_.notify_all();
}

std::string ShardFetcher::HolderOf(const std::string& site, const std::set<std::string>& tried) const {
  for (const auto& [executor, of] : holders_) {
    if (of == site && !tried.contains(executor)) return executor;
  }
  return "";
}

void ShardFetcher::NotifyProgress(std::unique_lock<std::mutex>& lock) {
  if (Clock::now() - last_progress_ < kNewsPause) return;
  last_progress_ = Clock::now();
  const std::function<void()> progress = progress_;
  lock.unlock();
  if (progress) progress();
  lock.lock();
}

void ShardFetcher::NotifyAwaited(std::unique_lock<std::mutex>& lock, const std::string& folder, const checkpoint::FileEntry& file,
                                 Clock::time_point deadline) {
  const auto on_awaited = on_awaited_;
  if (!on_awaited) return;
  lock.unlock();
  WaitingForSite awaited = AwaitedOf(folder, file);
  awaited.left = std::chrono::ceil<std::chrono::seconds>(deadline - Clock::now());
  on_awaited(awaited);
  lock.lock();
}

absl::Status ShardFetcher::AwaitHolder(std::unique_lock<std::mutex>& lock, const std::string& folder, const checkpoint::FileEntry& file,
                                       const std::function<bool()>& cancelled) {
  const std::string& site = file.site;
  if (!HolderOf(site, {}).empty()) return absl::OkStatus();
  // One wait for all files of the site.
  Absence& absence = awaited_.try_emplace(site, Absence{.begin = Clock::now(), .next_notice = Clock::now()}).first->second;
  ++absence.waiting;
  const absl::Cleanup waits_no_more = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (--absence.waiting == 0) awaited_.erase(site);
  };
  while (HolderOf(site, {}).empty()) {
    if (closed_ || cancelled()) return CalledOff();
    if (run_ends_ && IsLeft(site)) return absl::UnavailableError("all its executors that hold shards were asked to end");
    const Clock::time_point deadline = absence.begin + absence_timeout_;
    if (absent_.contains(site) || Clock::now() >= deadline) {
      absent_.insert(site);
      return absl::UnavailableError(absl::StrCat("no executor of that site that holds shards takes part",
                                                 options_.fixed_executors ? ", and none can join a run without --listen" : ""));
    }
    if (Clock::now() >= absence.next_notice) {
      absence.next_notice = Clock::now() + options_.notify_interval;
      NotifyAwaited(lock, folder, file, deadline);
    }
    news_.wait_for(lock, kLook);
    NotifyProgress(lock);
  }
  return absl::OkStatus();
}

absl::Status ShardFetcher::AwaitFile(std::unique_lock<std::mutex>& lock, uint64_t id, const std::function<bool()>& cancelled,
                                     const std::function<void()>& moved) {
  const std::string executor = asked_.at(id).executor;
  Clock::time_point last = heard_[executor];
  while (true) {
    const Asked& asked = asked_.at(id);
    const Clock::time_point heard = heard_[executor];
    if (moved && heard != last) {
      last = heard;
      lock.unlock();
      moved();
      lock.lock();
    }
    if (asked.ended) return asked.status;
    if (closed_ || cancelled()) return CalledOff();
    if (!holders_.contains(executor)) return absl::UnavailableError("it has left");
    if (Clock::now() >= heard + options_.silence_timeout) return absl::DeadlineExceededError("nothing has come for too long");
    news_.wait_for(lock, kLook);
  }
}

absl::Status ShardFetcher::AskOne(std::unique_lock<std::mutex>& lock, const std::string& executor, const std::string& folder,
                                  const checkpoint::FileEntry& file, const std::function<bool()>& cancelled,
                                  const std::function<void()>& moved) {
  const bool busy = std::any_of(asked_.begin(), asked_.end(), [&](const auto& asked) { return asked.second.executor == executor; });
  if (!busy) heard_[executor] = Clock::now();
  const uint64_t id = next_++;
  asked_[id] = {.executor = executor, .folder = folder, .file = file};
  v1::BrokerMessage order;
  order.mutable_send_shard()->set_recall(id);
  v1::SiteFile& wanted = *order.mutable_send_shard()->mutable_file();
  wanted.set_name(file.name);
  wanted.set_site_folder(file.site_folder);
  wanted.set_bytes(file.bytes);
  wanted.set_sha256(file.sha256);
  const Send send = send_;
  lock.unlock();
  const bool sent = send && send(executor, std::move(order));
  lock.lock();
  absl::Status status = sent ? AwaitFile(lock, id, cancelled, moved) : absl::UnavailableError("it is not connected");
  // A sender that is still at it writes under the name that the next one would: it is waited for.
  if (!status.ok() && asked_.at(id).cancel && !asked_.at(id).ended) asked_.at(id).cancel();
  while (!status.ok() && asked_.at(id).cancel && !asked_.at(id).ended) news_.wait_for(lock, kLook);
  if (asked_.at(id).ended && asked_.at(id).status.ok()) status = absl::OkStatus();
  asked_.erase(id);
  if (!status.ok() || !on_fetched_) return status;
  const auto on_fetched = on_fetched_;
  lock.unlock();
  on_fetched(file, executor);
  lock.lock();
  return status;
}

absl::Status ShardFetcher::Ask(std::unique_lock<std::mutex>& lock, const std::string& folder, const checkpoint::FileEntry& file,
                               const std::function<bool()>& cancelled, const std::function<void()>& moved) {
  std::set<std::string> without;  // executors that have it not as it was written
  std::string reasons;
  for (int round = 0; round < options_.rounds; ++round) {
    if (round > 0)
      news_.wait_for(lock, options_.round_pause, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_ || cancelled(); });
    if (const absl::Status there = AwaitHolder(lock, folder, file, cancelled); !there.ok()) return there;
    std::set<std::string> tried = without;
    for (std::string executor = HolderOf(file.site, tried); !executor.empty(); executor = HolderOf(file.site, tried)) {
      tried.insert(executor);
      const absl::Status status = AskOne(lock, executor, folder, file, cancelled, moved);
      const bool of_file = absl::IsDataLoss(status) || absl::IsInvalidArgument(status) || absl::IsOutOfRange(status);
      const bool of_connection = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
      if (!of_file && !of_connection) return status;  // it has come, it is not waited for, or the disk here is at fault
      absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", executor, ": ", std::string(status.message()));
      if (of_file) without.insert(executor);
    }
    if (tried == without) return absl::DataLossError(reasons);
  }
  return absl::UnavailableError(reasons);
}

absl::Status ShardFetcher::FetchShard(const std::string& folder, const checkpoint::FileEntry& file, const std::function<bool()>& cancelled,
                                      const std::function<void()>& moved) {
  const std::string path = absl::StrCat(folder, "/", file.name);
  base::UniqueLock lock(mutex_);
  while (true) {
    const auto [place, first] = waiting_.try_emplace(path, std::make_shared<Waiting>());
    const std::shared_ptr<Waiting> waiting = place->second;
    if (first) {
      waiting->status = Ask(lock, folder, file, cancelled, moved);
      if (const absl::Status& status = waiting->status; !status.ok() && !absl::IsCancelled(status)) {
        waiting->status = absl::Status(status.code(), absl::StrCat(file.name, " of ", folder, " lies in site ", file.site,
                                                                   ", from where it cannot be had: ", std::string(status.message())));
      }
      waiting->over = true;
      waiting_.erase(path);
      news_.notify_all();
      return waiting->status;
    }
    while (!waiting->over) {
      if (closed_ || cancelled()) return CalledOff();
      news_.wait_for(lock, kLook);
    }
    if (!absl::IsCancelled(waiting->status)) return waiting->status;  // else who asked has gone, and this one asks
  }
}

absl::StatusOr<std::unique_ptr<ShardFetcher::IncomingShard>> ShardFetcher::Take(const std::string& executor, uint64_t id,
                                                                                std::function<void()> cancel) {
  const base::MutexLock lock(mutex_);
  const auto asked = asked_.find(id);
  if (asked == asked_.end() || asked->second.executor != executor || asked->second.cancel || asked->second.ended) {
    return absl::PermissionDeniedError(absl::StrCat("executor '", executor, "' was not asked for this file of a shard"));
  }
  asked->second.cancel = std::move(cancel);
  heard_[executor] = Clock::now();
  return std::make_unique<IncomingShard>(*this, id, asked->second.folder, asked->second.file);
}

void ShardFetcher::Moved(uint64_t id) {
  const base::MutexLock lock(mutex_);
  if (const auto asked = asked_.find(id); asked != asked_.end()) heard_[asked->second.executor] = Clock::now();
}

void ShardFetcher::End(uint64_t id, const absl::Status& status) {
  const base::MutexLock lock(mutex_);
  const auto asked = asked_.find(id);
  if (asked == asked_.end()) return;
  asked->second.ended = true;
  asked->second.status = status;
  heard_[asked->second.executor] = Clock::now();
  news_.notify_all();
}

}  // namespace fusionllm::services
