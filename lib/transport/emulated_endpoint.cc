#include "lib/transport/emulated_endpoint.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/base/timer_slack.h"
#include "lib/transport/frame.h"
#include "lib/transport/link_samples.h"
#include "lib/transport/message.h"

namespace fusionllm::transport {
namespace {

// What passes quicker measures the granularity of clocks, not the link. A slow link is measured by small messages too, as compression
// makes.
constexpr int64_t kRateSampleNsMin = 2'000'000;

struct Waiting {
  MessageHeader header;
  Payload payload;
  uint64_t wire_bytes_left;
  int64_t queued_ns;
  int64_t begun_ns = -1;
  int64_t arrival_ns = 0;
};

struct Link {
  Link(std::string peer, LinkEmulator emulator) : peer(std::move(peer)), emulator(std::move(emulator)) {}
  const std::string peer;
  LinkEmulator emulator;  // used by the link's own thread alone
  std::array<std::deque<Waiting>, kPriorityCount> queues;
  size_t bytes = 0;   // payload queued
  bool busy = false;  // a message is being handed to the inner endpoint
  int64_t line_free_ns = 0;
  std::array<int64_t, kPriorityCount> last_arrival_ns{};
  double bandwidth_bytes_per_s = 0;
  uint64_t bandwidth_samples = 0;
  // Of messages since the last sample.
  uint64_t passed_bytes = 0;
  int64_t passage_ns = 0;
  double rtt_s = 0;
  std::condition_variable wake;
  std::thread thread;

  bool empty() const {
    return std::all_of(queues.begin(), queues.end(), [](const auto& queue) { return queue.empty(); });
  }
};

struct Arrived {
  std::string from;
  MessageHeader header;
  Payload payload;
};

class EmulatedEndpoint : public Endpoint {
 public:
  EmulatedEndpoint(std::shared_ptr<Endpoint> inner, EmulationOptions options, std::map<std::string, std::unique_ptr<Link>> links)
      : inner_(std::move(inner)), options_(std::move(options)), clock_(*options_.clock), links_(std::move(links)) {
    for (auto& [name, link] : links_) link->thread = std::thread([this, link = link.get()] { RunLink(*link); });
    delivery_ = std::thread([this] { RunDelivery(); });
    inner_->SetPeerFailure([this](absl::string_view peer, const absl::Status& why) {
      DropQueue(peer);
      base::MutexLock lock(mu_);
      failures_.emplace_back(std::string(peer), why);
      delivery_wake_.notify_one();
    });
    inner_->SetReceiver(
        [this](absl::string_view from, const MessageHeader& header, Payload payload) { Hold(from, header, std::move(payload)); });
  }
  ~EmulatedEndpoint() override { EmulatedEndpoint::Close(); }

  absl::string_view name() const override { return inner_->name(); }

  absl::Status CanSend(absl::string_view peer, const MessageHeader& header, size_t bytes) const override {
    return inner_->CanSend(peer, header, bytes);
  }

  absl::Status Send(absl::string_view peer, const MessageHeader& header, Payload payload) override {
    const auto found = links_.find(std::string(peer));
    if (found == links_.end()) return inner_->Send(peer, header, std::move(payload));
    Link& link = *found->second;
    base::UniqueLock lock(mu_);
    while (true) {
      if (closing_) return absl::CancelledError(absl::StrCat("endpoint ", std::string(name()), " is closed"));
      FUSIONLLM_RETURN_IF_ERROR(inner_->CanSend(peer, header, payload.size()));
      if (header.priority == Priority::kControl || link.empty() || link.bytes + payload.size() <= options_.queue_bytes_max) break;
      changed_.wait(lock);
    }
    link.bytes += payload.size();
    const uint64_t wire_bytes = WireBytes(payload.size(), options_.chunk_bytes);
    link.queues[static_cast<size_t>(header.priority)].push_back({header, std::move(payload), wire_bytes, clock_.NowNs()});
    link.wake.notify_one();
    return absl::OkStatus();
  }

  void SetReceiver(Receiver receiver) override {
    base::MutexLock lock(mu_);
    receiver_ = std::move(receiver);
    delivery_wake_.notify_one();
  }

  void SetPeerFailure(PeerFailure callback) override {
    base::MutexLock lock(mu_);
    peer_failure_ = std::move(callback);
    delivery_wake_.notify_one();
  }

  void CancelEpoch(uint32_t epoch) override {
    inner_->CancelEpoch(epoch);
    base::MutexLock lock(mu_);
    oldest_epoch_ = std::max(oldest_epoch_, epoch);
    for (const auto& entry : links_) {
      Link& link = *entry.second;
      for (auto& queue : link.queues) {
        std::erase_if(queue, [&](const Waiting& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
          if (!IsStale(message.header, oldest_epoch_)) return false;
          link.bytes -= message.payload.size();
          return true;
        });
      }
    }
    std::erase_if(held_, [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      if (!IsStale(entry.second.header, oldest_epoch_)) return false;
      held_bytes_ -= entry.second.payload.size();
      return true;
    });
    changed_.notify_all();
  }

  void ForgetPeer(absl::string_view peer) override {
    inner_->ForgetPeer(peer);
    DropQueue(peer);
    base::MutexLock lock(mu_);
    std::erase_if(failures_, [&](const auto& failure) { return peer == failure.first; });
  }

  bool ForgetPreviousIncarnation(absl::string_view peer, uint64_t incarnation) override {
    const bool forgotten = inner_->ForgetPreviousIncarnation(peer, incarnation);
    if (forgotten) DropQueue(peer);
    base::MutexLock lock(mu_);
    std::erase_if(failures_, [&](const auto& failure) { return peer == failure.first; });
    return forgotten;
  }

  LinkStats stats(absl::string_view peer) const override {
    LinkStats stats = inner_->stats(peer);
    const auto found = links_.find(std::string(peer));
    if (found == links_.end()) return stats;
    base::MutexLock lock(mu_);
    stats.bandwidth_bytes_per_s = found->second->bandwidth_bytes_per_s;
    stats.bandwidth_samples = found->second->bandwidth_samples;
    stats.rtt_s = found->second->rtt_s;
    return stats;
  }

  void Close() override {
    base::MutexLock one_at_a_time(close_mu_);
    {
      base::UniqueLock lock(mu_);
      if (stopping_) return;
      closing_ = true;
      changed_.notify_all();
      changed_.wait_for(lock, options_.linger, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return std::all_of(links_.begin(), links_.end(), [](const auto& entry) { return entry.second->empty() && !entry.second->busy; });
      });
      stopping_ = true;
      for (auto& [name, link] : links_) link->wake.notify_one();
      delivery_wake_.notify_one();
      changed_.notify_all();
    }
    inner_->Close();  // releases a link thread that is blocked in its Send()
    for (auto& [name, link] : links_) link->thread.join();
    delivery_.join();
  }

 private:
  void DropQueue(absl::string_view peer) {
    const auto found = links_.find(std::string(peer));
    base::MutexLock lock(mu_);
    if (found != links_.end()) {
      for (auto& queue : found->second->queues) queue.clear();
      found->second->bytes = 0;
    }
    changed_.notify_all();
  }

  void RunLink(Link& link) {
    base::SetMinimalTimerSlack();
    base::UniqueLock lock(mu_);
    while (true) {
      link.wake.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || !link.empty(); });
      if (stopping_) return;
      if (std::optional<Waiting> passed = PassSlice(link)) {
        // The last slice is passing: meanwhile the inner transport does its work.
        link.busy = true;
        lock.unlock();
        // An error needs no answer: a failed peer is reported by the inner endpoint, a cancelled message is to be dropped.
        inner_->Send(link.peer, passed->header, std::move(passed->payload)).IgnoreError();
        lock.lock();
        link.busy = false;
        changed_.notify_all();
      }
      while (!stopping_ && clock_.NowNs() < link.line_free_ns) clock_.WaitUntil(lock, link.wake, link.line_free_ns);
    }
  }

  // Sends the next slice of the most urgent message; returns the message when that was its last.
  std::optional<Waiting> PassSlice(Link& link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const size_t priority = static_cast<size_t>(
        std::find_if(link.queues.begin(), link.queues.end(), [](const auto& q) { return !q.empty(); }) - link.queues.begin());
    Waiting& message = link.queues[priority].front();
    const int64_t ready_ns = std::max({message.queued_ns, link.line_free_ns, clock_.NowNs() - options_.catch_up_ns_max});
    const uint64_t bytes = std::min(message.wire_bytes_left, link.emulator.slice_bytes());
    const LinkEmulator::Transit passage = link.emulator.Pass(ready_ns, bytes);
    if (message.begun_ns < 0) message.begun_ns = ready_ns;
    message.wire_bytes_left -= bytes;
    message.arrival_ns = std::max(message.arrival_ns, passage.arrival_ns);
    link.line_free_ns = passage.sent_ns;
    if (message.wire_bytes_left > 0) return std::nullopt;
    Waiting passed = std::move(message);
    link.queues[priority].pop_front();
    link.bytes -= passed.payload.size();
    link.last_arrival_ns[priority] = passed.arrival_ns = std::max(passed.arrival_ns, link.last_arrival_ns[priority]);
    passed.header.not_before_ns = passed.arrival_ns;
    const uint64_t wire_bytes = WireBytes(passed.payload.size(), options_.chunk_bytes);
    // Small messages together: one that had to let another link's traffic pass says little of the rate.
    link.passed_bytes += wire_bytes;
    link.passage_ns += passage.sent_ns - passed.begun_ns;
    if ((link.passed_bytes >= kRateSampleBytesMin && link.passage_ns > 0) || link.passage_ns >= kRateSampleNsMin) {
      link.bandwidth_bytes_per_s =
          Smooth(link.bandwidth_bytes_per_s, static_cast<double>(link.passed_bytes) * 1e9 / static_cast<double>(link.passage_ns));
      ++link.bandwidth_samples;
      link.passed_bytes = 0;
      link.passage_ns = 0;
    }
    // No acknowledgement passes an emulated link: the round trip is taken as twice the way of a small message.
    if (wire_bytes < 4096) link.rtt_s = Smooth(link.rtt_s, 2e-9 * static_cast<double>(passed.arrival_ns - passed.begun_ns));
    return passed;
  }

  // Called by the inner endpoint. Blocks it when too much has come ahead of its time.
  void Hold(absl::string_view from, const MessageHeader& header, Payload payload) {
    base::UniqueLock lock(mu_);
    changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return stopping_ || held_.empty() || held_bytes_ + payload.size() <= options_.queue_bytes_max;
    });
    if (stopping_ || IsStale(header, oldest_epoch_)) return;
    held_bytes_ += payload.size();
    held_.emplace(header.not_before_ns, Arrived{std::string(from), header, std::move(payload)});
    delivery_wake_.notify_one();
  }

  void RunDelivery() {
    base::SetMinimalTimerSlack();
    base::UniqueLock lock(mu_);
    while (!stopping_) {
      if (peer_failure_ && !failures_.empty()) {
        const auto [peer, why] = std::move(failures_.front());
        failures_.pop_front();
        const PeerFailure callback = peer_failure_;
        lock.unlock();
        callback(peer, why);
        lock.lock();
        continue;
      }
      if (held_.empty() || !receiver_) {
        delivery_wake_.wait(lock);
        continue;
      }
      const auto next = held_.begin();  // of equal times the first that came
      if (next->first > clock_.NowNs()) {
        clock_.WaitUntil(lock, delivery_wake_, next->first);
        continue;
      }
      Arrived message = std::move(next->second);
      held_.erase(next);
      held_bytes_ -= message.payload.size();
      changed_.notify_all();
      const Receiver receiver = receiver_;
      lock.unlock();
      receiver(message.from, message.header, std::move(message.payload));
      lock.lock();
    }
  }

  const std::shared_ptr<Endpoint> inner_;
  const EmulationOptions options_;
  Clock& clock_;
  const std::map<std::string, std::unique_ptr<Link>> links_;

  // Guards the contents of links_ as well; taken before the inner endpoint's locks, never held in its Send().
  mutable base::Mutex mu_;
  std::condition_variable changed_;
  std::condition_variable delivery_wake_;
  Receiver receiver_ ABSL_GUARDED_BY(mu_);
  PeerFailure peer_failure_ ABSL_GUARDED_BY(mu_);
  std::deque<std::pair<std::string, absl::Status>> failures_ ABSL_GUARDED_BY(mu_);
  std::multimap<int64_t, Arrived> held_ ABSL_GUARDED_BY(mu_);  // by arrival time
  size_t held_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint32_t oldest_epoch_ ABSL_GUARDED_BY(mu_) = 0;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  base::Mutex close_mu_;  // one Close() at a time
  std::thread delivery_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Endpoint>> MakeEmulatedEndpoint(std::shared_ptr<Endpoint> inner, EmulationOptions options) {
  if (options.buckets == nullptr || options.chunk_bytes == 0)
    return absl::InvalidArgumentError("link emulation needs buckets and a chunk size");
  std::map<std::string, std::unique_ptr<Link>> links;
  for (const auto& [peer, path] : options.paths) {
    const std::string name = absl::StrCat(std::string(inner->name()), "->", peer);
    FUSIONLLM_ASSIGN_OR_RETURN(LinkEmulator emulator, LinkEmulator::Create(options.buckets, path, options.seed, name));
    links[peer] = std::make_unique<Link>(peer, std::move(emulator));
  }
  return std::make_unique<EmulatedEndpoint>(std::move(inner), std::move(options), std::move(links));
}

}  // namespace fusionllm::transport
