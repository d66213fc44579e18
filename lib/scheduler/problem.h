// A request made ready for planning: validated, ops in chain order with prefix sums, links by pair of devices, constraints resolved to
// indices.
//
// Everything the strategies share and none of their decisions. Borrows the request, which must outlive it; immutable, safe to share.
// Memory: links as DirectedLinks says, prefix sums of ops x cost classes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/scheduler/directed_links.h"
#include "lib/scheduler/planned_pipeline.h"

namespace fusionllm::scheduler {

// Asked in the inner loops of a search, by the searching thread; from true on the plan is not wanted any more. Must be cheap and must not
// turn back to false. This is how a caller with a clock or a client that hangs up ends a search: planners know neither.
using StopFunction = std::function<bool()>;

// A value in chain positions.
struct ChainValue {
  int producer = 0;
  int last_consumer = 0;
  std::vector<int> consumers;  // ascending, unique
  std::vector<int> kept_by;    // ascending, unique
  // With recomputation, else empty: what reads it on the way back, backward parts and ops that run again. Ascending, unique.
  std::vector<int> read_again_by;
  bool kept_between_blocks = false;  // with recomputation: a placeholder holds it, or an op of another block reads it
  int block = 0;                     // of its producer
  int64_t bytes = 0;
  int64_t wire_bytes = 0;  // as it travels, before any lossy codec
  int64_t bytes_of_element = 4;
  opdag::ActivationKind kind = opdag::ActivationKind::kHidden;
  int value = 0;  // index in the request
  bool differentiable = false;
  bool lossless_only = false;
};

// What is alive at a cut: made before it and read behind it.
struct CutTraffic {
  int64_t lossy = 0;     // before the codec
  int64_t lossless = 0;  // as it travels
  int64_t gradient = 0;  // that comes back, before the codec
};

class Problem {
 public:
  // Errors: InvalidArgument as Validate. A PlanError when constraints cannot be met whatever the planner: no executor left, unknown device
  // names, a pin that matches no op, contradictory pins, more stages than ops or executors.
  static absl::StatusOr<std::variant<std::unique_ptr<Problem>, PlanError>> Create(const PlanRequest& request, StopFunction stop = nullptr);

  const PlanRequest& request() const { return *request_; }
  // Searches then return at once, with whatever they have.
  bool Stopped() const { return stop_ != nullptr && stop_(); }
  int positions() const { return static_cast<int>(order_.size()); }
  int op_at(int position) const { return order_[position]; }
  const std::vector<int>& order() const { return order_; }  // ops by position
  // A cut before a position below this one would leave the first stage without an op of its own: placeholders stand before it.
  int first_cut() const { return first_cut_; }
  const std::vector<int>& usable() const { return usable_; }  // devices that may get a stage, in declared order
  int max_stages() const { return max_stages_; }
  int min_stages() const { return min_stages_; }
  bool AllowsStages(size_t stages) const { return static_cast<int>(stages) >= min_stages_ && static_cast<int>(stages) <= max_stages_; }

  DirectedLink link(int src, int dst) const { return links_.Between(src, dst); }
  const DirectedLinks& links() const { return links_; }
  bool Connected(int a, int b) const { return link(a, b).bytes_per_s > 0 && link(b, a).bytes_per_s > 0; }

  // Of positions [begin, end) on a device, one micro-batch (update: once a step).
  // Backward includes the second forward under recomputation.
  double ForwardSeconds(int begin, int end, int device) const { return Seconds(forward_, begin, end, device); }
  double BackwardSeconds(int begin, int end, int device) const { return Seconds(backward_, begin, end, device); }
  double UpdateSeconds(int begin, int end, int device) const { return Seconds(update_, begin, end, device); }
  double Flops(int begin, int end) const { return flops_[end] - flops_[begin]; }

  // Weights, gradients and optimizer state, weights of tied parameters once.
  int64_t StaticBytes(int begin, int end) const;
  int64_t WorkspaceBytes(int begin, int end) const;
  // At least what [begin, end) stashes for one micro-batch, and its scratch with what recomputation makes again in the largest block;
  // equal on chains without recomputation.
  int64_t StashBound(int begin, int end) const;
  int64_t ScratchBound(int begin, int end) const;
  // At least what a stage of [begin, end) takes with one micro-batch in flight.
  int64_t StandaloneBytes(int begin, int end) const { return StaticBytes(begin, end) + StashBound(begin, end) + ScratchBound(begin, end); }
  // Bytes alive at a cut before `position`, by what they may suffer.
  int64_t LossyBytesAt(int position) const { return lossy_alive_[position]; }
  int64_t LosslessBytesAt(int position) const { return lossless_alive_[position]; }
  int64_t GradientBytesAt(int position) const { return gradient_alive_[position]; }
  CutTraffic BytesAt(int position) const { return {lossy_alive_[position], lossless_alive_[position], gradient_alive_[position]}; }
  const std::vector<ChainValue>& values() const { return values_; }
  int blocks() const { return blocks_; }                               // of recomputation
  const std::vector<std::vector<int>>& tied() const { return tied_; }  // positions of each tied parameter, ascending
  int position_of(int op) const { return position_of_[op]; }

  int64_t UsableMemory(int device) const { return usable_memory_[device]; }
  // Whether the pins let [begin, end) run on the device.
  bool Allowed(int begin, int end, int device) const;
  bool HasPins() const { return !pinned_to_.empty(); }
  int PinnedDevice(int position) const { return pinned_to_.empty() ? -1 : pinned_to_[position]; }
  int NextPinned(int position) const { return pinned_to_.empty() ? positions() : next_pinned_[position]; }  // first at or after it

  double max_ratio() const { return max_ratio_; }
  double max_direction_ratio() const { return max_direction_ratio_; }
  const LinkCodecPolicy& codec_policy() const;

 private:
  explicit Problem(const PlanRequest& request) : request_(&request), links_(request) {}
  bool ResolveConstraints(PlanError& refusal);  // false: refused
  bool ResolvePins(PlanError& refusal);
  int64_t KeptBound(int begin, int end) const;
  int64_t LargestBlockBound(int begin, int end) const;
  int64_t RunBytes(int begin, int end) const;
  void BuildChain();
  void BuildValues();
  void BuildWorkspace();
  void AddReaders(const ValueNode& value, ChainValue& chain) const;
  void AddRecomputed(const ChainValue& value);
  void BuildBlocks();
  void BuildMemory();
  double Seconds(const std::vector<std::vector<double>>& sums, int begin, int end, int device) const {
    const Device& d = request_->devices[device];
    const std::vector<double>& sum = sums[d.cost_class];
    return (sum[end] - sum[begin]) * d.time_scale;
  }

  const PlanRequest* request_;
  DirectedLinks links_;
  StopFunction stop_;
  size_t device_count_ = 0;
  std::vector<int> order_, position_of_;
  int first_cut_ = 1;
  int blocks_ = 1;
  std::vector<int> usable_;
  int min_stages_ = 1, max_stages_ = 1;
  std::vector<std::vector<double>> forward_, backward_, update_;  // prefix sums by cost class
  std::vector<double> flops_;
  std::vector<int64_t> static_, stash_, stash_alive_, lossy_alive_, lossless_alive_, gradient_alive_, usable_memory_;
  // With recomputation. What is kept between blocks, summed up over where it is first read again; by position, what earlier ops made and
  // later ones read again (but for what the sum counts there), and the last that is next to do so.
  std::vector<int64_t> kept_first_, again_alive_;
  std::vector<int> again_furthest_;
  // What blocks make again inside, summed up over its first keeper, and what of it is made before a position and kept first from there on;
  // a run is of consecutive positions of one block.
  std::vector<int64_t> inside_, inside_alive_;
  std::vector<int> run_of_, run_begin_;
  std::vector<std::vector<int64_t>> run_max_;        // sparse table, of whole runs
  std::vector<std::vector<int64_t>> workspace_max_;  // likewise, of positions
  std::vector<ChainValue> values_;
  std::vector<std::vector<int>> tied_;
  std::vector<int> pinned_to_;    // by position, -1: free; empty without pins
  std::vector<int> next_pinned_;  // by position: first pinned position at or after it
  std::vector<int> pin_run_end_;  // by pinned position: first pinned position after it with another device
  double max_ratio_ = 1, max_direction_ratio_ = 1;
};

}  // namespace fusionllm::scheduler
