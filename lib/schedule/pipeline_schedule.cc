#include "lib/schedule/pipeline_schedule.h"

#include "absl/strings/str_cat.h"

namespace fusionllm::schedule {

absl::Span<const PipelineSchedule> All() {
  static constexpr PipelineSchedule kAll[] = {kGPipe, k1F1B};
  return kAll;
}

std::optional<PipelineSchedule> Find(absl::string_view name) {
  for (const PipelineSchedule& schedule : All()) {
    if (schedule.name() == name) return schedule;
  }
  return std::nullopt;
}

std::string NamesText() {
  std::string text;
  for (const PipelineSchedule& schedule : All()) absl::StrAppend(&text, text.empty() ? "" : " or ", schedule.name());
  return text;
}

}  // namespace fusionllm::schedule
