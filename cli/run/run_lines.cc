#include "cli/run/run_lines.h"

#include <utility>

namespace fusionllm::cli {

RunLines::RunLines(std::string events_path, std::string traces_path, Options options)
    : events_path_(std::move(events_path)), traces_path_(std::move(traces_path)), options_(options) {
  if (!options_.hold_back) Begin();
}

void RunLines::Begin() {
  if (begun_) return;
  begun_ = true;
  const std::ios::openmode mode = options_.replace ? std::ios::trunc : std::ios::app;
  events_.open(events_path_, std::ios::out | mode);
  traces_.open(traces_path_, std::ios::out | mode);
  for (const Held& held : std::exchange(held_, {})) Add(held.line, held.trace);
}

void RunLines::Add(absl::string_view line, bool trace) {
  if (begun_) {
    (trace ? traces_ : events_) << line << std::endl;
  } else if (held_.size() < kHeldMax) {
    held_.push_back({std::string(line), trace});
  }
}

}  // namespace fusionllm::cli
