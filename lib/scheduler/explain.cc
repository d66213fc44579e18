#include "lib/scheduler/explain.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/counted.h"
#include "lib/scheduler/bounds.h"
#include "lib/scheduler/words.h"

namespace fusionllm::scheduler {
namespace {

// "+3.1%", or why that cannot be.
std::string Effect(const Evaluation& other, double cost_s) {
  switch (other.verdict) {
    case Evaluation::Verdict::kTooMuchMemory:
      return "not enough memory";
    case Evaluation::Verdict::kDisconnected:
      return "no link";
    case Evaluation::Verdict::kAgainstPins:
      return "against a pin";
    case Evaluation::Verdict::kTooMuchEgress:
      return "more leaves a site than allowed";
    default:
      return absl::StrFormat("%+.1f%%", 100 * (other.cost_s() / cost_s - 1));
  }
}

class Alternatives {
 public:
  Alternatives(const Problem& problem, Evaluator& evaluator, const Assignment& assignment)
      : problem_(problem),
        evaluator_(evaluator),
        assignment_(assignment),
        cost_s_(evaluator.Evaluate(assignment, Effort::kFull).cost_s()) {}

  // "begins at 'x'; ...": of a cut.
  std::string OfCut(size_t stage) {
    const int begin = assignment_.begins[stage];
    const int before = stage == 1 ? problem_.first_cut() : assignment_.begins[stage - 1] + 1;
    const int end = stage + 1 < assignment_.begins.size() ? assignment_.begins[stage + 1] : problem_.positions();
    std::vector<std::string> moves;
    if (begin - 1 >= before) moves.push_back(absl::StrCat("one op earlier: ", WithCut(stage, begin - 1)));
    if (begin + 1 < end) moves.push_back(absl::StrCat("one op later: ", WithCut(stage, begin + 1)));
    if (moves.empty()) moves.emplace_back("no op can move");
    return absl::StrFormat("cut before '%s' (%s)", problem_.request().ops[problem_.op_at(begin)].name, absl::StrJoin(moves, ", "));
  }

  // The best of `devices` in the stage's place; empty without any.
  std::string OfDevice(size_t stage, const std::vector<int>& devices) {
    Evaluation best;
    int best_device = -1;
    for (const int device : devices) {
      Assignment other = assignment_;
      other.devices[stage] = device;
      const Evaluation evaluation = evaluator_.Evaluate(other, Effort::kFull);
      if (best_device >= 0 && !Better(evaluation, 0, best, 0)) continue;
      best = evaluation;
      best_device = device;
    }
    if (best_device < 0) return "";
    return absl::StrFormat("on %s instead of %s: %s", problem_.request().devices[best_device].name,
                           problem_.request().devices[assignment_.devices[stage]].name, Effect(best, cost_s_));
  }

 private:
  std::string WithCut(size_t stage, int begin) {
    Assignment other = assignment_;
    other.begins[stage] = begin;
    return Effect(evaluator_.Evaluate(other, Effort::kFull), cost_s_);
  }

  const Problem& problem_;
  Evaluator& evaluator_;
  const Assignment& assignment_;
  const double cost_s_;
};

}  // namespace

std::vector<std::string> Explain(const Problem& problem, const Plan& plan) {
  const PlanRequest& request = problem.request();
  std::vector<std::string> lines;
  double slowest_s = 0;
  for (const PlanStage& stage : plan.stages) slowest_s = std::max(slowest_s, stage.forward_s + stage.backward_s + stage.codec_s);
  for (const PlanStage& stage : plan.stages) {
    const double stage_s = stage.forward_s + stage.backward_s + stage.codec_s;
    const Device& device = request.devices[stage.devices[0]];
    lines.push_back(absl::StrFormat(
        "stage %d: %s%s runs %s, %s per micro-batch%s, %d in flight, room for %s", stage.index, device.name,
        device.site.empty() ? "" : absl::StrCat(" (", device.site, ")"), base::Counted(static_cast<int64_t>(stage.ops.size()), "op"),
        DurationText(stage_s),
        stage_s >= slowest_s * (1 - 1e-9) ? ", the slowest stage" : absl::StrFormat(" (%.0f%% of the slowest)", 100 * stage_s / slowest_s),
        stage.in_flight, SizeText(static_cast<double>(problem.UsableMemory(stage.devices[0])))));
  }
  for (const PlanLink& link : plan.links) {
    const double worst_s = std::max(link.forward_s, link.backward_s);
    std::string why = worst_s <= slowest_s ? "hidden behind the slowest stage" : "not hidden behind the slowest stage";
    if (link.ratio > 1) {
      why = absl::StrFormat("%s after shrinking %.3gx, expected to raise the loss by %.2g", why, link.ratio, link.loss_cost);
    }
    if (!link.codec_reason.empty()) absl::StrAppend(&why, ". Codec: ", link.codec_reason);
    lines.push_back(absl::StrFormat("link %d -> %d: %s -> %s carries %s as %s (%s forward, %s back per micro-batch): %s", link.src_stage,
                                    link.dst_stage, link.src_device, link.dst_device, absl::StrJoin(link.value_names, ", "), link.codec,
                                    SizeText(static_cast<double>(link.forward_wire_bytes)),
                                    SizeText(static_cast<double>(link.backward_wire_bytes)), why));
  }
  for (const TiedExchange& tied : plan.tied) {
    lines.push_back(absl::StrFormat("tied parameter %s: used in stages %s, which exchange %s of gradients after each step", tied.parameter,
                                    absl::StrJoin(tied.stages, ", "), SizeText(static_cast<double>(tied.bytes))));
  }
  std::set<absl::string_view> spares;
  for (const Device& device : request.devices) {
    if (device.spare) spares.insert(device.name);
  }
  for (const std::string& name : plan.left_out) {
    const bool capped = static_cast<int>(plan.stages.size()) >= problem.max_stages();
    lines.push_back(absl::StrFormat("%s has no stage: %s", name,
                                    spares.contains(name) ? "a spare"
                                    : capped ? absl::StrCat("the job may use ", base::Counted(problem.max_stages(), "executor"))
                                             : std::string("a stage there would not make the step faster")));
  }
  return lines;
}

std::vector<std::string> ExplainAlternatives(const Problem& problem, Evaluator& evaluator, const Assignment& assignment, const Plan& plan) {
  if (assignment.devices.size() > static_cast<size_t>(kMostStagesWeighed)) return {};
  const std::set<absl::string_view> left_out(plan.left_out.begin(), plan.left_out.end());
  std::vector<int> free;
  for (const int device : problem.usable()) {
    if (free.size() < kMostDevicesWeighed && left_out.contains(problem.request().devices[device].name)) free.push_back(device);
  }
  Alternatives alternatives(problem, evaluator, assignment);
  std::vector<std::string> lines;
  for (size_t s = 0; s < assignment.devices.size(); ++s) {
    std::vector<std::string> parts;
    if (s > 0) parts.push_back(alternatives.OfCut(s));
    if (std::string device = alternatives.OfDevice(s, free); !device.empty()) parts.push_back(std::move(device));
    if (!parts.empty()) lines.push_back(absl::StrFormat("why stage %d: %s", s, absl::StrJoin(parts, "; ")));
  }
  if (!lines.empty()) lines.emplace_back("(percentages: the time of a step to an equal loss, against this plan)");
  return lines;
}

std::string ExplainBound(const std::vector<LowerBound>& bounds, double gap) {
  const LowerBound* const binding = BindingBound(bounds);
  if (binding == nullptr) return "no lower bound holds";
  return absl::StrFormat("no plan can take less than %s, by the bound %s: %s; this one takes %.1f%% more", DurationText(binding->seconds),
                         binding->name, binding->why, 100 * gap);
}

}  // namespace fusionllm::scheduler
