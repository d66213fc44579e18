// One simulated step as rows of boxes: what drawings and traces are made of. Plain data; a TimelineRecorder is for one thread.
#pragma once

#include <string>
#include <vector>

#include "lib/scheduler/pipeline_model.h"

namespace fusionllm::scheduler {

inline constexpr size_t kMaxTimelineBoxes = 1'000'000;

struct Timeline {
  struct Row {
    std::string name;
    bool is_link = false;  // else a stage's device
  };
  struct Box {
    int row = 0;
    TimelineSpan span;
  };
  std::vector<Row> rows;   // stages in pipeline order, then the directions of links, then those of tied gradients
  std::vector<Box> boxes;  // of a row ascending and without overlap
  double step_s = 0;
  bool truncated = false;  // there were more boxes than kMaxTimelineBoxes
};

class TimelineRecorder final : public SpanSink {
 public:
  // `workers`: a name for each. `input` must outlive the recorder.
  TimelineRecorder(const PipelineInput& input, const std::vector<std::string>& workers);
  void Add(const TimelineSpan& span) override;
  Timeline Finish(double step_s);

 private:
  const PipelineInput& input_;
  Timeline timeline_;
  std::vector<int> forward_row_, backward_row_;  // by link
  std::vector<int> tied_row_;                    // by tied message
};

}  // namespace fusionllm::scheduler
