#include "lib/data/split.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/base/status_macros.h"

namespace fusionllm::data {
namespace {

constexpr char kStream[] = "held out";

}  // namespace

absl::StatusOr<EvenSplit> EvenSplit::Create(int64_t samples, int64_t held_out) {
  if (held_out < 1 || held_out >= samples) {
    return absl::InvalidArgumentError(absl::StrCat("of ", samples, " samples ", held_out, " cannot be held out"));
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const Sampler order, Sampler::Create(held_out, base::StableHash(kStream)));
  return EvenSplit(samples, held_out, order);
}

EvenSplit::EvenSplit(int64_t samples, int64_t held_out, Sampler order)
    : samples_(samples), held_out_(held_out), length_(samples / held_out), longer_(samples % held_out), order_(order) {}

int64_t EvenSplit::Start(int64_t run) const { return run * length_ + std::min(run, longer_); }

int64_t EvenSplit::DrawnOf(int64_t run) const {
  const uint64_t size = static_cast<uint64_t>(length_ + (run < longer_ ? 1 : 0));
  return Start(run) + static_cast<int64_t>(base::CounterRng(0, kStream).Below(static_cast<uint64_t>(run), size));
}

int64_t EvenSplit::HeldOut(int64_t index) const { return DrawnOf(order_.SampleAt(index)); }

int64_t EvenSplit::Kept(int64_t index) const {
  // The longer runs keep length_ samples each, the others one less; where that is none, all that is kept lies in the longer ones.
  const int64_t in_longer = longer_ * length_;
  const int64_t run = index < in_longer ? index / length_ : longer_ + (index - in_longer) / (length_ - 1);
  const int64_t sample = index + run;  // `run` samples in front of this run are held out
  return sample < DrawnOf(run) ? sample : sample + 1;
}

}  // namespace fusionllm::data
