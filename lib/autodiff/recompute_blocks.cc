#include "lib/autodiff/recompute_blocks.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <numeric>
#include <utility>

namespace fusionllm::autodiff {
namespace {

using opdag::Graph;
using opdag::kNone;
using opdag::Op;
using opdag::OpId;
using opdag::ValueId;

constexpr double kCapStep = 1.25;

// Who reads the bytes of a forward value, by the forward op that does or whose backward part does.
struct Readers {
  OpId last = kNone;  // kNone: none
  bool kept = false;  // a backward part does
};

class Division {
 public:
  Division(const TrainingGraph& training, const std::vector<bool>& views) : training_(training), graph_(training.graph), views_(views) {
    FindShown();
    FindReaders();
  }

  RecomputeBlocks Divide() {
    const auto ops = static_cast<size_t>(training_.forward_ops);
    alive_.assign(ops + 1, 0);
    kept_before_.assign(ops + 1, 0);
    int64_t most = 0;
    for (ValueId value = 0; value < static_cast<ValueId>(readers_.size()); ++value) {
      const Readers& readers = readers_[value];
      if (readers.last == kNone || IsKeptAnyway(value)) continue;
      const OpId producer = graph_.value(value).producer;
      const auto bytes = static_cast<int64_t>(graph_.value(value).type.bytes());
      alive_[producer + 1] += bytes;
      alive_[readers.last + 1] -= bytes;
      if (readers.kept) kept_before_[producer + 1] += bytes;
    }
    for (size_t op = 0; op < ops; ++op) {
      most = std::max(most, kept_before_[op + 1]);
      alive_[op + 1] += alive_[op];
      kept_before_[op + 1] += kept_before_[op];
    }
    alive_[ops] = 0;
    Choose(most);
    RecomputeBlocks blocks{.of_op = std::vector<int>(ops, 0)};
    for (const OpId begin : begins_) ++blocks.of_op[begin];
    std::partial_sum(blocks.of_op.begin(), blocks.of_op.end(), blocks.of_op.begin());
    FindCrossing(blocks);
    FindRunAgain(blocks);
    return blocks;
  }

 private:
  bool IsForward(OpId op) const { return op < training_.forward_ops; }
  OpId HostOf(OpId op) const { return IsForward(op) ? op : graph_.op(op).forward_op; }
  // Placeholders cannot be run again.
  bool IsKeptAnyway(ValueId value) const { return graph_.op(graph_.value(value).producer).kind == opdag::OpKind::kPlaceholder; }

  void FindShown() {
    shown_.resize(graph_.values().size());
    std::iota(shown_.begin(), shown_.end(), 0);
    for (OpId op = 0; op < training_.forward_ops; ++op) {
      if (views_[op]) shown_[graph_.op(op).outputs[0]] = shown_[graph_.op(op).inputs[0]];
    }
  }

  // Visits each reader of a forward value: the value shown, the forward op that reads it, or whose backward part does.
  template <typename Visit>
  void ForEachReader(Visit visit) const {
    for (OpId op = 0; op < static_cast<OpId>(graph_.ops().size()); ++op) {
      if (IsForward(op) && views_[op]) continue;
      for (const ValueId input : graph_.op(op).inputs) {
        if (IsForward(graph_.value(input).producer)) visit(shown_[input], HostOf(op), !IsForward(op));
      }
    }
  }

  void FindReaders() {
    readers_.resize(graph_.values().size());
    ForEachReader([&](ValueId value, OpId reader, bool backward) {
      readers_[value].last = std::max(readers_[value].last, reader);
      readers_[value].kept = readers_[value].kept || backward;
    });
  }

  // Cuts with at most `cap` bytes kept inside each block, for the least sum of what is alive at them; the fewest of those.
  std::vector<OpId> CutsFor(int64_t cap) const {
    const auto ops = static_cast<OpId>(training_.forward_ops);
    using Cost = std::pair<int64_t, int>;
    std::vector<Cost> cost(ops + 1);
    std::vector<OpId> from(ops + 1, 0);
    std::deque<OpId> window;  // where the block that ends here may begin; costs never fall
    for (OpId end = 1; end <= ops; ++end) {
      const OpId begin = end - 1;
      while (!window.empty() && cost[window.back()] > cost[begin]) window.pop_back();
      window.push_back(begin);
      while (kept_before_[end] - kept_before_[window.front()] > cap) window.pop_front();
      from[end] = window.front();
      cost[end] = {cost[from[end]].first + alive_[end], cost[from[end]].second + 1};
    }
    std::vector<OpId> cuts;
    for (OpId at = from[ops]; at > 0; at = from[at]) cuts.push_back(at);
    std::reverse(cuts.begin(), cuts.end());
    return cuts;
  }

  int64_t BytesOf(const std::vector<OpId>& cuts) const {
    int64_t crossing = 0, largest = 0;
    OpId begin = 0;
    for (const OpId cut : cuts) {
      crossing += alive_[cut];
      largest = std::max(largest, kept_before_[cut] - kept_before_[begin]);
      begin = cut;
    }
    return crossing + std::max(largest, kept_before_.back() - kept_before_[begin]);
  }

  // `most`: what one op keeps at most, below which no block can be.
  void Choose(int64_t most) {
    int64_t least = BytesOf({});
    for (auto cap = static_cast<double>(std::max<int64_t>(1, most)); cap < static_cast<double>(kept_before_.back()); cap *= kCapStep) {
      std::vector<OpId> cuts = CutsFor(static_cast<int64_t>(cap));
      const int64_t bytes = BytesOf(cuts);
      if (bytes >= least) continue;
      least = bytes;
      begins_ = std::move(cuts);
    }
  }

  void FindCrossing(RecomputeBlocks& blocks) const {
    blocks.crosses.assign(graph_.values().size(), false);
    ForEachReader([&](ValueId value, OpId reader, bool) {
      if (blocks.of_op[reader] != blocks.of_op[graph_.value(value).producer]) blocks.crosses[value] = true;
    });
    for (size_t value = 0; value < shown_.size(); ++value) blocks.crosses[value] = blocks.crosses[shown_[value]];
  }

  void FindRunAgain(RecomputeBlocks& blocks) const {
    blocks.runs_again.assign(training_.forward_ops, false);
    std::vector<bool> wanted(graph_.values().size(), false);
    std::vector<ValueId> open;
    const auto want = [&](ValueId value) {
      if (!IsForward(graph_.value(value).producer) || wanted[value]) return;
      wanted[value] = true;
      open.push_back(value);
    };
    for (OpId op = training_.forward_ops; op < static_cast<OpId>(graph_.ops().size()); ++op) {
      for (const ValueId input : graph_.op(op).inputs) want(input);
    }
    while (!open.empty()) {
      const ValueId value = open.back();
      open.pop_back();
      const OpId producer = graph_.value(value).producer;
      // A view of what is kept is there; its op is named for the sake of who asks what it reads.
      if (IsKeptAnyway(value) || (!views_[producer] && blocks.crosses[value])) continue;
      blocks.runs_again[producer] = true;
      for (const ValueId input : graph_.op(producer).inputs) want(input);
    }
  }

  const TrainingGraph& training_;
  const Graph& graph_;
  const std::vector<bool>& views_;
  std::vector<ValueId> shown_;        // by value: whose bytes it is; its own but for views
  std::vector<Readers> readers_;      // by value shown
  std::vector<int64_t> alive_;        // by op: bytes made before it and read from it on, those that are kept anyway aside
  std::vector<int64_t> kept_before_;  // by op: bytes that ops before it make and backward parts read
  std::vector<OpId> begins_;          // of blocks but the first
};

}  // namespace

RecomputeBlocks RecomputeBlocksOf(const TrainingGraph& training, const std::vector<bool>& views) {
  return Division(training, views).Divide();
}

}  // namespace fusionllm::autodiff
