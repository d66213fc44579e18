#include "lib/collective/testing/in_memory_network.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace fusionllm::collective::testing {

InMemoryNetwork::InMemoryNetwork(int size, FaultOptions faults) : faults_(std::move(faults)), draw_(faults_.seed) {
  for (int rank = 0; rank < size; ++rank) mailboxes_.push_back(std::make_unique<Mailbox>(*this, rank));
}

void InMemoryNetwork::Lose(int rank, bool silently) {
  const base::MutexLock lock(mutex_);
  lost_.emplace(rank, silently);
}

std::vector<InMemoryNetwork::Sent> InMemoryNetwork::sent() const {
  const base::MutexLock lock(mutex_);
  return sent_;
}

absl::Status InMemoryNetwork::Send(int from, int to, const Chunk& chunk, Bytes bytes) {
  if (faults_.handle && !faults_.handle(from, to, chunk, bytes)) return absl::OkStatus();
  const base::MutexLock lock(mutex_);
  sent_.push_back({.from = from, .to = to, .chunk = chunk, .bytes = bytes.size()});
  for (const int rank : {to, from}) {
    const auto lost = lost_.find(rank);
    if (lost == lost_.end()) continue;
    return lost->second ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("no connection to rank ", rank));
  }
  Mailbox& box = *mailboxes_[static_cast<size_t>(to)];
  box.under_way_.emplace_back(Key(from, chunk), std::move(bytes));
  if (!faults_.late || draw_() % 2 == 0) box.DeliverOne();
  box.changed_.notify_all();
  return absl::OkStatus();
}

void InMemoryNetwork::Mailbox::DeliverOne() {
  const size_t which = network_.faults_.late ? network_.draw_() % under_way_.size() : 0;
  here_.insert(std::move(under_way_[which]));
  under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(which));
}

absl::StatusOr<std::vector<std::byte>> InMemoryNetwork::Mailbox::Receive(int from, const Chunk& chunk, absl::Time deadline) {
  base::UniqueLock lock(network_.mutex_);
  while (true) {
    if (!cancelled_.ok()) return cancelled_;
    if (auto found = here_.extract(Key(from, chunk)); !found.empty()) return std::move(found.mapped());
    const absl::Time now = absl::Now();
    if (now >= deadline) return absl::DeadlineExceededError("no chunk yet");
    if (!under_way_.empty()) {
      DeliverOne();
    } else {
      changed_.wait_for(lock, absl::ToChronoMicroseconds(deadline - now) + std::chrono::microseconds(1));
    }
  }
}

void InMemoryNetwork::Mailbox::Cancel(absl::Status why) {
  const base::MutexLock lock(network_.mutex_);
  if (cancelled_.ok()) cancelled_ = std::move(why);
  changed_.notify_all();
}

}  // namespace fusionllm::collective::testing
