#include "lib/kube/queue/work_queue.h"

#include <algorithm>

namespace fusionllm::kube {
namespace {

// A waiter looks again this often even if it is not woken: insurance against a wake-up that was lost.
constexpr absl::Duration kHeartbeat = absl::Seconds(10);
constexpr size_t kKeptEntries = 64;

}  // namespace

WorkQueue::WorkQueue(std::string name, Clock& clock, QueueMetrics* metrics, RetryLimits limits)
    : name_(std::move(name)), clock_(clock), metrics_(metrics), limits_(limits) {
  if (metrics_ != nullptr) metrics_->Enter(this);
}

WorkQueue::~WorkQueue() {
  if (metrics_ != nullptr) metrics_->Leave(this);
}

void WorkQueue::Add(const WorkKey& key, Priority priority) {
  const base::MutexLock lock(mutex_);
  if (!shut_down_) AddLocked(key, priority);
}

void WorkQueue::AddAfter(const WorkKey& key, absl::Duration delay, Priority priority) {
  const base::MutexLock lock(mutex_);
  if (!shut_down_) AddAfterLocked(key, delay, priority);
}

void WorkQueue::AddRateLimited(const WorkKey& key, Priority priority) {
  const base::MutexLock lock(mutex_);
  if (shut_down_) return;
  Entry& entry = entries_[key];
  const absl::Duration own = BackoffDelay(limits_, entry.failures);
  if (own < limits_.max_delay) ++entry.failures;
  auto bucket = buckets_.find(key.cluster);
  if (bucket == buckets_.end()) bucket = buckets_.emplace(key.cluster, TokenBucket(limits_.per_second, limits_.burst)).first;
  AddAfterLocked(key, std::max(own, bucket->second.Take(clock_.Monotonic(), limits_.max_delay)), priority);
}

void WorkQueue::Forget(const WorkKey& key) {
  const base::MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  found->second.failures = 0;
  EraseIfIdle(found);
}

int WorkQueue::Failures(const WorkKey& key) const {
  const base::MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  return found == entries_.end() ? 0 : found->second.failures;
}

std::optional<WorkKey> WorkQueue::Get() {
  base::UniqueLock lock(mutex_);
  for (;;) {
    AddDue();
    if (std::optional<WorkKey> key = Pop()) return key;
    if (shut_down_) return std::nullopt;
    absl::Duration deadline = clock_.Monotonic() + kHeartbeat;
    if (!due_.empty()) deadline = std::min(deadline, due_.begin()->at);
    clock_.WaitUntil(lock, changed_, deadline);
  }
}

void WorkQueue::Done(const WorkKey& key) {
  const base::MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end() || !found->second.processing) return;
  Entry& entry = found->second;
  entry.processing = false;
  --processing_;
  if (metrics_ != nullptr) metrics_->Worked(name_, clock_.Monotonic() - entry.started_at);
  if (entry.added) {
    EnterLane(*found);
  } else {
    EraseIfIdle(found);
  }
  changed_.notify_all();  // a drain waits for this as well
}

void WorkQueue::ShutDown() {
  const base::MutexLock lock(mutex_);
  shut_down_ = true;
  due_.clear();
  changed_.notify_all();
}

bool WorkQueue::ShutDownWithDrain(absl::Duration timeout) {
  ShutDown();
  const absl::Duration deadline = clock_.Monotonic() + timeout;
  base::UniqueLock lock(mutex_);
  while (depth_ > 0 || processing_ > 0) {
    if (clock_.Monotonic() >= deadline) return false;
    clock_.WaitUntil(lock, changed_, deadline);
  }
  return true;
}

size_t WorkQueue::Depth() const {
  const base::MutexLock lock(mutex_);
  return depth_;
}

QueueMetrics::Unfinished WorkQueue::UnfinishedWork() const {
  const base::MutexLock lock(mutex_);
  const absl::Duration now = clock_.Monotonic();
  QueueMetrics::Unfinished unfinished;
  for (const auto& [key, entry] : entries_) {
    if (!entry.processing) continue;
    unfinished.together += now - entry.started_at;
    unfinished.longest = std::max(unfinished.longest, now - entry.started_at);
  }
  return unfinished;
}

void WorkQueue::AddLocked(const WorkKey& key, Priority priority) {
  Entries::value_type& of = *entries_.try_emplace(key).first;
  Entry& entry = of.second;
  if (entry.added) {
    if (priority <= entry.priority) return;
    const bool waits = entry.place.has_value();  // else it is being worked on, and enters its lane when done
    if (waits) LeaveLane(of);
    entry.priority = priority;
    if (waits) EnterLane(of);
    return;
  }
  entry.added = true;
  entry.priority = priority;
  entry.added_at = clock_.Monotonic();
  if (metrics_ != nullptr) metrics_->Added(name_);
  if (!entry.processing) EnterLane(of);
}

void WorkQueue::AddAfterLocked(const WorkKey& key, absl::Duration delay, Priority priority) {
  if (metrics_ != nullptr) metrics_->Retried(name_);
  if (delay <= absl::ZeroDuration()) return AddLocked(key, priority);
  auto& [kept_key, entry] = *entries_.try_emplace(key).first;
  const absl::Duration due = clock_.Monotonic() + delay;
  if (entry.due.has_value()) {
    entry.due_priority = std::max(entry.due_priority, priority);
    if (*entry.due <= due) return;
    due_.erase({*entry.due, &kept_key});
  } else {
    entry.due_priority = priority;
  }
  entry.due = due;
  due_.insert({due, &kept_key});
  if (due_.begin()->key == &kept_key) changed_.notify_all();  // everyone sleeps until the first
}

void WorkQueue::EnterLane(Entries::value_type& of) {
  auto& [key, entry] = of;
  Lane& lane = LaneOf(entry.priority);
  Keys& keys = lane.clusters[key.cluster];
  if (keys.empty()) lane.turns.push_back(key.cluster);
  entry.place = keys.insert(keys.end(), &key);
  ++depth_;
  if (metrics_ != nullptr) metrics_->Depth(name_, depth_);
  changed_.notify_one();
}

void WorkQueue::LeaveLane(Entries::value_type& of) {
  auto& [key, entry] = of;
  Lane& lane = LaneOf(entry.priority);
  const auto keys = lane.clusters.find(key.cluster);
  keys->second.erase(*entry.place);
  entry.place.reset();
  --depth_;
  if (!keys->second.empty()) return;
  lane.clusters.erase(keys);
  lane.turns.erase(std::find(lane.turns.begin(), lane.turns.end(), key.cluster));
}

void WorkQueue::AddDue() {
  const absl::Duration now = clock_.Monotonic();
  while (!due_.empty() && due_.begin()->at <= now) {
    const WorkKey& key = *due_.begin()->key;
    due_.erase(due_.begin());
    Entry& entry = entries_.find(key)->second;
    entry.due.reset();
    AddLocked(key, entry.due_priority);
  }
}

std::optional<WorkKey> WorkQueue::Pop() {
  const bool low_first = (taken_ + 1) % kLowPriorityTurn == 0;
  std::optional<WorkKey> key = PopLane(lanes_[low_first ? 0 : 1]);
  if (!key.has_value()) key = PopLane(lanes_[low_first ? 1 : 0]);
  if (!key.has_value()) return key;
  ++taken_;
  Entry& entry = entries_.find(*key)->second;
  entry.added = false;
  entry.processing = true;
  entry.started_at = clock_.Monotonic();
  ++processing_;
  if (metrics_ != nullptr) {
    metrics_->Depth(name_, depth_);
    metrics_->Waited(name_, entry.started_at - entry.added_at);
  }
  return key;
}

std::optional<WorkKey> WorkQueue::PopLane(Lane& lane) {
  if (lane.turns.empty()) return std::nullopt;
  Entries::value_type& of = *entries_.find(*lane.clusters.find(lane.turns.front())->second.front());
  LeaveLane(of);
  // Its cluster's next turn comes after those of all others.
  if (!lane.turns.empty() && lane.turns.front() == of.first.cluster) {
    lane.turns.push_back(std::move(lane.turns.front()));
    lane.turns.pop_front();
  }
  return of.first;
}

void WorkQueue::EraseIfIdle(Entries::iterator at) {
  const Entry& entry = at->second;
  if (entry.added || entry.processing || entry.due.has_value() || entry.failures > 0) return;
  entries_.erase(at);
  // After a burst it would keep the room of all that waited.
  if (entries_.capacity() > kKeptEntries && entries_.size() < entries_.capacity() / 16) entries_.rehash(0);
}

}  // namespace fusionllm::kube
