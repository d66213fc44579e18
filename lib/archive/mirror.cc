#include "lib/archive/mirror.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lib/base/status_macros.h"
#include "lib/checkpoint/reader.h"

namespace fusionllm::archive {
namespace {

constexpr absl::Duration kHurriedPause = absl::Seconds(2);

bool IsThere(const std::string& folder) {
  std::error_code error;
  return std::filesystem::exists(absl::StrCat(folder, "/", checkpoint::kManifestName), error);
}

}  // namespace

Mirror::Mirror(const MakeTarget& make, MirrorOptions options)
    : options_(std::move(options)),
      target_(make({.progress = [this](int64_t) { Moved(); },
                    .stop = stop_.get_token(),
                    .retried = [this](const std::string& sentence) { Retried(sentence); }})),
      moved_(absl::Now()) {}

Mirror::~Mirror() {
  stop_.request_stop();
  if (worker_.joinable()) worker_.join();
}

void Mirror::Moved() {
  const base::MutexLock lock(mutex_);
  moved_ = absl::Now();
}

void Mirror::Retried(const std::string& sentence) {
  {
    const base::MutexLock lock(mutex_);
    last_retry_ = sentence;
  }
  if (options_.retried) options_.retried(sentence);
}

void Mirror::Offer(const std::string& folder, int64_t step) {
  const base::MutexLock lock(mutex_);
  if (options_.every_steps > 0 && step % options_.every_steps != 0) {
    left_out_ = {folder, step};
    return;
  }
  left_out_.reset();
  // What is offered twice, as when a run begins again, is found to be there already.
  waiting_.push_back({folder, step});
  if (!worker_.joinable()) worker_ = std::jthread([this] { Work(); });
  news_.notify_all();
}

bool Mirror::behind() const {
  const base::MutexLock lock(mutex_);
  return !waiting_.empty() || left_out_.has_value();
}

absl::Status Mirror::Copy(const Offered& offered, std::string& where) {
  // Holds it against removal (reader.h).
  FUSIONLLM_ASSIGN_OR_RETURN(const checkpoint::CheckpointReader reader,
                             checkpoint::CheckpointReader::Open(offered.folder, checkpoint::SiteFilesPolicy::kSkip));
  if (!reader.files_in_other_sites().empty() && gather_) {
    FUSIONLLM_RETURN_IF_ERROR(gather_(offered.folder, reader.files_in_other_sites(), stop_.get_token(), [this] { Moved(); }));
  }
  FUSIONLLM_RETURN_IF_ERROR(checkpoint::CheckpointReader::Open(offered.folder).status());
  if (!reader.manifest()) return absl::DataLossError(absl::StrCat(offered.folder, " has lost its manifest"));
  FUSIONLLM_ASSIGN_OR_RETURN(where, target_->Put(offered.folder, *reader.manifest()));
  return target_->Prune(options_.keep, options_.first_sequence);
}

void Mirror::Work() {
  const std::stop_token stop = stop_.get_token();
  absl::Duration pause = options_.initial_backoff;
  bool reported = false;
  while (true) {
    Offered next;
    {
      base::UniqueLock lock(mutex_);
      if (!news_.wait(lock, stop, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !waiting_.empty(); })) return;
      next = waiting_.front();
    }
    std::string where;
    // The folder keeps only its newest, and so would the place.
    const bool gone = !IsThere(next.folder);
    const absl::Status status = gone ? absl::OkStatus() : Copy(next, where);
    if (stop.stop_requested()) return;
    const bool damaged = absl::IsDataLoss(status);  // here: another try changes nothing
    // Before it counts as done: who waits for it in Finish() has heard of it.
    if (options_.on_event && !gone && (status.ok() || damaged || !reported)) {
      const std::string sentence =
          absl::StrCat("the copy of step ", next.step, " to ", target_->name(), " failed: ", std::string(status.message()),
                       damaged ? "; it is passed over" : "; training goes on, and it is tried again until it works");
      options_.on_event({.copied = status.ok(), .step = next.step, .message = status.ok() ? where : sentence});
    }
    base::UniqueLock lock(mutex_);
    last_error_ = status;
    if (!failing_since_) failing_since_ = absl::Now();
    if (status.ok() || damaged) {
      failing_since_.reset();
      waiting_.pop_front();
      moved_ = absl::Now();
      last_retry_.clear();
      pause = options_.initial_backoff;
      news_.notify_all();
    }
    const bool hurry = hurry_;
    lock.unlock();
    reported = !status.ok();
    if (status.ok() || damaged) continue;
    lock.lock();
    const absl::Duration now = hurry ? std::min(pause, kHurriedPause) : pause;
    news_.wait_for(lock, stop, absl::ToChronoNanoseconds(now), [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return hurry_ != hurry; });
    pause = std::min(pause * 2, options_.max_backoff);
  }
}

absl::Status Mirror::Finish(absl::Duration timeout, std::stop_token stop) {
  base::UniqueLock lock(mutex_);
  if (left_out_) {
    waiting_.push_back(*std::exchange(left_out_, std::nullopt));
    if (!worker_.joinable()) worker_ = std::jthread([this] { Work(); });
  }
  hurry_ = true;
  moved_ = absl::Now();
  if (failing_since_) failing_since_ = moved_;
  news_.notify_all();
  while (!waiting_.empty() && !stop.stop_requested()) {
    // Bytes that are taken and then refused are no progress.
    const absl::Time since = failing_since_ ? std::min(moved_, *failing_since_) : moved_;
    const absl::Duration left = timeout - (absl::Now() - since);
    if (left <= absl::ZeroDuration()) break;
    news_.wait_for(lock, stop, absl::ToChronoNanoseconds(std::min(absl::Seconds(1), left)),
                   [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return waiting_.empty(); });
  }
  if (waiting_.empty()) return last_error_;
  if (!last_error_.ok()) return last_error_;
  return absl::DeadlineExceededError(absl::StrCat("nothing has moved to ", target_->name(), " for ", absl::FormatDuration(timeout),
                                                  last_retry_.empty() ? "" : ": ", last_retry_));
}

}  // namespace fusionllm::archive
