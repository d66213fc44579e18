#include "operator/cache/progress_poller.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"

namespace fusionllm::op::cache {

ProgressPoller::ProgressPoller(kube::Clock& clock, Fetch fetch, Changed changed, PageHandler on_page, EventHandler happened, int threads)
    : clock_(clock),
      fetch_(std::move(fetch)),
      changed_(std::move(changed)),
      on_page_(std::move(on_page)),
      happened_(std::move(happened)),
      of_namespace_max_(std::max(1, threads / 2)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this](const std::stop_token& stop) { Run(stop); });
}

ProgressPoller::~ProgressPoller() {
  for (std::jthread& thread : threads_) thread.request_stop();
}

std::optional<lifecycle::Progress> ProgressPoller::Follow(const kube::WorkKey& job, const std::string& uid, const std::string& address) {
  const base::MutexLock lock(mutex_);
  const auto [at, is_new] = followed_.try_emplace(uid);
  Followed& followed = at->second;
  if (!is_new && followed.address == address) return followed.newest;
  const bool asking = followed.asking;
  if (!is_new && !asking) Remove(uid, followed);
  followed = {.job = job, .address = address, .next = clock_.Monotonic(), .asking = asking};
  if (!asking) waiting_.emplace(followed.next, uid);  // else when the answer is there
  return followed.newest;
}

void ProgressPoller::Forget(const std::string& uid) {
  const base::MutexLock lock(mutex_);
  const auto at = followed_.find(uid);
  if (at == followed_.end()) return;
  if (!at->second.asking) Remove(uid, at->second);
  followed_.erase(at);
}

void ProgressPoller::Remove(const std::string& uid, const Followed& followed) {
  waiting_.erase({followed.next, uid});
  if (const auto of = asked_of_.find(followed.job.ns); of != asked_of_.end()) of->second.held_back.erase({followed.next, uid});
}

void ProgressPoller::Run(const std::stop_token& stop) {
  absl::Duration wait = kEvery;
  while (clock_.WaitFor(wait, stop)) {
    while (std::optional<Question> question = Take()) {
      Ask(*std::move(question));
      if (stop.stop_requested()) return;
    }
    const base::MutexLock lock(mutex_);
    wait = waiting_.empty() ? kEvery : std::clamp(waiting_.begin()->first - clock_.Monotonic(), kMinWait, kEvery);
  }
}

std::optional<ProgressPoller::Question> ProgressPoller::Take() {
  const base::MutexLock lock(mutex_);
  const absl::Duration now = clock_.Monotonic();
  while (!waiting_.empty() && waiting_.begin()->first <= now) {
    const Turn turn = *waiting_.begin();
    waiting_.erase(waiting_.begin());
    Followed& followed = followed_.at(turn.second);
    OfNamespace& of = asked_of_[followed.job.ns];
    if (of.asked >= of_namespace_max_) {
      of.held_back.insert(turn);
      continue;
    }
    ++of.asked;
    followed.asking = true;
    return Question{followed.job, turn.second, followed.address, followed.last_event};
  }
  return std::nullopt;
}

void ProgressPoller::Answered(const Question& question, bool ok, absl::Duration took) {
  const base::MutexLock lock(mutex_);
  const auto of = asked_of_.find(question.job.ns);
  --of->second.asked;
  auto& held = of->second.held_back;
  if (!held.empty()) waiting_.insert(held.extract(held.begin()));
  if (of->second.asked == 0 && held.empty()) asked_of_.erase(of);
  const auto at = followed_.find(question.uid);
  // One that was forgotten meanwhile and is followed again has its turn already.
  if (at == followed_.end() || !at->second.asking) return;
  Followed& followed = at->second;
  followed.asking = false;
  absl::Duration rest;  // none for another address, which has not been asked yet
  if (followed.address == question.address) {
    rest = std::max(kEvery, std::min(kBackoffFactor * took, kMaxBackoff));
    if (took >= kSlow) {
      followed.pause = std::clamp(2 * followed.pause, kEvery, kMaxBackoff);
      rest = std::max(rest, followed.pause);
    } else if (ok) {
      followed.pause = absl::ZeroDuration();
    }
  }
  followed.next = clock_.Monotonic() + rest;
  waiting_.emplace(followed.next, question.uid);
}

void ProgressPoller::Ask(Question question) {
  const absl::Duration asked = clock_.Monotonic();
  const absl::StatusOr<std::string> page = fetch_(question.address);
  const absl::Duration took = clock_.Monotonic() - asked;
  const absl::Cleanup answered = [&] { Answered(question, page.ok(), took); };
  if (!page.ok()) return;  // starting, or ending: its pod tells
  const absl::StatusOr<lifecycle::ProgressPage> read = lifecycle::ParseProgressPage(*page, question.last_event, clock_.Now());
  if (!read.ok()) return;
  kube::WorkKey job;
  bool moved = false;
  {
    const base::MutexLock lock(mutex_);
    const auto at = followed_.find(question.uid);
    if (at == followed_.end() || at->second.address != question.address) return;
    moved = at->second.newest != read->progress;
    at->second.newest = read->progress;
    at->second.last_event = question.last_event;
    job = at->second.job;
  }
  for (const lifecycle::RunEvent& event : read->events) {
    if (happened_) happened_(job, question.uid, event);
  }
  if (!moved) return;
  if (on_page_) on_page_(job, *page);  // what it says of links is news only where it says more, too
  changed_(job);
}

}  // namespace fusionllm::op::cache
