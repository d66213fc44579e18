// What goes wrong in a chain, at a letter that the seed chooses: all members end, with an error that says what it was, and none hangs.
#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/status_macros.h"
#include "lib/collective/chain_communicator.h"
#include "lib/collective/chain_letters.h"
#include "lib/collective/testing/letter_box.h"
#include "lib/tensor/memory.h"

namespace fusionllm::collective {
namespace {

using tensor::DType;
using tensor::TensorView;
using testing::Bytes;
using ::testing::HasSubstr;
using testing::PostOffice;

// Found by who waits in vain, and by nothing else.
constexpr absl::Duration kShort = absl::Milliseconds(100);
constexpr absl::Duration kLong = absl::Minutes(1);  // ctest would tell

// Calls of all kinds in an order of the seed's, until one fails.
absl::Status CallForever(Communicator& c, uint32_t seed) {
  std::mt19937 draw(seed);  // the same on all
  while (true) {
    const auto count = static_cast<int64_t>(draw() % 60);
    const int kind = static_cast<int>(draw() % 4), root = static_cast<int>(draw() % static_cast<uint32_t>(c.size()));
    std::vector<float> x(static_cast<size_t>(count)), all(x.size() * static_cast<size_t>(c.size()));
    std::vector<uint16_t> y(x.size());
    const TensorView one = {{DType::kF32, {count}}, x.data()}, half = {{DType::kBF16, {count}}, y.data()},
                     whole = {{DType::kF32, {count * c.size()}}, all.data()};
    const TensorView both[] = {half, one};
    const Exchange gather[] = {{one, whole}}, scatter[] = {{whole, one}};
    FUSIONLLM_RETURN_IF_ERROR(kind == 0   ? c.AllReduce(both)
                              : kind == 1 ? c.Broadcast(both, root)
                              : kind == 2 ? c.AllGather(gather)
                                          : c.ReduceScatter(scatter));
  }
}

class Faulty {
 public:
  // What happens to a letter: whether it happened, and whether the letter goes on.
  struct Outcome {
    bool happened = true, goes = true;
  };
  using Fault = std::function<Outcome(Faulty&, int from, int to, const Letter&, Bytes&)>;

  Faulty(uint32_t seed, absl::Duration patience, Fault fault)
      : draw_(seed), size_(static_cast<int>(draw_() % 4) + 2), due_(static_cast<int>(draw_() % 400)), fault_(std::move(fault)) {
    victim_ = static_cast<int>(draw_() % static_cast<uint32_t>(size_));
    office_ = std::make_unique<PostOffice>(
        size_,
        PostOffice::Habits{.late = draw_() % 2 == 0, .seed = seed, .handle = [this](auto&&... letter) { return Handle(letter...); }});
    for (int rank = 0; rank < size_; ++rank) {
      auto made = MakeChain({.group = "g", .epoch = 1, .rank = rank, .size = size_}, tensor::HostMemory(), office_->mail(rank),
                            {.patience = {.in_calls = patience}, .letter_bytes = 50});
      EXPECT_TRUE(made.ok()) << made.status();
      members_.push_back(*std::move(made));
    }
    std::vector<std::thread> threads;
    statuses_.resize(members_.size());
    for (size_t rank = 0; rank < members_.size(); ++rank) {
      threads.emplace_back([&, rank] { statuses_[rank] = CallForever(*members_[rank], seed); });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t rank = 0; rank < members_.size(); ++rank) {
      EXPECT_FALSE(statuses_[rank].ok());
      EXPECT_EQ(members_[rank]->AllReduce({}), statuses_[rank]) << "the first error stays";
    }
  }

  int victim() const { return victim_; }
  PostOffice& office() { return *office_; }
  Communicator& member(int rank) { return *members_[static_cast<size_t>(rank)]; }
  const std::vector<absl::Status>& statuses() const { return statuses_; }

 private:
  bool Handle(int from, int to, const Letter& letter, Bytes& bytes) {
    if (++handled_ <= due_ || over_.exchange(true)) return true;
    const Outcome outcome = fault_(*this, from, to, letter, bytes);
    over_ = outcome.happened;
    return outcome.goes;
  }

  std::mt19937 draw_;
  const int size_;
  const int due_;  // the letter
  const Fault fault_;
  int victim_ = 0;
  std::atomic<int> handled_ = 0;
  std::atomic<bool> over_ = false;
  std::unique_ptr<PostOffice> office_;
  std::vector<std::unique_ptr<Communicator>> members_;
  std::vector<absl::Status> statuses_;  // by rank
};

constexpr uint32_t kSeeds = 24;

bool IsData(const Letter& letter) { return letter.round >= 0; }
bool IsGreeting(const Letter& letter) { return letter.round == -1; }

TEST(ChainFaultsTest, AnAbortEndsAllWithItsWords) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const Faulty run(seed, kLong, [](Faulty& faulty, int, int, const Letter&, Bytes&) {
      faulty.member(faulty.victim()).Abort(absl::CancelledError("told to stop"));
      return Faulty::Outcome{};
    });
    for (const absl::Status& status : run.statuses()) {
      EXPECT_EQ(status, absl::CancelledError(absl::StrCat("replica ", run.victim(), " of ", run.statuses().size(),
                                                          " of group 'g' in plan epoch 1: told to stop")));
    }
  }
}

TEST(ChainFaultsTest, ALostMemberEndsAll) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    for (const bool silently : {false, true}) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, silently ? ", silently" : ""));
      const Faulty run(seed, kShort, [silently](Faulty& faulty, int, int, const Letter&, Bytes&) {
        faulty.office().Lose(faulty.victim(), silently);
        return Faulty::Outcome{};
      });
      for (const absl::Status& status : run.statuses()) EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    }
  }
}

TEST(ChainFaultsTest, MailThatIsCancelledByItsOwnerEndsAll) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const Faulty run(seed, kLong, [](Faulty& faulty, int, int, const Letter&, Bytes&) {
      faulty.office().mail(faulty.victim()).Cancel(absl::UnavailableError("the plan is over"));
      return Faulty::Outcome{};
    });
    for (const absl::Status& status : run.statuses()) {
      EXPECT_EQ(status, absl::UnavailableError(absl::StrCat("replica ", run.victim(), " of ", run.statuses().size(),
                                                            " of group 'g' in plan epoch 1: the plan is over")));
    }
  }
}

TEST(ChainFaultsTest, ALetterThatDoesNotArriveEndsAll) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const Faulty run(seed, kShort, [](Faulty&, int, int, const Letter&, Bytes&) { return Faulty::Outcome{.goes = false}; });
    for (const absl::Status& status : run.statuses()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("waited 100ms for replica "));
    }
  }
}

TEST(ChainFaultsTest, NumbersOfAnotherSizeAreToldWithTheirSender) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::atomic<int> sender = -1;
    const Faulty run(seed, kLong, [&sender, seed](Faulty&, int from, int, const Letter& letter, Bytes& bytes) {
      if (!IsData(letter) || bytes.empty()) return Faulty::Outcome{.happened = false};
      const size_t sizes[] = {0, bytes.size() - 1, bytes.size() + 1, bytes.size() + 4, 100'000};
      bytes.resize(sizes[seed % std::size(sizes)]);
      sender = from;
      return Faulty::Outcome{};
    });
    for (const absl::Status& status : run.statuses()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("replica ", sender.load(), " of ")));
      EXPECT_THAT(std::string(status.message()), HasSubstr(" bytes where "));
    }
  }
}

TEST(ChainFaultsTest, AnotherCallIsToldWithBothMembers) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::atomic<int> sender = -1;
    const Faulty run(seed, kLong, [&sender](Faulty&, int from, int, const Letter& letter, Bytes& bytes) {
      if (!IsGreeting(letter)) return Faulty::Outcome{.happened = false};
      const tensor::TensorType type = {DType::kF32, {4711}};
      const int chain[] = {0};
      bytes = Encode(Describe("AllReduce", {&type, 1}, chain, 50));
      sender = from;
      return Faulty::Outcome{};
    });
    for (const absl::Status& status : run.statuses()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("replica ", sender.load(), " AllReduce f32[4711]")));
    }
  }
}

TEST(ChainFaultsTest, WhatIsNoGreetingAndNoFarewellIsToldWithItsSender) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    for (const bool greeting : {false, true}) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, greeting ? ", greeting" : ", farewell"));
      std::atomic<int> sender = -1;
      const Faulty run(seed, kLong, [&sender, greeting](Faulty& faulty, int from, int to, const Letter& letter, Bytes& bytes) {
        if (!IsGreeting(letter)) return Faulty::Outcome{.happened = false};
        sender = from;
        if (greeting) {
          bytes.resize(3);
          return Faulty::Outcome{};
        }
        // In time to be looked for: its greeting never comes.
        EXPECT_TRUE(faulty.office().mail(from).Send(to, {.round = -2}, Bytes(5)).ok());
        return Faulty::Outcome{.goes = false};
      });
      for (const absl::Status& status : run.statuses()) {
        EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("replica ", sender.load(), " of ")));
        EXPECT_THAT(std::string(status.message()), HasSubstr(greeting ? "3 bytes are no greeting" : "5 bytes are no farewell"));
      }
    }
  }
}

// A device's, which is lost after so many copies.
class LostMemory final : public tensor::Memory {
 public:
  explicit LostMemory(int copies) : left_(copies) {}
  bool on_host() const override { return false; }
  absl::StatusOr<tensor::MemoryBlock> Allocate(size_t bytes) override { return tensor::HostMemory().Allocate(bytes); }
  absl::Status Zero(std::byte* to, size_t bytes) override { return tensor::HostMemory().Zero(to, bytes); }
  absl::Status CopyIn(void* to, const void* from, size_t bytes) override { return Copy(to, from, bytes); }
  absl::Status CopyOut(void* to, const void* from, size_t bytes) override { return Copy(to, from, bytes); }

 private:
  void Free(std::byte*) override {}  // nothing is its own
  absl::Status Copy(void* to, const void* from, size_t bytes) {
    if (left_-- == 0) return tensor::OutOfMemoryError("the copy was too large for the card");
    return tensor::HostMemory().CopyOut(to, from, bytes);
  }

  int left_;
};

TEST(ChainFaultsTest, WhatBefallsTheMemoryOfOneIsToldByAllWithItsOwner) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 draw(seed);
    const int size = static_cast<int>(draw() % 4) + 2, victim = static_cast<int>(draw() % static_cast<uint32_t>(size));
    LostMemory lost(static_cast<int>(draw() % 100));
    PostOffice office(size, PostOffice::Habits{.late = draw() % 2 == 0, .seed = seed, .handle = nullptr});
    std::vector<absl::Status> statuses(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const auto c = MakeChain({.group = "g", .epoch = 1, .rank = rank, .size = size}, rank == victim ? lost : tensor::HostMemory(),
                                 office.mail(rank), {.patience = {.in_calls = kLong}, .letter_bytes = 50});
        statuses[static_cast<size_t>(rank)] = CallForever(**c, seed);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
      EXPECT_EQ(status.message(),
                absl::StrCat("replica ", victim, " of ", size, " of group 'g' in plan epoch 1: the copy was too large for the card"));
    }
    EXPECT_TRUE(tensor::IsOutOfMemory(statuses[static_cast<size_t>(victim)])) << "of which its own stage says more";
  }
}

// One member of several calls something else than the others, of each kind.
TEST(ChainFaultsTest, MembersThatCallDifferentThingsAllHearOfIt) {
  for (int size = 2; size <= 5; ++size) {
    for (int other = 0; other < size; ++other) {
      PostOffice office(size);
      std::vector<absl::Status> statuses(static_cast<size_t>(size));
      std::vector<std::thread> threads;
      for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
          const auto c = MakeChain({.group = "g", .epoch = 1, .rank = rank, .size = size}, tensor::HostMemory(), office.mail(rank));
          float x = 0;
          const TensorView views[] = {{{DType::kF32, {1}}, &x}};
          statuses[static_cast<size_t>(rank)] = rank == other ? (*c)->Broadcast(views, (other + 1) % size) : (*c)->AllReduce(views);
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (const absl::Status& status : statuses) {
        EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("replica ", other, " Broadcast of replica ")));
      }
    }
  }
}

}  // namespace
}  // namespace fusionllm::collective
