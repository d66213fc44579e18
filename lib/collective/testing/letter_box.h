// Letters between members in one process, for tests: with all that mail may do, by seed, and what it may not.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lib/collective/mail.h"

namespace fusionllm::collective::testing {

using Bytes = std::vector<std::byte>;

// A box for each member. Unbounded; thread-safe; outlives who uses its mail.
class PostOffice {
 public:
  struct Habits {
    bool late = false;  // letters overtake each other at random, and some come only when their receiver has nothing else to wait for
    uint32_t seed = 1;  // of that
    // What becomes of a letter, before it goes, on the sender's thread; may change its bytes, and use the post office. False: it is lost.
    std::function<bool(int from, int to, const Letter&, std::vector<std::byte>&)> handle;
  };
  explicit PostOffice(int members) : PostOffice(members, Habits()) {}
  PostOffice(int members, Habits habits);

  Mail& mail(int rank) { return *boxes_[static_cast<size_t>(rank)]; }

  // From now on nothing reaches this member, and nothing comes from it. Who sends to it is told so, or finds out in time.
  void Lose(int rank, bool silently);

  struct Sent {
    int from, to;
    Letter letter;
    size_t bytes;
  };
  std::vector<Sent> sent() const;  // all of it so far, by whoever sent first

 private:
  using Bytes = std::vector<std::byte>;
  using Key = std::pair<int, Letter>;  // with its sender

  class Box final : public Mail {
   public:
    Box(PostOffice& office, int rank) : office_(office), rank_(rank) {}
    absl::Status Send(int to, const Letter& letter, Bytes bytes) override { return office_.Send(rank_, to, letter, std::move(bytes)); }
    absl::StatusOr<Bytes> Take(int from, const Letter& letter, absl::Time deadline) override;
    void Cancel(absl::Status why) override;

   private:
    friend class PostOffice;
    void DeliverOne();

    PostOffice& office_;
    const int rank_;
    // Guarded by the office's mutex.
    std::condition_variable changed_;
    std::map<Key, Bytes> here_;
    std::vector<std::pair<Key, Bytes>> under_way_;
    absl::Status cancelled_;
  };

  absl::Status Send(int from, int to, const Letter& letter, Bytes bytes);

  const Habits habits_;
  mutable std::mutex mutex_;
  std::mt19937 draw_;
  std::vector<std::unique_ptr<Box>> boxes_;
  std::map<int, bool> lost_;  // whether silently
  std::vector<Sent> sent_;
};

}  // namespace fusionllm::collective::testing
