#include "lib/report/slow_step.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/report/loss_figures.h"
#include "lib/report/number_format.h"

namespace fusionllm::report {
namespace {

const plan::Stage* FindStage(const plan::Plan& plan, int index) {
  for (const plan::Stage& stage : plan.stages) {
    if (stage.index == index) return &stage;
  }
  return nullptr;
}

// The stage whose work took longest beside what was planned for it.
std::string SlowestStage(const Run& run) {
  const StageTotal* worst = nullptr;
  double times = kAsPlanned;
  for (const StageTotal& stage : run.summary->stages) {
    const plan::Stage* const planned = FindStage(*run.plan, stage.index);
    if (planned == nullptr) continue;
    const double seconds = RankOf(*planned, stage.replica).compute_seconds + planned->codec_seconds + planned->update_seconds;
    const double measured = stage.busy_ratio * run.summary->median_step_s;
    if (!(seconds > 0) || !(measured / seconds > times)) continue;
    times = measured / seconds;
    worst = &stage;
  }
  if (worst == nullptr) return "";
  std::string text = absl::StrFormat("stage %d on %s worked %.1fx as long as planned", worst->index, worst->device, times);
  if (const double share = LatenessRatio(run, *worst); share > 0)
    absl::StrAppendFormat(&text, ", %.0f%% of it waiting for a processor of this machine", 100 * share);
  return text;
}

std::string SlowestLink(const Run& run) {
  const plan::Link* worst = nullptr;
  double times = kAsPlanned;
  for (const plan::Link& planned : run.plan->links) {
    for (const LinkTotal& link : run.summary->links) {
      if (link.src != planned.src || link.dst != planned.dst || !(link.bytes_per_s > 0) || !(planned.seconds > 0)) continue;
      const double measured = static_cast<double>(planned.bytes) / link.bytes_per_s;
      if (!(measured / planned.seconds > times)) continue;
      times = measured / planned.seconds;
      worst = &planned;
    }
  }
  return worst == nullptr ? "" : absl::StrFormat("messages %s > %s took %.1fx as long as planned", worst->src, worst->dst, times);
}

}  // namespace

double LatenessRatio(const Run& run, const StageTotal& stage) {
  constexpr double kLittle = 0.1;
  const double worked_s = stage.busy_ratio * TrainingSeconds(run);
  if (!(worked_s > 0)) return 0;
  const double share = stage.lateness_s / worked_s;
  return share > kLittle ? std::min(share, 1.0) : 0;
}

std::string SlowStepSentence(const Run& run) {
  if (!run.summary || !run.plan) return "";
  const double measured = run.summary->median_step_s, predicted = run.summary->predicted_step_s;
  if (!(measured > 0) || !(predicted > 0) || measured / predicted <= kAsPlanned) return "";
  std::vector<std::string> reasons;
  for (const std::string& reason : {SlowestStage(run), SlowestLink(run)}) {
    if (!reason.empty()) reasons.push_back(reason);
  }
  if (run.machine_was_busy) reasons.push_back(base::OthersUsed(*run.processors));
  if (reasons.empty()) reasons.emplace_back("no stage or link alone says why; the rest is waiting between them");
  return absl::StrFormat("a step took %.1fx the predicted %s: %s", measured / predicted, StepSeconds(predicted),
                         absl::StrJoin(reasons, "; "));
}

}  // namespace fusionllm::report
