// Simulated annealing of an assignment under a closed form: order of devices, cuts and who takes part, all at once.
//
// A candidate costs less than a microsecond here and hundreds in the simulator, so that this is what finds good orders of dozens of
// devices. The closed form is the latest of: for a stage, the way there and back of one micro-batch, and all of them in the stage; for a
// shared link likewise; and the way to the last stage and back, with the slowest pass or message once for each other micro-batch. Of the
// way from a stage to the last one and back a share counts as well: all of it under GPipe, where this is what the simulator says; under
// 1F1B the share that fits differs from plan to plan, nought to 0.2 where it was looked at, and plans found under one share are often
// better than those under another. Only what is latest counts, which tells most moves nothing; so a target is part of what is annealed, and
// all that is later than it counts by how much. When nothing is later this is the closed form, otherwise it is more.
//
// Memory is judged at the textbook depth; shared links by what they carry in a step. What codecs cost, reports at the end of a step and
// values that skip stages are not seen: the simulator has the last word, and the best plans come of short runs, some hundred moves each,
// from what it likes.
//
// Deterministic. One thread; borrows the Problem. Memory: linear in ops x cost classes, devices and shared resources.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "lib/scheduler/assignment.h"
#include "lib/scheduler/closed_form.h"
#include "lib/scheduler/grid/rng.h"
#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler {

class StageAnnealing {
 public:
  // Which fits best differs from plan to plan: searches take turns.
  static constexpr double kUsualShares[] = {0.1, 0.25, 0.4, 0.7};

  // Whether there are so many devices that trying changes by turns is hopeless, and so few that moves at random meet the ones that pay.
  static bool Suits(const Problem& problem) { return problem.usable().size() > 12 && problem.usable().size() <= 64; }

  // `choice`: whom a stage may be given; the devices of every start are among them.
  StageAnnealing(const Problem& problem, std::vector<int> choice);

  // The best assignment met in so much work from `start`, which links must carry. `share`: see above, 0 to 1; GPipe's is 1.
  Assignment Run(const Assignment& start, double share, int64_t max_work, grid::Rng& rng);

  // Stages looked at so far, those that are laid again as eight: what searches charge to their budget.
  int64_t work() const { return work_; }

 private:
  friend class StageAnnealingPeer;  // of the test: what a move makes of the energy

  // Over a cut, squeezed by codecs as far as the target asks.
  struct Crossing {
    double latency_s = 0;  // both ways
    double there_s = 0, back_s = 0;
    int cut = 0, src = -1, dst = -1;  // src: -1 before the first part
    bool possible = true;
  };
  struct Part {
    int device = 0, begin = 0, end = 0;
    double stage_s = 0;
    double longer_s = 0;  // the longer of its two passes
    Crossing before;      // from the part before it
  };
  // Of the parts up to some point: the way so far, what is late so far, the longest pass or message.
  struct Prefix {
    double path_s = 0, excess_s = 0, longest_s = 0;
  };

  double Seconds(const std::vector<std::vector<double>>& sums, int begin, int end, int device) const {
    const Device& d = problem_.request().devices[device];
    return (sums[d.cost_class][end] - sums[d.cost_class][begin]) * d.time_scale;
  }
  double Excess(double seconds) const { return std::max(0.0, seconds - target_s_); }
  // `before` is left as it is.
  void SetPart(Part& part, int begin, int end, int device) const;
  Crossing CrossingOf(int cut, int src, int dst) const;
  void ExtendPrefix(Prefix& prefix, double whole_s, const Crossing& before, const Part& part) const;
  static double PathSeconds(const Crossing& before, const Part& part);
  static double SlowerOf(const Crossing& crossing) { return std::max(crossing.there_s, crossing.back_s); }
  double ExcessOf(int first, int last, double shift_s) const;
  double EndOf(const Prefix& prefix) const;
  double Energy() const { return EndOf(prefixes_.back()) + exchange_s_ + load_excess_s_; }
  template <class PartAt>
  double ExchangeSeconds(size_t count, const PartAt& at) const;
  double ExchangeOfParts() const;
  void AddLoad(int src, int dst, double seconds, int sign);
  void AddLoad(const Crossing& crossing, int sign);
  void Start(const Assignment& start);
  void Total();
  void ComputePrefixes();
  void FindUnused();
  int Furthest(int begin, int last, int device, double path_s) const;
  bool Fits(const Part& part, int in_flight) const;

  void StartDraft(int first, int last);
  void AppendToDraft(int device, int length) { draft_.emplace_back(device, length); }
  bool Rebuild(bool refill, double limit);
  bool Propose(double limit, bool refill);
  void Accept();
  bool Move(double limit, grid::Rng& rng);
  bool MoveTarget(double limit, grid::Rng& rng);
  bool ShiftCuts(double limit, grid::Rng& rng);
  bool Rearrange(double limit, grid::Rng& rng);
  bool ChangeDevices(double limit, grid::Rng& rng);

  const Problem& problem_;
  const ClosedForm form_;
  const std::vector<int> choice_;
  const double micro_batches_;
  bool memory_matters_ = false;                                 // else every device holds everything
  std::vector<std::vector<double>> forward_, backward_, both_;  // by cost class: seconds of the positions before
  std::vector<int> cheap_;                                      // by position: the nearest one where no more is alive than beside it
  // By position: bytes alive there that go on, as they are and squeezed as far as codecs go.
  std::vector<double> dense_bytes_, min_bytes_, gradient_bytes_, min_gradient_bytes_;
  std::vector<int> unused_;
  std::vector<char> used_;  // by device: scratch
  std::vector<Part> parts_;
  std::vector<Prefix> prefixes_;  // behind each part; [0]: before the first
  // By part: what is late of it and of the shared link before it by how much more than the target, but for `share_` of the whole way, which
  // most moves change; and the longest pass or message from there on.
  struct Base {
    double transfer_s = 0, stage_s = 0;
  };
  std::vector<Base> bases_;
  std::vector<double> longest_behind_s_;
  std::vector<double> load_s_;  // by shared resource: of a micro-batch
  double share_ = 1, target_s_ = 0, whole_s_ = 0, load_excess_s_ = 0, exchange_s_ = 0;
  // What the parts first_ .. last_ - 1 are to become.
  int first_ = 0, last_ = 0;
  std::vector<std::pair<int, int>> draft_;  // devices and lengths
  bool snap_ = false;                       // cuts to where little is alive
  std::vector<Part> rebuilt_;
  Crossing behind_;  // into last_
  int64_t work_ = 0;
};

}  // namespace fusionllm::scheduler
