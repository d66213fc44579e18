// Files of checkpoints that lie in sites, brought into the broker's folder: asked of the executors of a site, which send them by
// checkpoint.proto.
//
// What comes is what a manifest says, length and checksum included; it appears in the checkpoint's folder when it is whole. A file is under
// way once, however many wait for it. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/base/mutex.h"
#include "lib/checkpoint/manifest.h"
#include "services/messages_fwd.h"

namespace fusionllm::services {

// No executor of a site is there that has files which are wanted.
struct WaitingForSite {
  std::string site, folder, first;  // the folder of the checkpoint, and one of its files that lie there
  int files = 0;
  std::chrono::seconds left{0};  // until it is given up
};

struct ShardFetcherOptions {
  // For an executor of the site to be there, once until another of the site joins: one that was restarted is back within seconds, and
  // without its files a run may lose all its steps.
  std::chrono::milliseconds absence_timeout{60'000};
  // How often a wait is reported.
  std::chrono::milliseconds notify_interval{60'000};
  // Executors are all there that ever will be: none is waited for.
  bool fixed_executors = false;
  // For the next bytes of an executor that was asked, of whichever file: it sends one after the other.
  std::chrono::milliseconds silence_timeout{60'000};
  // How often all of a site are asked where a connection broke, or nothing came: that says nothing about the file.
  int rounds = 3;
  std::chrono::milliseconds round_pause{2'000};
};

class ShardFetcher {
 public:
  using Send = std::function<bool(const std::string& executor, v1::BrokerMessage order)>;
  explicit ShardFetcher(ShardFetcherOptions options = {})
      : options_(options), absence_timeout_(options.fixed_executors ? std::chrono::milliseconds(0) : options.absence_timeout) {}

  // Before the first executor joins.
  void SendBy(Send send);
  // Executors that hold shards of their site.
  void AddExecutor(const std::string& executor, const std::string& site);
  void RemoveExecutor(const std::string& executor);
  // Before RemoveExecutor, of one that was asked to end and says so.
  void MarkLeaving(const std::string& executor);
  // Called, from threads of calls, for bytes that have come and for waiting that is not in vain yet.
  void OnProgress(std::function<void()> progress);

  // Called for each file that has come, and from whom; from the thread that waited.
  void OnFetched(std::function<void(const checkpoint::FileEntry& file, const std::string& executor)> on_fetched);

  // Called when waiting for a site begins, and now and then while it lasts; from a thread that waits.
  void OnWaiting(std::function<void(const WaitingForSite& awaited)> on_awaited);
  // The run ends: from now on no executor is waited for longer than that, and none of a site all of whose executors were asked to end, as
  // those of a job that is deleted are. Thread-safe, as all here.
  void SetShutdownTimeout(std::chrono::milliseconds timeout);
  // Whether all executors of these sites that held shards were asked to end, as those of a job that is deleted are: nothing can be had of
  // them, and it is not wanted. Waits so long for those who have not said so yet.
  bool AllShuttingDown(const std::set<std::string>& sites, std::chrono::milliseconds timeout);
  // What is waited for now is waited for no longer.
  void CancelWaits();

  // Puts `file`, which lies in a site, into the folder of its checkpoint, which the caller keeps from being removed. Blocks. Errors name
  // file and site: Unavailable when no executor of the site is there or gets it through, DataLoss when those who are there have it not as
  // it was written, Cancelled by `cancelled` or Close, others of the disk here. `moved`, which may be empty, is called now and then
  // while bytes come.
  absl::Status FetchShard(const std::string& folder, const checkpoint::FileEntry& file, const std::function<bool()>& cancelled,
                          const std::function<void()>& moved = {});
  // Ends all waiting, now and later.
  void Close();

  // ---- For the exchange that executors send to ----
  // A file on its way. Its owner ends it with Done() or, with an error, by destroying it.
  class IncomingShard {
   public:
    IncomingShard(ShardFetcher& fetcher, uint64_t id, std::string folder, checkpoint::FileEntry file)
        : fetcher_(fetcher), id_(id), folder_(std::move(folder)), file_(std::move(file)) {}
    ~IncomingShard() { fetcher_.End(id_, status_); }
    IncomingShard(const IncomingShard&) = delete;
    IncomingShard& operator=(const IncomingShard&) = delete;

    const std::string& folder() const { return folder_; }
    const checkpoint::FileEntry& file() const { return file_; }
    void Moved() { fetcher_.Moved(id_); }
    void Done(absl::Status status) { status_ = std::move(status); }

   private:
    ShardFetcher& fetcher_;
    const uint64_t id_;
    const std::string folder_;
    const checkpoint::FileEntry file_;
    absl::Status status_ = absl::DataLossError("it ended without its checksum");
  };
  // `cancel` may be called until the arrival has ended. Errors: PermissionDenied where this executor was not asked, or is sending already.
  absl::StatusOr<std::unique_ptr<IncomingShard>> Take(const std::string& executor, uint64_t id, std::function<void()> cancel);

 private:
  using Clock = std::chrono::steady_clock;
  struct Asked {
    std::string executor, folder;
    checkpoint::FileEntry file;
    std::function<void()> cancel;  // set: it is sending
    bool ended = false;
    absl::Status status;
  };
  struct Absence {  // of a site, while somebody waits for it
    Clock::time_point begin, next_notice;
    int waiting = 0;
  };
  struct Departure {
    std::string site;
    bool shutdown_requested = false;
  };
  struct Waiting {  // for one file
    bool over = false;
    absl::Status status;
  };

  absl::Status Ask(std::unique_lock<std::mutex>& lock, const std::string& folder, const checkpoint::FileEntry& file,
                   const std::function<bool()>& cancelled, const std::function<void()>& moved) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether executors of the site have left, each of them because it was asked to end.
  bool IsLeft(const std::string& site) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of the site and not in `tried`; empty: none.
  std::string HolderOf(const std::string& site, const std::set<std::string>& tried) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AwaitHolder(std::unique_lock<std::mutex>& lock, const std::string& folder, const checkpoint::FileEntry& file,
                           const std::function<bool()>& cancelled) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AwaitFile(std::unique_lock<std::mutex>& lock, uint64_t id, const std::function<bool()>& cancelled,
                         const std::function<void()>& moved) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // One executor's try. Errors: those of FetchShard.
  absl::Status AskOne(std::unique_lock<std::mutex>& lock, const std::string& executor, const std::string& folder,
                      const checkpoint::FileEntry& file, const std::function<bool()>& cancelled, const std::function<void()>& moved)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Moved(uint64_t id);
  void End(uint64_t id, const absl::Status& status);
  void NotifyProgress(std::unique_lock<std::mutex>& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NotifyAwaited(std::unique_lock<std::mutex>& lock, const std::string& folder, const checkpoint::FileEntry& file,
                     Clock::time_point deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ShardFetcherOptions options_;
  mutable base::Mutex mutex_;
  std::condition_variable news_;
  Send send_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> progress_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const checkpoint::FileEntry& file, const std::string& executor)> on_fetched_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const WaitingForSite& awaited)> on_awaited_ ABSL_GUARDED_BY(mutex_);
  std::chrono::milliseconds absence_timeout_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point last_progress_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool run_ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::string> holders_ ABSL_GUARDED_BY(mutex_);  // executor -> site
  std::set<std::string> leaving_ ABSL_GUARDED_BY(mutex_);               // of these, who is about to leave
  std::map<std::string, Departure> departed_ ABSL_GUARDED_BY(mutex_);   // holders that were there, by executor
  std::map<std::string, Absence> awaited_ ABSL_GUARDED_BY(mutex_);      // by site
  std::set<std::string> absent_ ABSL_GUARDED_BY(mutex_);                // sites that were waited for in vain
  // Executor -> when it last sent something of a file, or was asked while it was idle.
  std::map<std::string, Clock::time_point> heard_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Asked> asked_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Waiting>> waiting_ ABSL_GUARDED_BY(mutex_);  // by path
};

}  // namespace fusionllm::services
