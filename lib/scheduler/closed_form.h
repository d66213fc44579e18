// The closed-form step time of an assignment, in O(stages): what searches over many devices rank candidates by before the simulator judges.
//
// Sum of stage times and crossings + (micro_batches - 1) x the slowest of them. Bytes at a cut are those alive there, as on a chain; a
// codec shrinks them only as far as the slowest stage asks. Queueing on shared links, the depth of the pipeline and what codecs cost are
// not seen.
//
// Borrows the Problem; immutable, safe to share.
#pragma once

#include <cstdint>

#include "lib/scheduler/assignment.h"
#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler {

class ClosedForm {
 public:
  explicit ClosedForm(const Problem& problem) : problem_(problem) {}

  double StageSeconds(int begin, int end, int device) const {
    return problem_.ForwardSeconds(begin, end, device) + problem_.BackwardSeconds(begin, end, device);
  }

  // Both directions over a cut before `position`; infinite where no link joins the two or no codec gets it below the cap.
  struct Crossing {
    double latency_s = 0;  // both ways
    double forward_s = 0;  // serialisation, squeezed below the cap
    double backward_s = 0;
    double seconds() const { return latency_s + forward_s + backward_s; }
  };
  Crossing CrossingAt(int position, int src, int dst, double cap_s) const {
    return CrossingOf(problem_.BytesAt(position), src, dst, cap_s);
  }
  Crossing CrossingOf(const CutTraffic& bytes, int src, int dst, double cap_s) const;

  // Infinite for an assignment that no link carries.
  double StepSeconds(const Assignment& assignment) const;

  // At least what a stage needs with so many micro-batches in flight; equal on chains.
  int64_t NeededBytes(int begin, int end, int device, int in_flight) const;

  // How many micro-batches the memory of the device holds in flight, at least one, at most as many as there are and the job allows.
  int DepthThatFits(int begin, int end, int device) const;

  // The largest end > begin up to `last` that the device runs within the cap and within its memory; `begin` if there is none.
  int FurthestEnd(int begin, int last, int device, double cap_s, int in_flight) const;
  // The cut in (begin, furthest] with the least crossing for each second of the stage, among those near `furthest` that leave the stage at
  // least such a share of its time there; further back only where none of these is carried. -1: none is.
  int BestCut(int begin, int furthest, int device, int next_device, double cap_s, double min_share) const;

 private:
  const Problem& problem_;
};

}  // namespace fusionllm::scheduler
