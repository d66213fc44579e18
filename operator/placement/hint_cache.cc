#include "operator/placement/hint_cache.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fusionllm::op::placement {
namespace {

size_t FingerprintOf(const PlacementQuery& query) {
  return std::hash<std::string>()(absl::StrCat(query.job_document, "\n---\n", query.profiles_document));
}

}  // namespace

HintCache::HintCache(Ask ask, Answered answered, kube::Clock& clock)
    : ask_(std::move(ask)), answered_(std::move(answered)), clock_(clock), thread_([this](const std::stop_token& stop) { Work(stop); }) {}

HintCache::~HintCache() = default;

std::optional<PlacementHint> HintCache::HintFor(const manifests::JobIdentity& job, const PlacementQuery& query) {
  const size_t fingerprint = FingerprintOf(query);
  const absl::Duration now = clock_.Monotonic();
  const base::MutexLock lock(mutex_);
  if (!known_.contains(job.uid) && known_.size() >= kMaxJobs) {
    std::erase_if(known_, [&](const auto& entry) { return entry.second.hint.has_value() && now - entry.second.used_at >= kEntryTtl; });
    if (known_.size() >= kMaxJobs) return PlacementHintOf(absl::ResourceExhaustedError("too many jobs ask at once"));
  }
  Entry& entry = known_[job.uid];
  entry.used_at = now;
  const absl::Duration since = entry.waits_since.value_or(now);
  if (entry.fingerprint != fingerprint) {
    entry.fingerprint = fingerprint;
    entry.hint.reset();
    Put(job, query, fingerprint, since);
  }
  if (entry.hint.has_value()) {
    entry.waits_since.reset();
    return entry.hint;
  }
  entry.waits_since = since;
  if (now - since >= kTimeout) return PlacementHintOf(absl::DeadlineExceededError("no answer in time"));
  return std::nullopt;
}

// A query in place of one that waits has its turn.
void HintCache::Put(const manifests::JobIdentity& job, const PlacementQuery& query, size_t fingerprint, absl::Duration since) {
  Waiting put{.job = job, .query = query, .fingerprint = fingerprint, .since = since};
  const auto at = std::find_if(queue_.begin(), queue_.end(), [&](const Waiting& each) { return each.job.uid == job.uid; });
  if (at == queue_.end()) {
    queue_.push_back(std::move(put));
  } else {
    *at = std::move(put);
  }
  changed_.notify_one();
}

void HintCache::Work(const std::stop_token& stop) {
  while (true) {
    Waiting waiting;
    {
      base::UniqueLock lock(mutex_);
      if (!changed_.wait(lock, stop, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !queue_.empty(); }) || stop.stop_requested())
        return;
      waiting = std::move(queue_.front());
      queue_.pop_front();
    }
    PlacementHint hint = PlacementHintOf(Answer(waiting, stop));
    {
      const base::MutexLock lock(mutex_);
      const auto at = known_.find(waiting.job.uid);
      // Another query has been put meanwhile, and waits.
      if (at == known_.end() || at->second.fingerprint != waiting.fingerprint) continue;
      at->second.hint = std::move(hint);
    }
    answered_(waiting.job);
  }
}

absl::StatusOr<std::string> HintCache::Answer(const Waiting& waiting, const std::stop_token& stop) {
  const absl::Duration left = waiting.since + kTimeout - clock_.Monotonic();
  if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("it was busy with other jobs");
  return ask_(waiting.query, std::min(left, kCallTimeout), stop);
}

}  // namespace fusionllm::op::placement
