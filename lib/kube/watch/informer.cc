#include "lib/kube/watch/informer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/kube/api/resource_version.h"

namespace fusionllm::kube {
namespace {

constexpr size_t kKeptPending = 64;

// Caches of one kind in several namespaces are distinguished.
std::string MetricsName(const WatchScope& scope) {
  return scope.ns.empty() ? scope.resource.Name() : absl::StrCat(scope.resource.Name(), "/", scope.ns);
}

// And not only of one name.
bool IsSame(const ObjectPtr& a, const ObjectPtr& b) { return a != nullptr && b != nullptr && a->meta.uid == b->meta.uid; }

}  // namespace

Informer::Informer(ApiClient& client, Clock& clock, const InformerMetrics* metrics, Options options)
    : client_(client),
      clock_(clock),
      options_(std::move(options)),
      recorder_(metrics == nullptr ? InformerMetrics::Recorder() : metrics->Of(options_.cluster, MetricsName(options_.scope))),
      reflector_(client, clock, options_.scope, options_.decode, *this, recorder_, options_.limits, options_.seed) {}

Informer::~Informer() {
  Stop();
  recorder_.Leave();
}

void Informer::AddIndex(const std::string& name, IndexFunction function) {
  const base::MutexLock lock(mutex_);
  store_.AddIndex(name, std::move(function));
}

void Informer::AddHandler(Handler handler, absl::Duration resync) {
  const base::MutexLock lock(mutex_);
  auto& listener = *listeners_.emplace_back(std::make_unique<Listener>());
  listener.handler = std::move(handler);
  listener.resync = resync;
  listener.next_resync = clock_.Monotonic() + resync;
  if (!listed_) return;
  for (const ObjectPtr& object : store_.All()) {
    Enqueue(listener, object->meta.Key(), {.now = object, .initial = true, .received = clock_.Monotonic()});
  }
  listener.initial_left = static_cast<int64_t>(listener.order.size());
  TellQueuedLocked();
  changed_.notify_all();
}

void Informer::Start() {
  reader_ = std::jthread([this](std::stop_token stop) { reflector_.Run(std::move(stop)); });
  dispatcher_ = std::jthread([this](const std::stop_token& stop) { Dispatch(stop); });
}

void Informer::Stop() {
  for (std::jthread* thread : {&reader_, &dispatcher_}) {
    if (thread->joinable()) thread->request_stop();
  }
  for (std::jthread* thread : {&reader_, &dispatcher_}) {
    if (thread->joinable()) thread->join();
  }
}

bool Informer::HasSynced() const {
  const base::MutexLock lock(mutex_);
  return SyncedLocked();
}

bool Informer::SyncedLocked() const {
  return listed_ && std::all_of(listeners_.begin(), listeners_.end(), [](const auto& listener) { return listener->initial_left == 0; });
}

bool Informer::WaitForSync(absl::Duration timeout) const {
  return WaitUntil([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return SyncedLocked(); }, timeout);
}

bool Informer::WaitForFirstList(absl::Duration timeout) const {
  return WaitUntil([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return state_.synced || !state_.last_error.ok(); }, timeout);
}

bool Informer::WaitUntil(absl::FunctionRef<bool()> holds, absl::Duration timeout) const {
  const absl::Duration deadline = clock_.Monotonic() + timeout;
  base::UniqueLock lock(mutex_);
  while (!holds()) {
    if (clock_.Monotonic() >= deadline || reader_.get_stop_token().stop_requested()) return false;
    clock_.WaitUntil(lock, changed_, deadline);
  }
  return true;
}

InformerState Informer::State() const {
  const base::MutexLock lock(mutex_);
  return state_;
}

ObjectPtr Informer::Get(const ObjectKey& key) const {
  const base::MutexLock lock(mutex_);
  return store_.Get(key);
}

std::vector<ObjectPtr> Informer::Find(const std::string& index, const std::string& value) const {
  const base::MutexLock lock(mutex_);
  return store_.Find(index, value);
}

std::vector<ObjectPtr> Informer::All() const {
  const base::MutexLock lock(mutex_);
  return store_.All();
}

size_t Informer::size() const {
  const base::MutexLock lock(mutex_);
  return store_.size();
}

std::string Informer::resource_version() const {
  const base::MutexLock lock(mutex_);
  return version_;
}

void Informer::Replace(std::vector<ObjectPtr> objects, const std::vector<ObjectKey>& unreadable, const std::string& resource_version) {
  const base::MutexLock lock(mutex_);
  absl::flat_hash_set<ObjectKey> there(unreadable.begin(), unreadable.end());
  for (ObjectPtr& object : objects) {
    const ObjectKey key = object->meta.Key();
    there.insert(key);
    const ObjectPtr old = store_.Get(key);
    if (old != nullptr && old->meta.resource_version == object->meta.resource_version) continue;
    store_.Put(object);
    NotifyLocked(key, old, object, nullptr);
  }
  for (const ObjectKey& key : store_.Keys()) {
    if (there.contains(key)) continue;
    const ObjectPtr old = store_.Remove(key);
    NotifyLocked(key, old, nullptr, old);
  }
  unreadable_.clear();
  more_unreadable_ = false;
  for (const ObjectKey& key : unreadable) KeepUnreadableLocked(key);
  version_ = resource_version;
  if (!listed_) {
    listed_ = state_.synced = true;
    for (const auto& listener : listeners_) {
      for (auto& [key, pending] : listener->pending) pending.initial = true;
      listener->initial_left = static_cast<int64_t>(listener->order.size());
    }
  }
  StoredLocked();
}

absl::Status Informer::Fits(const Object& object) {
  const base::MutexLock lock(mutex_);
  const ObjectPtr old = store_.Get(object.meta.Key());
  const size_t more = object.Bytes(), less = old == nullptr ? 0 : old->Bytes();
  return Reflector::CheckSize(options_.limits, store_.size() + (old == nullptr ? 1 : 0), store_.bytes() - less + more);
}

void Informer::Apply(WatchEventType type, ObjectPtr object) {
  const base::MutexLock lock(mutex_);
  const ObjectKey key = object->meta.Key();
  FollowLocked(object->meta.resource_version);
  unreadable_.erase(key);
  if (type == WatchEventType::kDeleted) {
    const ObjectPtr old = store_.Remove(key);
    if (old != nullptr) NotifyLocked(key, old, nullptr, object);
  } else {
    const ObjectPtr old = store_.Put(object);
    NotifyLocked(key, old, object, nullptr);
  }
  StoredLocked();
}

void Informer::Unreadable(const ObjectKey& key, const std::string& resource_version) {
  const base::MutexLock lock(mutex_);
  FollowLocked(resource_version);
  KeepUnreadableLocked(key);
  StoredLocked();
}

void Informer::KeepUnreadableLocked(const ObjectKey& key) {
  if (unreadable_.contains(key)) return;
  if (unreadable_.size() >= kMaxUnreadable) {
    more_unreadable_ = true;
  } else {
    unreadable_.insert(key);
  }
}

void Informer::FollowLocked(const std::string& resource_version) {
  if (CompareResourceVersions(resource_version, version_).value_or(1) > 0) version_ = resource_version;
}

void Informer::Advance(const std::string& resource_version) {
  const base::MutexLock lock(mutex_);
  version_ = resource_version;
  StoredLocked();
}

void Informer::Watching(bool open, const absl::Status& why) {
  const base::MutexLock lock(mutex_);
  state_.watching = open;
  if (!open && !why.ok()) state_.last_error = why;
  changed_.notify_all();
}

void Informer::StoredLocked() {
  recorder_.Stored(store_.size(), version_);
  TellQueuedLocked();
  changed_.notify_all();
}

void Informer::TellQueuedLocked() {
  size_t queued = 0;
  for (const auto& listener : listeners_) queued += listener->order.size();
  recorder_.Queued(queued);
}

void Informer::NotifyLocked(const ObjectKey& key, const ObjectPtr& old, const ObjectPtr& now, const ObjectPtr& last) {
  for (const auto& listener : listeners_) {
    Enqueue(*listener, key, {.known = old, .now = now, .last = last, .received = clock_.Monotonic()});
  }
}

void Informer::Enqueue(Listener& listener, const ObjectKey& key, Pending pending) {
  const auto [at, is_new] = listener.pending.try_emplace(key, pending);
  if (is_new) {
    listener.order.push_back(key);
    return;
  }
  // It has not got the change before either: its picture stays, and so does the time since when it is out of date.
  Pending& waits = at->second;
  const ObjectPtr& end = pending.last != nullptr ? pending.last : pending.known;
  if (IsSame(waits.known, end) && !IsSame(end, pending.now)) waits.last = end;  // whatever comes by that name before this is delivered
  waits.now = std::move(pending.now);
  waits.resync = false;
}

void Informer::Dispatch(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    const base::MutexLock lock(mutex_);
    changed_.notify_all();
  });
  base::UniqueLock lock(mutex_);
  while (!stop.stop_requested()) {
    bool dispatched = false;
    absl::Duration deadline = absl::InfiniteDuration();
    for (size_t i = 0; i < listeners_.size(); ++i) {  // handlers may add listeners meanwhile
      Listener& listener = *listeners_[i];
      if (listener.initial_left >= 0 && clock_.Monotonic() >= listener.next_resync) ResyncLocked(listener);
      deadline = std::min(deadline, listener.next_resync);
      if (listener.order.empty()) continue;
      const ObjectKey key = std::move(listener.order.front());
      listener.order.pop_front();
      const auto found = listener.pending.find(key);
      const Pending pending = std::move(found->second);
      listener.pending.erase(found);
      // After a burst, the first list above all, it would keep the room of all that waited.
      if (listener.pending.empty() && listener.pending.capacity() > kKeptPending) listener.pending = decltype(listener.pending)();
      TellQueuedLocked();
      lock.unlock();
      Tell(listener.handler, pending);
      recorder_.Handled(clock_.Monotonic() - pending.received);
      lock.lock();
      if (listener.initial_left > 0) --listener.initial_left;
      dispatched = true;
      if (stop.stop_requested()) return;
    }
    if (dispatched) {
      changed_.notify_all();  // for those who wait for the first list to be delivered
      continue;
    }
    clock_.WaitUntil(lock, changed_, deadline);
  }
}

void Informer::ResyncLocked(Listener& listener) {
  listener.next_resync = clock_.Monotonic() + listener.resync;
  for (const ObjectPtr& object : store_.All()) {
    const ObjectKey key = object->meta.Key();
    if (listener.pending.contains(key)) continue;
    Enqueue(listener, key, {.known = object, .now = object, .resync = true, .received = clock_.Monotonic()});
  }
  TellQueuedLocked();
}

void Informer::Tell(const Handler& handler, const Pending& pending) {
  using Kind = InformerEvent::Kind;
  const auto& [known, now, last, initial, resync, received] = pending;
  const bool replaced = known != nullptr && now != nullptr && known->meta.uid != now->meta.uid;
  if (known != nullptr && (now == nullptr || replaced)) {
    // The state in which it went, unless that was another object's of the same name that came and went untold.
    handler({.kind = Kind::kDeleted, .object = IsSame(last, known) ? last : known, .old = known});
  }
  if (now == nullptr) return;
  if (known == nullptr || replaced) return handler({.kind = Kind::kAdded, .object = now, .initial = initial});
  handler({.kind = Kind::kUpdated, .object = now, .old = known, .resync = resync});
}

}  // namespace fusionllm::kube
