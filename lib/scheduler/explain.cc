#include "lib/scheduler/explain.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/pluralize.h"
#include "lib/scheduler/bottlenecks.h"
#include "lib/scheduler/bounds.h"
#include "lib/scheduler/simulation.h"
#include "lib/scheduler/text_format.h"

namespace fusionllm::scheduler {
namespace {

// "+3.1%", "82 times as long (3.9 s)", "2.1 times as long to an equal loss (a step of 0.7 s)", or why that cannot be.
std::string Effect(const Evaluation& other, const Evaluation& base) {
  constexpr double kFarLonger = 2;
  switch (other.feasibility) {
    case Evaluation::Feasibility::kTooMuchMemory:
      return "not enough memory";
    case Evaluation::Feasibility::kDisconnected:
      return "no link";
    case Evaluation::Feasibility::kPinViolation:
      return "against a pin";
    case Evaluation::Feasibility::kEgressLimitExceeded:
      return "more leaves a site than allowed";
    default:
      const double ratio = other.cost_s() / base.cost_s();
      if (ratio < kFarLonger) return absl::StrFormat("%+.1f%%", 100 * (ratio - 1));
      // Where compression costs loss the two steps compare otherwise than the times to an equal loss.
      const bool same_loss = other.cost_s() == other.step_s && base.cost_s() == base.step_s;
      if (same_loss) return absl::StrFormat("%.3g times as long (%s)", ratio, DurationText(other.step_s));
      return absl::StrFormat("%.3g times as long to an equal loss (a step of %s)", ratio, DurationText(other.step_s));
  }
}

class Alternatives {
 public:
  Alternatives(const Problem& problem, Evaluator& evaluator, const Assignment& assignment)
      : problem_(problem), evaluator_(evaluator), assignment_(assignment), base_(evaluator.Evaluate(assignment, Effort::kFull)) {}

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

  // Where a device without a stage would do best: in place of another, or with a part of its stage. Empty where it can do nothing.
  std::string OfLeftOut(int device) {
    Assignment best;
    Evaluation best_evaluation;
    std::string place;
    const auto consider = [&](const Assignment& other, const std::string& what) {
      if (!problem_.AllowsStages(other.devices.size())) return;
      const Evaluation evaluation = evaluator_.Evaluate(other, Effort::kFull);
      if (!evaluation.feasible()) return;
      if (!place.empty() && !Better(evaluation, other.devices.size(), best_evaluation, best.devices.size())) return;
      best = other;
      best_evaluation = evaluation;
      place = what;
    };
    for (size_t s = 0; s < assignment_.devices.size(); ++s) {
      const std::string& name = problem_.request().devices[assignment_.devices[s]].name;
      Assignment other = assignment_;
      other.devices[s] = device;
      consider(other, absl::StrFormat("in place of %s", name));
      const int begin = std::max(assignment_.begins[s], s == 0 ? problem_.first_cut() - 1 : 0);
      const int end = s + 1 < assignment_.begins.size() ? assignment_.begins[s + 1] : problem_.positions();
      const int middle = begin + (end - begin) / 2;
      if (middle <= begin || (s == 0 && middle < problem_.first_cut())) continue;
      const auto at = static_cast<std::ptrdiff_t>(s) + 1;
      other = assignment_;
      other.begins.insert(other.begins.begin() + at, middle);
      other.devices.insert(other.devices.begin() + at, device);
      consider(other, absl::StrFormat("with the second half of the stage of %s", name));
    }
    if (place.empty()) return "";
    return absl::StrFormat("%s: it would do best %s: %s, then limited by %s", problem_.request().devices[device].name, place,
                           Effect(best_evaluation, base_), LimitOf(best));
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
                           problem_.request().devices[assignment_.devices[stage]].name, Effect(best, base_));
  }

 private:
  std::string LimitOf(const Assignment& assignment) {
    constexpr int kProbed = 3;
    const PlannedPipeline plan = evaluator_.ToPlan(assignment, "");
    const Simulation simulation = Simulate(plan.pipeline.input, plan.pipeline.shared_links);
    const std::vector<Bottleneck> bottlenecks = FindBottlenecks(plan.pipeline.input, simulation, kProbed);
    std::vector<std::string> devices, tied;
    for (const PlannedStage& stage : plan.stages) devices.push_back(stage.device_names[0]);
    for (const TiedExchange& exchange : plan.tied) tied.push_back(exchange.parameter);
    return bottlenecks.empty() ? "nothing" : NameOf(bottlenecks[0], simulation, devices, tied);
  }
  std::string WithCut(size_t stage, int begin) {
    Assignment other = assignment_;
    other.begins[stage] = begin;
    return Effect(evaluator_.Evaluate(other, Effort::kFull), base_);
  }

  const Problem& problem_;
  Evaluator& evaluator_;
  const Assignment& assignment_;
  const Evaluation base_;
};

// What a link carries in one direction, so that it can be checked by hand.
class LinkSentence {
 public:
  LinkSentence(const Problem& problem, const PlannedPipeline& plan, const PlannedLink& link, double slowest_s)
      : problem_(problem), plan_(plan), link_(link), slowest_s_(slowest_s) {}

  std::string Text() {
    std::vector<std::string> directions = {Direction(true)};
    if (link_.backward_bytes > 0) directions.push_back(Direction(false));
    std::string text = absl::StrFormat("link %d -> %d: %s -> %s carries %s as %s for each micro-batch: %s", link_.src_stage,
                                       link_.dst_stage, link_.src_device, link_.dst_device, absl::StrJoin(link_.value_names, ", "),
                                       SentAs(), absl::StrJoin(directions, "; "));
    absl::StrAppendFormat(&text, ". The slowest stage takes %s a micro-batch: %s", DurationText(slowest_s_),
                          busiest_s_ <= slowest_s_ ? "the link is hidden behind it" : "the link is not hidden, stages wait for it");
    if (link_.loss_cost > 0)
      absl::StrAppendFormat(&text, ". Shrunk %.3gx, expected to raise the loss by %.2g", link_.ratio, link_.loss_cost);
    if (!link_.codec_reason.empty()) absl::StrAppend(&text, ". Codec: ", link_.codec_reason, SentAs() == "ids" ? "" : Share());
    return text;
  }

 private:
  // The codec, or the type of what it leaves as it is.
  std::string SentAs() const {
    if (link_.codec != "fp32") return link_.codec;
    for (const int v : link_.values) {
      const ValueNode& value = problem_.request().values[v];
      if (value.differentiable && !value.lossless_only) return value.bytes_of_element == 2 ? "bf16, uncompressed" : "fp32, uncompressed";
    }
    return "ids";
  }

  std::string Direction(bool forward) {
    const double latency_s = forward ? link_.forward_latency_s : link_.backward_latency_s;
    const double transfer_s = std::max(0.0, (forward ? link_.forward_s : link_.backward_s) - latency_s);
    const auto bytes = static_cast<double>(forward ? link_.forward_wire_bytes : link_.backward_wire_bytes);
    std::string text = absl::StrFormat("%s %s", TrafficText(bytes), forward ? "forward" : "back");
    if (transfer_s > 0) absl::StrAppendFormat(&text, " at %s/s, %s", TrafficText(bytes / transfer_s), DurationText(transfer_s));
    absl::StrAppendFormat(&text, " and %s of latency", DurationText(latency_s));
    if (plan_.micro_batches > 1) {
      absl::StrAppendFormat(&text, " (%s for all %d)", DurationText(transfer_s * plan_.micro_batches + latency_s), plan_.micro_batches);
    }
    busiest_s_ = std::max(busiest_s_, transfer_s);
    if (const auto [name, seconds] = BusiestSharedLink(forward); seconds > transfer_s * kClearly) {
      absl::StrAppendFormat(&text, ", %s with all else that crosses %s", DurationText(seconds), name);
      busiest_s_ = std::max(busiest_s_, seconds);
    }
    return text;
  }

  // The shared link of that direction which all links together keep busy longest, for one micro-batch.
  std::pair<std::string, double> BusiestSharedLink(bool forward) const {
    const PipelineInput& input = plan_.pipeline.input;
    std::pair<std::string, double> busiest;
    for (const StageLink& own : input.links) {
      if (own.src != link_.src_stage || own.dst != link_.dst_stage) continue;
      for (const LinkOccupancy& use : (forward ? own.forward : own.backward).shared_links) {
        if (plan_.pipeline.shared_links[use.shared_link].empty()) continue;
        double seconds = 0;
        for (const StageLink& other : input.links) {
          for (const Channel* channel : {&other.forward, &other.backward}) {
            for (const LinkOccupancy& shared : channel->shared_links) seconds += shared.shared_link == use.shared_link ? shared.hold_s : 0;
          }
        }
        if (seconds > busiest.second) busiest = {plan_.pipeline.shared_links[use.shared_link], seconds};
      }
    }
    return busiest;
  }

  // Where others cross the shared link the codec was chosen for a part of its rate.
  std::string Share() const {
    const double transfer_s = link_.forward_s - link_.forward_latency_s;
    const double rate = transfer_s > 0 ? static_cast<double>(link_.forward_wire_bytes) / transfer_s : 0;
    if (link_.forward_share_bytes_per_s <= 0 || link_.forward_share_bytes_per_s * kClearly > rate) return "";
    return absl::StrFormat(" (at its share of the line, %s/s)", TrafficText(link_.forward_share_bytes_per_s));
  }

  static constexpr double kClearly = 1.001;
  const Problem& problem_;
  const PlannedPipeline& plan_;
  const PlannedLink& link_;
  const double slowest_s_;
  double busiest_s_ = 0;
};

std::string TiedSentence(const PlannedPipeline& plan, const TiedExchange& tied) {
  double seconds = 0, latency_s = 0;
  int64_t bytes = 0;
  for (const TiedExchange::Message& message : tied.messages) {
    bytes = std::max(bytes, message.bytes);
    if (message.seconds + message.latency_s <= seconds + latency_s) continue;
    seconds = message.seconds;
    latency_s = message.latency_s;
  }
  return absl::StrFormat(
      "tied parameter %s: used in stages %s, each of which sends the others up to %s of gradients as %s when its last backward is done: %s "
      "and %s of latency of a step of %s; with all uses in one stage nothing would be sent%s%s",
      tied.parameter, absl::StrJoin(tied.stages, ", "), TrafficText(static_cast<double>(bytes)), tied.codec, DurationText(seconds),
      DurationText(latency_s), DurationText(plan.predicted_step_s), tied.codec_reason.empty() ? "" : ". Codec: ", tied.codec_reason);
}

}  // namespace

std::vector<std::string> Explain(const Problem& problem, const PlannedPipeline& plan) {
  const PlanRequest& request = problem.request();
  std::vector<std::string> lines;
  double slowest_s = 0;
  for (const PlannedStage& stage : plan.stages) slowest_s = std::max(slowest_s, stage.forward_s + stage.backward_s + stage.codec_s);
  for (const PlannedStage& stage : plan.stages) {
    const double stage_s = stage.forward_s + stage.backward_s + stage.codec_s;
    const Device& device = request.devices[stage.devices[0]];
    lines.push_back(absl::StrFormat(
        "stage %d: %s%s runs %s, %s per micro-batch%s, %s to update once a step, %d in flight, room for %s", stage.index, device.name,
        device.site.empty() ? "" : absl::StrCat(" (", device.site, ")"), base::Pluralize(static_cast<int64_t>(stage.ops.size()), "op"),
        DurationText(stage_s),
        stage_s >= slowest_s * (1 - 1e-9) ? ", the slowest stage" : absl::StrFormat(" (%.0f%% of the slowest)", 100 * stage_s / slowest_s),
        DurationText(stage.update_s), stage.in_flight, SizeText(static_cast<double>(problem.UsableMemory(stage.devices[0])))));
  }
  for (const PlannedLink& link : plan.links) lines.push_back(LinkSentence(problem, plan, link, slowest_s).Text());
  for (const TiedExchange& tied : plan.tied) lines.push_back(TiedSentence(plan, tied));
  std::set<absl::string_view> spares;
  for (const Device& device : request.devices) {
    if (device.spare) spares.insert(device.name);
  }
  for (const std::string& name : plan.left_out) {
    const bool capped = static_cast<int>(plan.stages.size()) >= problem.max_stages();
    const std::string why = spares.contains(name) ? "it is a spare"
                            : capped              ? absl::StrCat("the job may use ", base::Pluralize(problem.max_stages(), "executor"))
                                                  : std::string("no faster plan with it was found");
    lines.push_back(absl::StrFormat("%s has no stage: %s", name, why));
  }
  return lines;
}

std::vector<std::string> ExplainAlternatives(const Problem& problem, Evaluator& evaluator, const Assignment& assignment,
                                             const PlannedPipeline& plan) {
  if (assignment.devices.size() > static_cast<size_t>(kMaxExplainedStages)) return {};
  const std::set<absl::string_view> left_out(plan.left_out.begin(), plan.left_out.end());
  std::vector<int> free;
  for (const int device : problem.usable()) {
    if (free.size() < kMaxExplainedDevices && left_out.contains(problem.request().devices[device].name)) free.push_back(device);
  }
  Alternatives alternatives(problem, evaluator, assignment);
  std::vector<std::string> lines;
  for (size_t s = 0; s < assignment.devices.size(); ++s) {
    std::vector<std::string> parts;
    if (s > 0) parts.push_back(alternatives.OfCut(s));
    if (std::string device = alternatives.OfDevice(s, free); !device.empty()) parts.push_back(std::move(device));
    if (!parts.empty()) lines.push_back(absl::StrFormat("why stage %d: %s", s, absl::StrJoin(parts, "; ")));
  }
  for (const int device : free) {
    if (std::string why = alternatives.OfLeftOut(device); !why.empty()) lines.push_back(absl::StrCat("why not ", why));
  }
  if (!lines.empty())
    lines.emplace_back(
        "(how much longer: the time to an equal loss, against this plan; where no codec costs loss, that is the time of a step)");
  return lines;
}

std::string ExplainBound(const std::vector<LowerBound>& bounds, double gap) {
  const LowerBound* const binding = BindingBound(bounds);
  if (binding == nullptr) return "no lower bound holds";
  std::vector<std::string> others;
  for (const LowerBound& bound : bounds) {
    if (!bound.holds) others.push_back(absl::StrFormat("%s says nothing here, since %s", bound.name, bound.why));
  }
  std::string text = absl::StrFormat("no plan that spec.strategy allows can take less than %s, by the bound %s: %s",
                                     DurationText(binding->seconds), binding->name, binding->why);
  constexpr double kNoGap = 5e-4;
  if (gap >= kNoGap) {
    absl::StrAppendFormat(
        &text, "; this one takes %.1f%% more, part of which no plan can save, since a bound leaves the rest of a step out", 100 * gap);
  }
  if (!others.empty()) absl::StrAppend(&text, " (", absl::StrJoin(others, "; "), ")");
  return text;
}

}  // namespace fusionllm::scheduler
