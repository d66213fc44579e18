#include "lib/collective/testing/letter_box.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace fusionllm::collective::testing {

PostOffice::PostOffice(int members, Habits habits) : habits_(std::move(habits)), draw_(habits_.seed) {
  for (int rank = 0; rank < members; ++rank) boxes_.push_back(std::make_unique<Box>(*this, rank));
}

void PostOffice::Lose(int rank, bool silently) {
  const std::lock_guard lock(mutex_);
  lost_.emplace(rank, silently);
}

std::vector<PostOffice::Sent> PostOffice::sent() const {
  const std::lock_guard lock(mutex_);
  return sent_;
}

absl::Status PostOffice::Send(int from, int to, const Letter& letter, Bytes bytes) {
  if (habits_.handle && !habits_.handle(from, to, letter, bytes)) return absl::OkStatus();
  const std::lock_guard lock(mutex_);
  sent_.push_back({.from = from, .to = to, .letter = letter, .bytes = bytes.size()});
  for (const int rank : {to, from}) {
    const auto lost = lost_.find(rank);
    if (lost == lost_.end()) continue;
    return lost->second ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("no connection to member ", rank));
  }
  Box& box = *boxes_[static_cast<size_t>(to)];
  box.under_way_.emplace_back(Key(from, letter), std::move(bytes));
  if (!habits_.late || draw_() % 2 == 0) box.DeliverOne();
  box.changed_.notify_all();
  return absl::OkStatus();
}

void PostOffice::Box::DeliverOne() {
  const size_t which = office_.habits_.late ? office_.draw_() % under_way_.size() : 0;
  here_.insert(std::move(under_way_[which]));
  under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(which));
}

absl::StatusOr<std::vector<std::byte>> PostOffice::Box::Take(int from, const Letter& letter, absl::Time deadline) {
  std::unique_lock lock(office_.mutex_);
  while (true) {
    if (!cancelled_.ok()) return cancelled_;
    if (auto found = here_.extract(Key(from, letter)); !found.empty()) return std::move(found.mapped());
    const absl::Time now = absl::Now();
    if (now >= deadline) return absl::DeadlineExceededError("no letter yet");
    if (!under_way_.empty()) {
      DeliverOne();
    } else {
      changed_.wait_for(lock, absl::ToChronoMicroseconds(deadline - now) + std::chrono::microseconds(1));
    }
  }
}

void PostOffice::Box::Cancel(absl::Status why) {
  const std::lock_guard lock(office_.mutex_);
  if (cancelled_.ok()) cancelled_ = std::move(why);
  changed_.notify_all();
}

}  // namespace fusionllm::collective::testing
