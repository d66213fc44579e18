#include "lib/collective/local_communicator.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/tensor/bf16.h"

namespace fusionllm::collective {
namespace {

using tensor::ConstTensorView;
using tensor::TensorType;
using tensor::TensorView;
using Bytes = std::vector<std::byte>;

// What a rank brings to a call.
struct Contribution {
  std::string call;  // "AllReduce f32[3], bf16[7]": ranks whose texts differ call different things
  std::vector<TensorType> types;
  std::vector<Bytes> tensors;
};
// By tensor. Every rank takes from it what is his.
using Result = std::vector<Bytes>;

void AddTo(Bytes& sum, const Bytes& term, tensor::DType type) {
  if (type == tensor::DType::kF32) {
    auto* to = reinterpret_cast<float*>(sum.data());
    const auto* from = reinterpret_cast<const float*>(term.data());
    for (size_t i = 0; i < sum.size() / sizeof(float); ++i) to[i] += from[i];
    return;
  }
  auto* to = reinterpret_cast<uint16_t*>(sum.data());
  const auto* from = reinterpret_cast<const uint16_t*>(term.data());
  for (size_t i = 0; i < sum.size() / sizeof(uint16_t); ++i) {
    to[i] = tensor::RoundToBf16(tensor::UpcastBf16(to[i]) + tensor::UpcastBf16(from[i]));
  }
}

Result Sums(std::vector<Contribution>& all) {
  Result sums = std::move(all.front().tensors);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    for (size_t i = 0; i < sums.size(); ++i) AddTo(sums[i], all[rank].tensors[i], all[rank].types[i].dtype);
  }
  return sums;
}

Result OneAfterTheOther(std::vector<Contribution>& all) {
  Result result(all.front().tensors.size());
  for (const Contribution& one : all) {
    for (size_t i = 0; i < result.size(); ++i) result[i].insert(result[i].end(), one.tensors[i].begin(), one.tensors[i].end());
  }
  return result;
}

// What the ranks of a group share. Thread-safe.
class SharedGroup {
 public:
  explicit SharedGroup(const GroupRank& group_rank) : group_rank_(group_rank), here_(static_cast<size_t>(group_rank.size)) {}

  using Combine = Result (*)(std::vector<Contribution>&);

  // Waits until every rank has come. Errors: as of Communicator's calls.
  absl::StatusOr<std::shared_ptr<const Result>> Contribute(int rank, Contribution contribution, Combine combine, absl::Duration timeout) {
    base::UniqueLock lock(mutex_);
    if (left_) End(HasLeft());
    FUSIONLLM_RETURN_IF_ERROR(ended_);
    const uint64_t round = round_;
    Place& own = here_[static_cast<size_t>(rank)];
    own.contribution = std::move(contribution);
    own.came = true;
    if (Missing().empty()) {
      EndRound(combine);
    } else if (!changed_.wait_for(lock, absl::ToChronoMilliseconds(timeout),
                                  [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return round_ != round || !ended_.ok(); })) {
      End(absl::UnavailableError(absl::StrFormat("%s waited %s for replica %s in %s", Who(rank), absl::FormatDuration(timeout),
                                                 absl::StrJoin(Missing(), ", "), own.contribution.call)));
    }
    if (round_ == round) return ended_;
    return result_;  // of this round: there is no next one before this rank comes again
  }

  void Leave(int rank) {
    const base::MutexLock lock(mutex_);
    left_ = rank;
    if (Missing().size() < here_.size()) End(HasLeft());
  }

  void Abort(int rank, const absl::Status& why) {
    const base::MutexLock lock(mutex_);
    End(absl::Status(why.code(), absl::StrCat(Who(rank), ": ", why.message())));
  }

  absl::Status status() {
    const base::MutexLock lock(mutex_);
    return ended_;
  }

 private:
  struct Place {
    bool came = false;
    Contribution contribution;
  };

  std::string Who(int rank) const {
    GroupRank named = group_rank_;
    named.rank = rank;
    return named.ToString();
  }
  std::vector<size_t> Missing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<size_t> missing;
    for (size_t rank = 0; rank < here_.size(); ++rank) {
      if (!here_[rank].came) missing.push_back(rank);
    }
    return missing;
  }
  absl::Status HasLeft() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return absl::UnavailableError(absl::StrCat(Who(*left_), " has left"));
  }
  void End(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (ended_.ok()) ended_ = std::move(why);
    changed_.notify_all();
  }
  void EndRound(Combine combine) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<Contribution> all;
    for (Place& place : here_) {
      all.push_back(std::move(place.contribution));
      place.came = false;
    }
    for (size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank].call == all[0].call) continue;
      return End(absl::InternalError(absl::StrFormat("the replicas of group '%s' do not call the same: replica 0 %s, replica %d %s",
                                                     group_rank_.group, all[0].call, rank, all[rank].call)));
    }
    result_ = std::make_shared<const Result>(combine(all));
    ++round_;
    changed_.notify_all();
  }

  const GroupRank group_rank_;  // of any
  base::Mutex mutex_;
  std::condition_variable changed_;
  std::vector<Place> here_ ABSL_GUARDED_BY(mutex_);  // by rank
  std::optional<int> left_ ABSL_GUARDED_BY(mutex_);  // what is done already is no concern of those who stay
  uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<const Result> result_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
};

// Circles by the number that rank 0 tells the others, until each of them has found it: rank 0 may leave sooner.
class Circles {
 public:
  uint64_t Add(std::shared_ptr<SharedGroup> shared_group, int finders) {
    const base::MutexLock lock(mutex_);
    ++last_;
    if (finders > 0) shared_groups_[last_] = {std::move(shared_group), finders};
    return last_;
  }
  // Null where there is none.
  std::shared_ptr<SharedGroup> Find(uint64_t number) {
    const base::MutexLock lock(mutex_);
    const auto found = shared_groups_.find(number);
    if (found == shared_groups_.end()) return nullptr;
    std::shared_ptr<SharedGroup> shared_group = found->second.shared_group;
    if (--found->second.finders == 0) shared_groups_.erase(found);
    return shared_group;
  }
  // That none will look for.
  void Remove(uint64_t number) {
    const base::MutexLock lock(mutex_);
    shared_groups_.erase(number);
  }

 private:
  struct Entry {
    std::shared_ptr<SharedGroup> shared_group;
    int finders = 0;
  };
  base::Mutex mutex_;
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Entry> shared_groups_ ABSL_GUARDED_BY(mutex_);
};

Circles& OfThisProcess() {
  static auto* const circles = new Circles();
  return *circles;
}

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(GroupRank group_rank, tensor::Memory& memory, absl::Duration timeout, std::shared_ptr<SharedGroup> shared_group)
      : Communicator(std::move(group_rank)), memory_(memory), timeout_(timeout), shared_group_(std::move(shared_group)) {}
  ~LocalCommunicator() override { shared_group_->Leave(rank()); }

  tensor::Memory& memory() const override { return memory_; }

  absl::Status AllReduce(std::span<const TensorView> tensors) override {
    FUSIONLLM_RETURN_IF_ERROR(CheckSums("AllReduce", tensors));
    FUSIONLLM_ASSIGN_OR_RETURN(const auto sums, Call("AllReduce", {tensors.begin(), tensors.end()}, Sums));
    return TakeWhole(*sums, tensors);
  }

  absl::Status ReduceScatter(std::span<const Exchange> exchanges) override {
    FUSIONLLM_RETURN_IF_ERROR(CheckReduceScatter(exchanges, size()));
    FUSIONLLM_ASSIGN_OR_RETURN(const auto sums, Call("ReduceScatter", Brought(exchanges), Sums));
    for (size_t i = 0; i < exchanges.size(); ++i) {
      const size_t share = exchanges[i].to.type.bytes();
      FUSIONLLM_RETURN_IF_ERROR(Take((*sums)[i], rank() * share, exchanges[i].to));
    }
    return absl::OkStatus();
  }

  absl::Status AllGather(std::span<const Exchange> exchanges) override {
    FUSIONLLM_RETURN_IF_ERROR(CheckAllGather(exchanges, size()));
    FUSIONLLM_ASSIGN_OR_RETURN(const auto all, Call("AllGather", Brought(exchanges), OneAfterTheOther));
    std::vector<TensorView> to;
    for (const Exchange& exchange : exchanges) to.push_back(exchange.to);
    return TakeWhole(*all, to);
  }

  absl::Status Broadcast(std::span<const TensorView> tensors, int root) override {
    FUSIONLLM_RETURN_IF_ERROR(CheckRoot(root, size()));
    // Everybody brings his own, and takes one: this is for few replicas.
    FUSIONLLM_ASSIGN_OR_RETURN(const auto all,
                               Call(absl::StrCat("Broadcast of replica ", root, ":"), {tensors.begin(), tensors.end()}, OneAfterTheOther));
    if (rank() == root) return absl::OkStatus();
    for (size_t i = 0; i < tensors.size(); ++i) {
      FUSIONLLM_RETURN_IF_ERROR(Take((*all)[i], root * tensors[i].type.bytes(), tensors[i]));
    }
    return absl::OkStatus();
  }

  absl::Status Wait() override { return shared_group_->status(); }
  void Abort(absl::Status why) override { shared_group_->Abort(rank(), why.ok() ? absl::CancelledError("aborted") : why); }

 private:
  static std::vector<ConstTensorView> Brought(std::span<const Exchange> exchanges) {
    std::vector<ConstTensorView> from;
    for (const Exchange& exchange : exchanges) from.push_back(exchange.from);
    return from;
  }

  absl::StatusOr<std::shared_ptr<const Result>> Call(const std::string& name, const std::vector<ConstTensorView>& tensors,
                                                     SharedGroup::Combine combine) {
    Contribution contribution;
    std::vector<std::string> texts;
    for (const ConstTensorView& tensor : tensors) {
      contribution.types.push_back(tensor.type);
      texts.push_back(absl::StrCat(tensor::Name(tensor.type.dtype), "[", tensor.type.elements(), "]"));
      Bytes& bytes = contribution.tensors.emplace_back(tensor.type.bytes());
      if (!bytes.empty()) FUSIONLLM_RETURN_IF_ERROR(memory_.CopyOut(bytes.data(), tensor.data, bytes.size()));
    }
    contribution.call = absl::StrCat(name, " ", absl::StrJoin(texts, ", "));
    return shared_group_->Contribute(rank(), std::move(contribution), combine, timeout_);
  }

  // As many bytes as `to` has, from `begin` on.
  absl::Status Take(const Bytes& from, size_t begin, const TensorView& to) {
    const size_t bytes = to.type.bytes();
    return bytes == 0 ? absl::OkStatus() : memory_.CopyIn(to.data, from.data() + begin, bytes);
  }
  absl::Status TakeWhole(const Result& result, std::span<const TensorView> tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) FUSIONLLM_RETURN_IF_ERROR(Take(result[i], 0, tensors[i]));
    return absl::OkStatus();
  }

  tensor::Memory& memory_;
  const absl::Duration timeout_;
  const std::shared_ptr<SharedGroup> shared_group_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> JoinInProcess(Rendezvous& rendezvous, const GroupRank& group_rank, tensor::Memory& memory,
                                                            const Timeouts& timeout, std::stop_token stop) {
  FUSIONLLM_RETURN_IF_ERROR(CheckGroupRank(group_rank));
  PeerInfo own{.kind = absl::StrCat("local:", getpid())};
  std::shared_ptr<SharedGroup> shared_group;
  uint64_t number = 0;
  if (group_rank.rank == 0) {
    shared_group = std::make_shared<SharedGroup>(group_rank);
    number = OfThisProcess().Add(shared_group, group_rank.size - 1);
    own.secret = absl::StrCat(number);
  }
  const absl::StatusOr<std::vector<PeerInfo>> all = ExchangePeerInfo(rendezvous, group_rank, own, timeout.to_join, std::move(stop));
  if (!all.ok()) {
    if (group_rank.rank == 0) OfThisProcess().Remove(number);
    return all.status();
  }
  if (shared_group == nullptr && absl::SimpleAtoi(all->front().secret, &number)) shared_group = OfThisProcess().Find(number);
  if (shared_group == nullptr)
    return absl::InternalError(absl::StrCat(group_rank.ToString(), ": replica 0 named a group that does not exist"));
  return std::make_unique<LocalCommunicator>(group_rank, memory, timeout.per_call, std::move(shared_group));
}

}  // namespace fusionllm::collective
