#include "lib/collective/chain_communicator.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/collective/chain_messages.h"
#include "lib/collective/concatenation.h"

namespace fusionllm::collective {
namespace {

using tensor::ConstTensorView;
using tensor::TensorType;
using tensor::TensorView;
using Bytes = std::vector<std::byte>;

// Rounds of a call. Call headers and the close message are no part of a tensor.
constexpr int32_t kCallHeaderRound = -1;
constexpr Chunk kCloseMessageKey = {.call = 0, .round = -2, .part = 0};
constexpr int32_t kForward = 0, kBackward = 1;

// A chunk that is waited for may come from one rank and news of an end from any: who waits looks for the latter so often.
constexpr absl::Duration kPollInterval = absl::Milliseconds(20);

// Ranks of one build call the same: a plan gives them the same stage.
constexpr char kOneBuild[] = "; executors of different builds may do so: run the same one on all devices";

class ChainCommunicator final : public Communicator {
 public:
  ChainCommunicator(GroupRank group_rank, tensor::Memory& memory, PointToPointChannel& channel, ChainOptions options)
      : Communicator(std::move(group_rank)),
        memory_(memory),
        channel_(channel),
        timeout_(options.timeout.per_call),
        chain_(std::move(options.chain)),
        chunk_bytes_(options.chunk_bytes),
        place_(PlaceOf(rank())),
        left_(chain_.size()) {}
  ~ChainCommunicator() override {
    if (Ended().ok()) Tell({.why = absl::OkStatus(), .calls = calls_});
  }

  tensor::Memory& memory() const override { return memory_; }

  absl::Status AllReduce(std::span<const TensorView> tensors) override {
    FUSIONLLM_RETURN_IF_ERROR(CheckSums("AllReduce", tensors));
    std::vector<TensorType> types;
    Concatenation row(memory_);
    for (const TensorView& tensor : tensors) {
      types.push_back(tensor.type);
      row.Append(tensor);
    }
    return Call("AllReduce", types, [&] { return size() == 1 ? absl::OkStatus() : GoAlong(row, row, 1); });
  }

  absl::Status ReduceScatter(std::span<const Exchange> exchanges) override {
    FUSIONLLM_RETURN_IF_ERROR(CheckReduceScatter(exchanges, size()));
    Concatenation from(memory_), to(memory_);
    for (int share = 0; share < size(); ++share) {
      for (const Exchange& exchange : exchanges) from.Append(exchange.from, share, size());
    }
    for (const Exchange& exchange : exchanges) to.Append(exchange.to);
    return Call("ReduceScatter", Brought(exchanges), [&] { return size() == 1 ? SendAll(from, &to, {}) : GoAlong(from, to, size()); });
  }

  absl::Status AllGather(std::span<const Exchange> exchanges) override {
    FUSIONLLM_RETURN_IF_ERROR(CheckAllGather(exchanges, size()));
    Concatenation from(memory_);
    for (const Exchange& exchange : exchanges) from.Append(exchange.from);
    std::vector<Concatenation> to(chain_.size(), Concatenation(memory_));  // by rank
    for (int share = 0; share < size(); ++share) {
      for (const Exchange& exchange : exchanges) to[static_cast<size_t>(share)].Append(exchange.to, share, size());
    }
    return Call("AllGather", Brought(exchanges), [&] {
      FUSIONLLM_RETURN_IF_ERROR(SendAll(from, &to[static_cast<size_t>(rank())], Others()));
      for (const int other : Others()) FUSIONLLM_RETURN_IF_ERROR(ReceiveAll(other, to[static_cast<size_t>(other)]));
      return absl::OkStatus();
    });
  }

  absl::Status Broadcast(std::span<const TensorView> tensors, int root) override {
    FUSIONLLM_RETURN_IF_ERROR(CheckRoot(root, size()));
    std::vector<TensorType> types;
    Concatenation row(memory_);
    for (const TensorView& tensor : tensors) {
      types.push_back(tensor.type);
      row.Append(tensor);
    }
    return Call(
        absl::StrCat("Broadcast of replica ", root, ":"), types,
        [&] { return rank() == root ? SendAll(row, nullptr, Others()) : ReceiveAll(root, row); }, /*needs_others=*/rank() != root);
  }

  absl::Status Wait() override {
    FUSIONLLM_RETURN_IF_ERROR(Ended());
    if (const absl::Status status = ReceiveCallHeaders(); !status.ok()) return End(status);
    return absl::OkStatus();
  }
  void Abort(absl::Status why) override {
    if (why.ok()) why = absl::CancelledError("aborted");
    End(absl::Status(why.code(), absl::StrCat(group_rank().ToString(), ": ", why.message()))).IgnoreError();
  }

 private:
  static std::vector<TensorType> Brought(std::span<const Exchange> exchanges) {
    std::vector<TensorType> types;
    for (const Exchange& exchange : exchanges) types.push_back(exchange.from.type);
    return types;
  }

  // In the order of the chain, from the next one on, so that not all send to the same one first.
  std::vector<int> Others() const {
    std::vector<int> others(chain_.begin() + place_ + 1, chain_.end());
    others.insert(others.end(), chain_.begin(), chain_.begin() + place_);
    return others;
  }
  size_t Before() const { return static_cast<size_t>(place_ - 1); }
  size_t After() const { return static_cast<size_t>(place_ + 1); }
  int PlaceOf(int rank) const { return static_cast<int>(std::find(chain_.begin(), chain_.end(), rank) - chain_.begin()); }
  std::string Name(int other) const {
    GroupRank named = group_rank();
    named.rank = other;
    return named.ToString();
  }
  Chunk Named(int round, int part) const { return {.call = call_, .round = round, .part = part}; }

  // Of this rank's memory: all others end with it, too, each on a device of its own.
  absl::Status Own(const absl::Status& status) const {
    if (status.ok()) return status;
    absl::Status named(status.code(), absl::StrCat(group_rank().ToString(), ": ", status.message()));
    status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) { named.SetPayload(type, payload); });
    return named;
  }

  absl::Status Ended() {
    const base::MutexLock lock(mutex_);
    return ended_;
  }

  // The first error of a call is the group's. Who needs nothing of the others (`needs_others` false) does not wait for their call headers,
  // which are a link's latency away, but hears them before the next call.
  absl::Status Call(absl::string_view name, std::span<const TensorType> types, const std::function<absl::Status()>& body,
                    bool needs_others = true) {
    FUSIONLLM_RETURN_IF_ERROR(Wait());
    call_ = calls_;
    call_header_ = Describe(name, types, chain_, chunk_bytes_);
    received_headers_.assign(chain_.size(), false);
    const auto all = [&]() -> absl::Status {
      for (const int other : Others()) FUSIONLLM_RETURN_IF_ERROR(Send(other, Named(kCallHeaderRound, 0), Encode(call_header_)));
      FUSIONLLM_RETURN_IF_ERROR(body());
      return needs_others ? ReceiveCallHeaders() : absl::OkStatus();
    };
    if (const absl::Status status = all(); !status.ok()) return End(status);
    ++calls_;
    return absl::OkStatus();
  }

  // Of the last call, those that were not heard yet.
  absl::Status ReceiveCallHeaders() {
    if (received_headers_.empty()) return absl::OkStatus();  // none was made
    for (const int other : Others()) FUSIONLLM_RETURN_IF_ERROR(ReceiveCallHeader(other));
    return absl::OkStatus();
  }

  // Sums along the chain, and back: to all of them or, where the row has `runs`, to each that of its rank. `to` is the row itself or the
  // run of this rank.
  //
  // One thread sends chunks there and passes others back: in step k chunk k there, and back the one that is `behind` steps older. A
  // rank is kChunksAhead steps more behind than the next one, and so that much ahead of it: were they equal, each would let the one
  // before it go on only when its own chunk has arrived, and the link between them would lie idle meanwhile. Chunks there and those that
  // come back are thus taken in an order in which none waits for a later one.
  absl::Status GoAlong(Concatenation& row, Concatenation& to, int runs) {
    const ChunkLayout cut(row, runs, chunk_bytes_);
    const int chunks = runs * cut.chunks(), behind = (size() - 1 - place_) * kChunksAhead;
    for (int step = 0; step < chunks + behind; ++step) {
      if (step < chunks) FUSIONLLM_RETURN_IF_ERROR(PassForward(cut, row, to, step));
      if (step >= behind && place_ + 1 < size()) FUSIONLLM_RETURN_IF_ERROR(PassBack(cut, to, step - behind));
    }
    return absl::OkStatus();
  }

  absl::Status PassForward(const ChunkLayout& cut, Concatenation& row, Concatenation& to, int chunk) {
    const ChunkLayout::Piece piece = cut.piece(chunk);
    Bytes bytes;
    if (place_ == 0) {
      bytes.resize(piece.bytes);
      FUSIONLLM_RETURN_IF_ERROR(Own(row.Read(piece.begin, bytes)));
    } else {
      FUSIONLLM_ASSIGN_OR_RETURN(bytes, Receive(chain_[Before()], Named(kForward, chunk), piece.bytes));
      FUSIONLLM_RETURN_IF_ERROR(Own(row.AddTo(piece.begin, bytes)));
    }
    if (place_ + 1 < size()) return Send(chain_[After()], Named(kForward, chunk), std::move(bytes));
    return StoreAndPassBack(cut, to, chunk, std::move(bytes));
  }

  absl::Status PassBack(const ChunkLayout& cut, Concatenation& to, int chunk) {
    const bool whole = !cut.has_runs() || place_ >= PlaceOf(cut.run(chunk));
    FUSIONLLM_ASSIGN_OR_RETURN(Bytes bytes, Receive(chain_[After()], Named(kBackward, chunk), whole ? cut.piece(chunk).bytes : 0));
    return StoreAndPassBack(cut, to, chunk, std::move(bytes));
  }

  // A sum that is whole; of one's run that is further on in the chain only that it has got there.
  absl::Status StoreAndPassBack(const ChunkLayout& cut, Concatenation& to, int chunk, Bytes bytes) {
    const ChunkLayout::Piece piece = cut.piece(chunk);
    const bool own = !cut.has_runs() || cut.run(chunk) == rank();
    if (own) FUSIONLLM_RETURN_IF_ERROR(Own(to.Write(piece.begin - (cut.has_runs() ? cut.BeginOf(rank()) : 0), bytes)));
    if (place_ == 0) return absl::OkStatus();
    if (own && cut.has_runs()) bytes.clear();
    return Send(chain_[Before()], Named(kBackward, chunk), std::move(bytes));
  }

  // A row to `receivers`, and to `copy` where there is one.
  absl::Status SendAll(const Concatenation& row, const Concatenation* copy, const std::vector<int>& receivers) {
    const ChunkLayout cut(row, 1, chunk_bytes_);
    for (int chunk = 0; chunk < cut.chunks(); ++chunk) {
      const ChunkLayout::Piece piece = cut.piece(chunk);
      Bytes bytes(piece.bytes);
      FUSIONLLM_RETURN_IF_ERROR(Own(row.Read(piece.begin, bytes)));
      if (copy != nullptr) FUSIONLLM_RETURN_IF_ERROR(Own(copy->Write(piece.begin, bytes)));
      for (const int receiver : receivers) FUSIONLLM_RETURN_IF_ERROR(Send(receiver, Named(kForward, chunk), bytes));
    }
    return absl::OkStatus();
  }
  absl::Status ReceiveAll(int sender, const Concatenation& row) {
    const ChunkLayout cut(row, 1, chunk_bytes_);
    for (int chunk = 0; chunk < cut.chunks(); ++chunk) {
      const ChunkLayout::Piece piece = cut.piece(chunk);
      FUSIONLLM_ASSIGN_OR_RETURN(const Bytes bytes, Receive(sender, Named(kForward, chunk), piece.bytes));
      FUSIONLLM_RETURN_IF_ERROR(Own(row.Write(piece.begin, bytes)));
    }
    return absl::OkStatus();
  }

  // What another rank calls must be what this one does.
  absl::Status ReceiveCallHeader(int other) {
    if (received_headers_[static_cast<size_t>(other)]) return absl::OkStatus();
    FUSIONLLM_ASSIGN_OR_RETURN(const Bytes bytes, Take(other, Named(kCallHeaderRound, 0)));
    received_headers_[static_cast<size_t>(other)] = true;
    const absl::StatusOr<CallHeader> his = ParseCallHeader(bytes);
    if (!his.ok()) return absl::InternalError(absl::StrCat(Name(other), ": ", his.status().message(), kOneBuild));
    if (*his == call_header_) return absl::OkStatus();
    const bool look_alike = his->call == call_header_.call;
    const auto text = [&](const CallHeader& call_header) {
      return look_alike ? absl::StrFormat("%s (%016x)", call_header.call, call_header.digest) : call_header.call;
    };
    const bool first = rank() < other;
    return absl::InternalError(absl::StrFormat("the replicas of group '%s' do not call the same: replica %d %s, replica %d %s%s",
                                               group_rank().group, std::min(rank(), other), text(first ? call_header_ : *his),
                                               std::max(rank(), other), text(first ? *his : call_header_), kOneBuild));
  }

  // Whom this rank has nothing of in this call; where there is none, `other`.
  std::vector<int> Missing(int other) {
    std::vector<int> missing;
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == this->rank() || received_headers_[static_cast<size_t>(rank)]) continue;
      if (!channel_.Receive(rank, Named(kCallHeaderRound, 0), absl::InfinitePast()).ok()) missing.push_back(rank);
    }
    if (missing.empty()) missing.push_back(other);
    return missing;
  }

  absl::Status Send(int to, const Chunk& chunk, Bytes bytes) {
    const absl::Status status = channel_.Send(to, chunk, std::move(bytes));
    if (status.ok()) return status;
    FUSIONLLM_RETURN_IF_ERROR(HearFarewells());  // who is lost may have said why
    return absl::Status(status.code(), absl::StrFormat("%s cannot reach replica %d: %s", group_rank().ToString(), to, status.message()));
  }

  // Numbers of who has greeted: so many bytes.
  absl::StatusOr<Bytes> Receive(int from, const Chunk& chunk, size_t bytes) {
    FUSIONLLM_RETURN_IF_ERROR(ReceiveCallHeader(from));
    FUSIONLLM_ASSIGN_OR_RETURN(Bytes taken, Take(from, chunk));
    if (taken.size() == bytes) return taken;
    return absl::InternalError(
        absl::StrFormat("%s sent %d bytes where %s has %d%s", Name(from), taken.size(), call_header_.call, bytes, kOneBuild));
  }

  absl::StatusOr<Bytes> Take(int from, const Chunk& chunk) {
    for (const absl::Time deadline = absl::Now() + timeout_;;) {
      FUSIONLLM_RETURN_IF_ERROR(Ended());
      absl::StatusOr<Bytes> taken = channel_.Receive(from, chunk, std::min(absl::Now() + kPollInterval, deadline));
      if (taken.ok()) return taken;
      if (!absl::IsDeadlineExceeded(taken.status())) {
        return absl::Status(taken.status().code(), absl::StrCat(group_rank().ToString(), ": ", taken.status().message()));
      }
      FUSIONLLM_RETURN_IF_ERROR(HearFarewells());
      if (absl::Now() < deadline) continue;
      return absl::UnavailableError(absl::StrFormat("%s waited %s for replica %s in %s", group_rank().ToString(),
                                                    absl::FormatDuration(timeout_), absl::StrJoin(Missing(from), ", "), call_header_.call));
    }
  }

  // An error where somebody has ended, or left before what this rank does now.
  absl::Status HearFarewells() {
    for (const int other : Others()) {
      std::optional<int64_t>& left = left_[static_cast<size_t>(other)];
      if (!left.has_value()) {
        const absl::StatusOr<Bytes> bytes = channel_.Receive(other, kCloseMessageKey, absl::InfinitePast());
        if (!bytes.ok()) continue;
        const absl::StatusOr<CloseMessage> close_message = ParseCloseMessage(*bytes);
        if (!close_message.ok()) return absl::InternalError(absl::StrCat(Name(other), ": ", close_message.status().message(), kOneBuild));
        FUSIONLLM_RETURN_IF_ERROR(close_message->why);
        left = close_message->calls;
      }
      if (*left <= call_) return absl::UnavailableError(absl::StrCat(Name(other), " has left"));
    }
    return absl::OkStatus();
  }

  // Answers what the group ended with: the first `why`.
  absl::Status End(const absl::Status& why) {
    {
      const base::MutexLock lock(mutex_);
      if (!ended_.ok()) return ended_;
      ended_ = why;
    }
    channel_.Cancel(why);
    Tell({.why = why});
    return why;
  }
  void Tell(const CloseMessage& close_message) {
    for (const int other : Others())
      channel_.Send(other, kCloseMessageKey, Encode(close_message)).IgnoreError();  // who is gone need not know
  }

  tensor::Memory& memory_;
  PointToPointChannel& channel_;
  const absl::Duration timeout_;
  const std::vector<int> chain_;  // ranks
  const size_t chunk_bytes_;
  const int place_;  // in the chain
  // Of the thread that calls.
  int64_t calls_ = 0;  // done
  int64_t call_ = 0;   // the number of the one under way, or of the last
  // Of that call: what it is, and from whom this rank has heard, by rank, that he makes it, too.
  CallHeader call_header_;
  std::vector<bool> received_headers_;
  std::vector<std::optional<int64_t>> left_;  // by rank: calls that a rank had done when it left
  base::Mutex mutex_;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> MakeChain(const GroupRank& group_rank, tensor::Memory& memory, PointToPointChannel& channel,
                                                        ChainOptions options) {
  FUSIONLLM_RETURN_IF_ERROR(CheckGroupRank(group_rank));
  std::vector<int> ranks(static_cast<size_t>(group_rank.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  if (options.chain.empty()) options.chain = ranks;
  if (!std::is_permutation(options.chain.begin(), options.chain.end(), ranks.begin(), ranks.end())) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the chain %s of %s does not name each once", absl::StrJoin(options.chain, " "), group_rank.ToString()));
  }
  if (options.chunk_bytes == 0) return absl::InvalidArgumentError(absl::StrCat("chunks of 0 bytes for ", group_rank.ToString()));
  return std::make_unique<ChainCommunicator>(group_rank, memory, channel, std::move(options));
}

}  // namespace fusionllm::collective
