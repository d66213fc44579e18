// Which samples a fraction of the data holds out for validation, drawn evenly over the whole: files that are sorted by topic or time are
// all in it.
//
// The samples are cut into as many runs of equal length (but for one sample) as are held out, and of each run one is drawn. The draw is a
// function of the two numbers alone, not of a seed: who resumes with another seed does not train on what was held out. Held-out samples
// have an order of their own, shuffled likewise, so that an evaluation that reads only the first of them has seen all parts of the data.
//
// Windows of tokens do not overlap, and neither do the targets of any two of them. One token is shared by neighbours: the last target of a
// window is the first input of the next, which no window has as a target twice. So no held-out target is ever a target of training, but the
// last token of a held-out window is also an input where training reads the window behind it.
// Immutable; safe to use from several threads.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "lib/data/sampler.h"

namespace fusionllm::data {

class EvenSplit {
 public:
  // InvalidArgument unless 1 <= held_out < samples.
  static absl::StatusOr<EvenSplit> Create(int64_t samples, int64_t held_out);

  int64_t held_out() const { return held_out_; }
  int64_t kept() const { return samples_ - held_out_; }
  // Constant time. The sample that stands at `index` of those kept, in [0, kept), which are in the order of the data; or of those held out.
  int64_t Kept(int64_t index) const;
  int64_t HeldOut(int64_t index) const;

 private:
  EvenSplit(int64_t samples, int64_t held_out, Sampler order);
  int64_t Start(int64_t run) const;
  int64_t DrawnOf(int64_t run) const;  // the sample

  int64_t samples_, held_out_;
  int64_t length_, longer_;  // of a run; how many runs, the first ones, have one sample more
  Sampler order_;
};

}  // namespace fusionllm::data
