#include "lib/scheduler/timeline.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"

namespace fusionllm::scheduler {

TimelineRecorder::TimelineRecorder(const PipelineInput& input, const std::vector<std::string>& workers) : input_(input) {
  for (size_t w = 0; w < workers.size(); ++w) {
    timeline_.rows.push_back({.name = absl::StrFormat("stage %d: %s", w, workers[w])});
  }
  std::map<std::pair<int, int>, std::pair<std::vector<int>, std::vector<int>>> pairs;  // links of each pair, forwards and backwards
  for (size_t l = 0; l < input.links.size(); ++l) {
    const StageLink& link = input.links[l];
    const int src = link.src % input.workers(), dst = link.dst % input.workers();
    if (link.forward.used) pairs[{src, dst}].first.push_back(static_cast<int>(l));
    if (link.backward.used) pairs[{dst, src}].second.push_back(static_cast<int>(l));
  }
  forward_row_.resize(input.links.size());
  backward_row_.resize(input.links.size());
  // Chunks of an interleaved schedule use the links of their pair, so they share its row.
  for (const auto& [pair, links] : pairs) {
    const std::string ends = absl::StrFormat("%s -> %s", workers[pair.first], workers[pair.second]);
    for (const bool forward : {true, false}) {
      const std::vector<int>& own = forward ? links.first : links.second;
      if (own.empty()) continue;
      for (const int l : own) (forward ? forward_row_ : backward_row_)[l] = static_cast<int>(timeline_.rows.size());
      timeline_.rows.push_back({.name = ends + (forward ? ": activations" : ": gradients"), .is_link = true});
    }
  }
  std::map<std::pair<int, int>, int> tied_rows;
  for (const TiedMessage& tied : input.tied) {
    const auto [found, added] = tied_rows.emplace(std::pair(tied.from, tied.to), static_cast<int>(timeline_.rows.size()));
    tied_row_.push_back(found->second);
    if (!added) continue;
    timeline_.rows.push_back({.name = absl::StrFormat("%s -> %s: tied gradients", workers[tied.from], workers[tied.to]), .is_link = true});
  }
}

void TimelineRecorder::Add(const TimelineSpan& span) {
  if (timeline_.boxes.size() == kMaxTimelineBoxes) {
    timeline_.truncated = true;
    return;
  }
  int row = span.stage % input_.workers();
  if (span.kind == TimelineSpan::Kind::kForwardMessage) row = forward_row_[span.stage];
  if (span.kind == TimelineSpan::Kind::kBackwardMessage) row = backward_row_[span.stage];
  if (span.kind == TimelineSpan::Kind::kTiedMessage) row = tied_row_[span.stage];
  timeline_.boxes.push_back({row, span});
}

Timeline TimelineRecorder::Finish(double step_s) {
  timeline_.step_s = step_s;
  return std::move(timeline_);
}

}  // namespace fusionllm::scheduler
