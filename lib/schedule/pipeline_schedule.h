// Pipeline schedules: the order in which a stage runs the forward and backward passes of a step's micro-batches. The runtime runs its
// stages by these objects and the planner simulates with them, so that what is predicted is what runs.
//
// Forward passes of a stage go in the order of the micro-batches, and so do its backward passes; a schedule says which of the two comes
// next, and how many micro-batches a stage keeps activations of (its micro-batches in flight). A new schedule is a row in All() and its
// rules here (docs/design/extending.md).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace fusionllm::schedule {

enum class Pass : uint8_t { kForward, kBackward };

// The passes of one stage in a step so far.
struct Progress {
  int forwards = 0;       // begun
  int forwards_done = 0;  // at most `forwards`
  int backwards = 0;      // begun, at most `forwards_done`
  bool last_was_backward = false;

  void Begin(Pass pass) {
    last_was_backward = pass == Pass::kBackward;
    ++(pass == Pass::kForward ? forwards : backwards);
  }
};

// A value, cheap to copy.
class PipelineSchedule {
 public:
  // `name` as in jobs and plans; its characters must outlive the object.
  constexpr PipelineSchedule(absl::string_view name, bool forwards_first) : name_(name), forwards_first_(forwards_first) {}

  absl::string_view name() const { return name_; }
  // Whether all forward passes of a step come before its first backward pass.
  bool forwards_first() const { return forwards_first_; }

  // Micro-batches in flight of a step of `micro_batches`: a stage must have memory for MinInFlight, and MaxInFlight is as many as it can
  // use where no more than `limit` are wanted (0: no limit; a schedule that needs all of them has no fewer).
  int MinInFlight(int micro_batches) const { return forwards_first_ ? micro_batches : 1; }
  int MaxInFlight(int micro_batches, int limit) const {
    return forwards_first_ || limit <= 0 ? micro_batches : std::min(limit, micro_batches);
  }

  // The next pass of a stage that has `micro_batches` in a step and keeps at most `in_flight`; nullopt: it waits. `forward_ready` and
  // `backward_ready`: bool(), whether the inputs of the next pass of that direction are there; asked only where the schedule allows the
  // pass.
  //
  // Where both directions may run they take turns (adr/0006).
  template <typename ForwardReady, typename BackwardReady>
  std::optional<Pass> Next(const Progress& progress, int micro_batches, int in_flight, const ForwardReady& forward_ready,
                           const BackwardReady& backward_ready) const {
    const bool backward =
        progress.backwards < progress.forwards_done && (!forwards_first_ || progress.forwards_done == micro_batches) && backward_ready();
    const bool forward =
        progress.forwards < micro_batches && (forwards_first_ || progress.forwards - progress.backwards < in_flight) && forward_ready();
    if (backward && !(forward && progress.last_was_backward)) return Pass::kBackward;
    if (forward) return Pass::kForward;
    return std::nullopt;
  }

  friend bool operator==(const PipelineSchedule& a, const PipelineSchedule& b) { return a.name_ == b.name_; }

 private:
  absl::string_view name_;
  bool forwards_first_;
};

// All forward passes, then all backward passes. Huang et al., arXiv 1811.06965.
inline constexpr PipelineSchedule kGPipe{"gpipe", true};
// Forward passes while fewer than the stage's micro-batches in flight are under way, and backward passes. Narayanan et al., arXiv
// 2104.04473.
inline constexpr PipelineSchedule k1F1B{"1f1b", false};

// What jobs and plans may name, in the order in which documents list them.
absl::Span<const PipelineSchedule> All();
// nullopt: there is none of that name.
std::optional<PipelineSchedule> Find(absl::string_view name);
// For messages: "gpipe or 1f1b".
std::string NamesText();

}  // namespace fusionllm::schedule
