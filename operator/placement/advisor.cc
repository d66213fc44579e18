#include "operator/placement/advisor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace fusionllm::op {
namespace {

size_t FingerprintOf(const Question& question) {
  return std::hash<std::string>()(absl::StrCat(question.job_document, "\n---\n", question.profiles_document));
}

}  // namespace

Advisor::Advisor(Ask ask, Answered answered, kube::Clock& clock)
    : ask_(std::move(ask)), answered_(std::move(answered)), clock_(clock), thread_([this](const std::stop_token& stop) { Work(stop); }) {}

Advisor::~Advisor() = default;

std::optional<Advice> Advisor::Advise(const JobIdentity& job, const Question& question) {
  const size_t fingerprint = FingerprintOf(question);
  const absl::Duration now = clock_.Monotonic();
  const std::lock_guard lock(mutex_);
  if (!known_.contains(job.uid) && known_.size() >= kMaxJobs) {
    std::erase_if(known_,
                  [&](const auto& entry) { return entry.second.advice.has_value() && now - entry.second.used_at >= kRememberedFor; });
    if (known_.size() >= kMaxJobs) return AdviceOf(absl::ResourceExhaustedError("too many jobs ask at once"));
  }
  Entry& entry = known_[job.uid];
  entry.used_at = now;
  const absl::Duration since = entry.waits_since.value_or(now);
  if (entry.fingerprint != fingerprint) {
    entry.fingerprint = fingerprint;
    entry.advice.reset();
    Put(job, question, fingerprint, since);
  }
  if (entry.advice.has_value()) {
    entry.waits_since.reset();
    return entry.advice;
  }
  entry.waits_since = since;
  if (now - since >= kPatience) return AdviceOf(absl::DeadlineExceededError("no answer in time"));
  return std::nullopt;
}

// A question in place of one that waits has its turn.
void Advisor::Put(const JobIdentity& job, const Question& question, size_t fingerprint, absl::Duration since) {
  Waiting put{.job = job, .question = question, .fingerprint = fingerprint, .since = since};
  const auto at = std::find_if(queue_.begin(), queue_.end(), [&](const Waiting& each) { return each.job.uid == job.uid; });
  if (at == queue_.end()) {
    queue_.push_back(std::move(put));
  } else {
    *at = std::move(put);
  }
  changed_.notify_one();
}

void Advisor::Work(const std::stop_token& stop) {
  while (true) {
    Waiting waiting;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return !queue_.empty(); }) || stop.stop_requested()) return;
      waiting = std::move(queue_.front());
      queue_.pop_front();
    }
    Advice advice = AdviceOf(Answer(waiting, stop));
    {
      const std::lock_guard lock(mutex_);
      const auto at = known_.find(waiting.job.uid);
      // Another question has been put meanwhile, and waits.
      if (at == known_.end() || at->second.fingerprint != waiting.fingerprint) continue;
      at->second.advice = std::move(advice);
    }
    answered_(waiting.job);
  }
}

absl::StatusOr<std::string> Advisor::Answer(const Waiting& waiting, const std::stop_token& stop) {
  const absl::Duration left = waiting.since + kPatience - clock_.Monotonic();
  if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("it was busy with other jobs");
  return ask_(waiting.question, std::min(left, kCallPatience), stop);
}

}  // namespace fusionllm::op
