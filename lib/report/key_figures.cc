#include "lib/report/key_figures.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lib/base/pluralize.h"
#include "lib/report/loss_figures.h"
#include "lib/report/number_format.h"
#include "lib/report/plan_sentences.h"
#include "lib/report/slow_step.h"

namespace fusionllm::report {
namespace {

constexpr size_t kMaxNamedDevices = 4;  // more are read in the table of stages
constexpr double kClearlyFewer = 0.01;  // of the planned bytes
// Nats per target.
constexpr double kNegligibleCost = 5e-4;
constexpr double kMinCostSeenInOneRun = 0.05;  // seeds of the models of docs/results/loss-cost.md differ by 0.02

std::string LossFigure(double loss) { return std::isfinite(loss) ? absl::StrFormat("%.4f", loss) : ""; }

std::string Against(double measured, double predicted) { return absl::StrFormat("%+.1f%%", (measured / predicted - 1) * 100); }

bool SameSite(const Run& run, const std::string& src, const std::string& dst) {
  const auto a = run.site_of.find(src), b = run.site_of.find(dst);
  return a == run.site_of.end() || b == run.site_of.end() || a->second == b->second;
}

bool Counts(const Run& run, const std::string& src, const std::string& dst) { return !KnowsSites(run) || !SameSite(run, src, dst); }

std::string Where(const Run& run) { return KnowsSites(run) ? "between sites" : "on links"; }

void AddLosses(const Run& run, std::vector<KeyFigure>& figures) {
  if (run.steps.empty()) return;
  const std::string last = HasLoss(run.steps.back()) ? LossFigure(run.steps.back().loss) : "none: no target counts";
  if (const int64_t steps = MeanSteps(run); steps > 1) {
    figures.push_back(
        {"training loss", LossFigure(*MeanOfLastSteps(run)), "",
         absl::StrCat("mean of the last ", steps, " steps; of the last one alone ", last.empty() ? "NaN or infinite" : last)});
  } else {
    figures.push_back({"training loss", last, "", "of the last step"});
  }
  if (figures.back().measured.empty()) figures.back().measured = "NaN or infinite";
  if (run.evaluations.empty()) return;
  const EvaluationPoint& newest = run.evaluations.back();
  std::vector<std::string> remarks = {absl::StrCat("after step ", newest.step)};
  if (newest.accuracy.has_value()) remarks.push_back(absl::StrCat("accuracy ", Percent(*newest.accuracy)));
  if (const EvaluationPoint* best = BestEvaluation(run); best != nullptr && best->step != newest.step) {
    remarks.push_back(absl::StrCat("best ", LossFigure(best->loss), " after step ", best->step));
  }
  const std::string none = WhyNoLoss(newest);
  figures.push_back({"validation loss", none.empty() ? LossFigure(newest.loss) : none, "", absl::StrJoin(remarks, ", ")});
}

void AddTimes(const Run& run, std::vector<KeyFigure>& figures) {
  const double predicted = run.summary->predicted_step_s, measured = run.summary->median_step_s;
  if (measured > 0 || predicted > 0) {
    figures.push_back({"step time", measured > 0 ? StepSeconds(measured) : "", predicted > 0 ? StepSeconds(predicted) : "",
                       measured > 0 && predicted > 0 ? absl::StrCat("median; measured is ", Against(measured, predicted))
                       : measured > 0                ? "median"
                                                     : ""});
  }
  if (std::string why = SlowStepSentence(run); !why.empty())
    figures.push_back({.name = "slower than planned", .measured = std::move(why), .in_words = true});
  const double rate = MedianTokensPerSecond(run);
  const double promised = predicted > 0 ? static_cast<double>(run.targets_per_step) / predicted : 0;
  if (rate > 0 || promised > 0)
    figures.push_back({absl::StrCat(run.unit, "/s"), rate > 0 ? Count(rate) : "", promised > 0 ? Count(promised) : "", ""});
  int64_t targets = 0, ignored = 0;
  for (const StepPoint& step : run.steps) {
    targets += step.targets;
    ignored += step.ignored_targets;
  }
  if (ignored > 0) {
    figures.push_back({absl::StrCat(run.unit, " that count"), WholeNumber(targets), "",
                       absl::StrFormat("%s of all; the loss ignores the others",
                                       Percent(static_cast<double>(targets) / static_cast<double>(targets + ignored)))});
  }
  const auto own = static_cast<int64_t>(OwnSteps(run));
  if (own == 0) return;
  std::vector<std::string> remarks;
  if (run.elapsed_s > 0 && !run.of_earlier_start)
    remarks.push_back(absl::StrCat(ElapsedTime(run.elapsed_s), " with start, evaluations and checkpoints"));
  if (const int64_t left = run.total_steps - run.steps.back().step; left > 0 && measured > 0) {
    remarks.push_back(absl::StrFormat("the %s would take about %s at the measured step",
                                      left == 1 ? "last step" : absl::StrCat("other ", left, " steps"),
                                      TimeSpan(measured * static_cast<double>(left))));
  }
  figures.push_back({absl::StrCat("time of ", base::Pluralize(own, "step")), ElapsedTime(TrainingSeconds(run)),
                     predicted > 0 && run.plans <= 1 ? ElapsedTime(predicted * static_cast<double>(own)) : "",
                     absl::StrJoin(remarks, "; ")});
}

// What is measured over all plans of a run stands beside what the newest predicts.
void AddLastOfPlans(const Run& run, std::vector<std::string>& remarks) {
  if (run.plans > 1) remarks.push_back(absl::StrCat("measured under ", run.plans, " plans, predicted by the last"));
}

int64_t PlannedTiedBytes(const Run& run) {
  int64_t bytes = 0;
  if (!run.plan) return bytes;
  for (const plan::Link& link : run.plan->links) bytes += Counts(run, link.src, link.dst) ? link.tied_bytes : 0;
  return bytes;
}

void AddTraffic(const Run& run, std::vector<KeyFigure>& figures) {
  const MeasuredBytes bytes = BytesOfRun(run);
  const int64_t planned = run.plan ? PlannedBytes(run) : 0;
  if (bytes.all == 0 && planned == 0) return;
  const double a_step = std::round(static_cast<double>(bytes.training()) / StepsSent(run));
  std::vector<std::string> remarks;
  AddLastOfPlans(run, remarks);
  if (!bytes.evaluation_known || bytes.evaluation > 0)
    remarks.emplace_back(bytes.evaluation_known ? "without evaluations" : "with evaluations");
  const bool steps = OwnSteps(run) > 0;
  // A plan counts a row for each token of a step.
  const double fewer = static_cast<double>(planned) - a_step;
  if (steps && bytes.evaluation_known && fewer > kClearlyFewer * static_cast<double>(planned) &&
      fewer <= static_cast<double>(PlannedTiedBytes(run)))
    remarks.emplace_back("tied gradients are sent without their rows of zeros, which the plan cannot count");
  figures.push_back({absl::StrCat("a step, ", Where(run)), steps ? TrafficBytes(a_step) : "", TrafficBytes(static_cast<double>(planned)),
                     absl::StrJoin(remarks, "; ")});
  std::vector<std::string> parts;
  if (bytes.evaluation > 0) parts.push_back(absl::StrCat(TrafficBytes(static_cast<double>(bytes.evaluation)), " of it by evaluations"));
  if (KnowsSites(run) && run.summary->wire_bytes > bytes.all)
    parts.push_back(absl::StrCat(TrafficBytes(static_cast<double>(run.summary->wire_bytes)), " on all links"));
  const auto own = static_cast<double>(OwnSteps(run));
  figures.push_back({absl::StrCat("in all, ", Where(run)), TrafficBytes(static_cast<double>(bytes.all)),
                     steps && run.plans <= 1 ? TrafficBytes(static_cast<double>(planned) * own) : "", absl::StrJoin(parts, "; ")});
}

// "a computes 60% of the time", "a is at work 60% of the time, for 30% of that waiting for a processor".
std::string BusyText(const Run& run, const StageTotal& stage) {
  const double late = LatenessRatio(run, stage);
  return absl::StrFormat("%s %s %.0f%% of the time%s", stage.device, late > 0 ? "is at work" : "computes", 100 * stage.busy_ratio,
                         late > 0 ? absl::StrFormat(", for %.0f%% of that waiting for a processor", 100 * late) : "");
}

// The busiest stage and, where bandwidths were measured, the busiest link.
std::string BusiestMeasured(const Run& run) {
  std::vector<std::string> parts;
  const std::vector<StageTotal>& stages = run.summary->stages;
  const auto busiest =
      std::max_element(stages.begin(), stages.end(), [](const StageTotal& a, const StageTotal& b) { return a.busy_ratio < b.busy_ratio; });
  if (busiest != stages.end() && busiest->busy_ratio > 0) {
    parts.push_back(BusyText(run, *busiest));
  }
  const LinkTotal* link = nullptr;
  double share = 0;
  for (const LinkTotal& candidate : run.summary->links) {
    if (!(candidate.bytes_per_s > 0) || !(run.summary->median_step_s > 0)) continue;
    const double bytes = static_cast<double>(candidate.bytes - candidate.evaluation_bytes.value_or(0)) / StepsSent(run);
    const double busy = bytes / candidate.bytes_per_s / run.summary->median_step_s;
    if (busy > share) link = &candidate;
    share = std::max(share, busy);
  }
  if (link != nullptr)
    parts.push_back(absl::StrFormat("the link %s > %s sends %.0f%% of it", link->src, link->dst, 100 * std::min(share, 1.0)));
  return absl::StrJoin(parts, ", ");
}

// Of a plan that does not say what limits its step: what is at work longest.
std::string BusiestPlanned(const plan::Plan& plan) {
  std::string name;
  double seconds = 0;
  for (const plan::Stage& stage : plan.stages) {
    const double busy = stage.BusySeconds();
    if (busy > seconds) name = absl::StrCat("stage ", stage.index, " on ", DeviceOf(stage, 0));
    seconds = std::max(seconds, busy);
  }
  for (const plan::Link& link : plan.links) {
    if (link.seconds > seconds) name = absl::StrCat("the link ", link.src, " > ", link.dst);
    seconds = std::max(seconds, link.seconds);
  }
  if (name.empty() || !(plan.predicted_step_seconds > 0)) return "";
  return absl::StrFormat("%s, %s of the step's %s", name, StepSeconds(seconds), StepSeconds(plan.predicted_step_seconds));
}

// Without what stands from "What would help" to the next sentence of the plan's (planning::BottleneckSentence).
std::string WithoutAdvice(const std::string& bottleneck) {
  const size_t begin = bottleneck.find(" What would help: ");
  if (begin == std::string::npos) return bottleneck;
  const size_t next = bottleneck.find(" Next is ", begin);
  return bottleneck.substr(0, begin) + (next == std::string::npos ? "" : bottleneck.substr(next));
}

std::string Limit(const plan::Plan& plan) {
  if (plan.bottleneck.empty()) return BusiestPlanned(plan);
  // As a part of a sentence, and without the advice: it was given with the plan, and makes the line several times as long.
  return std::string(absl::StripSuffix(LimitPhrase(WithoutAdvice(plan.bottleneck)), "."));
}

// A measured step that is not as planned: what limits the planned one says little of it.
bool CameOtherwise(const Run& run) {
  const double measured = run.summary->median_step_s, predicted = run.summary->predicted_step_s;
  return measured > 0 && predicted > 0 && std::max(measured / predicted, predicted / measured) > kAsPlanned;
}

std::string LimitName(const plan::Plan& plan) { return plan.bottleneck.empty() ? "busiest" : "limited by"; }

std::string Nats(double loss) { return std::abs(loss) < kNegligibleCost ? "+0 nats" : absl::StrFormat("%+.2g nats", loss); }

std::string ExpectedCost(const plan::Plan& plan) {
  return absl::StrCat(Nats(plan.loss_cost), plan.loss_cost_source.empty() ? "" : absl::StrCat(" (", plan.loss_cost_source, ")"));
}

// Of messages that were compared with what the receiver decodes from them.
struct MeanError {
  std::string of;
  int64_t messages = 0;
  bool selected = false;  // by top-k: of gradients only the values that are sent count
  double error_sum = 0, cosine_sum = 0;
  void Add(const LinkTotal& link) {
    messages += link.compared_messages;
    selected = selected || link.codec.starts_with("topk");
    error_sum += static_cast<double>(link.compared_messages) * link.relative_error;
    cosine_sum += static_cast<double>(link.compared_messages) * link.cosine;
  }
  double error() const { return error_sum / static_cast<double>(messages); }
  double cosine() const { return cosine_sum / static_cast<double>(messages); }
};

// Where the newest plan has no such link, an earlier one had.
std::string CarriedBy(const Run& run, const LinkTotal& link) {
  for (const plan::Link& planned : run.plan ? run.plan->links : std::vector<plan::Link>()) {
    if (planned.src == link.src && planned.dst == link.dst) return planned.backward ? "gradients" : "activations";
  }
  return "messages";
}

// By what they carry, in the order of the links.
std::vector<MeanError> MeanErrors(const Run& run) {
  std::vector<MeanError> means;
  for (const LinkTotal& link : run.summary->links) {
    if (link.compared_messages == 0) continue;
    const std::string of = CarriedBy(run, link);
    auto mean = std::find_if(means.begin(), means.end(), [&](const MeanError& other) { return other.of == of; });
    if (mean == means.end()) {
      means.push_back({.of = of});
      mean = std::prev(means.end());
    }
    mean->Add(link);
  }
  return means;
}

// "activations arrived with 37% error in the mean (cosine 0.93), gradients with 1% (cosine 1) of the values that top-k sent; at most 61%,
// cosine at least 0.8".
std::string ErrorText(const std::vector<MeanError>& means, const CompressionTotal& total) {
  std::string text;
  for (const MeanError& mean : means) {
    absl::StrAppendFormat(&text, "%s%s %s %.2g%%%s (cosine %.2g)%s", text.empty() ? "" : ", ", mean.of,
                          text.empty() ? "arrived with" : "with", 100 * mean.error(), text.empty() ? " error in the mean" : "",
                          mean.cosine(), mean.selected && mean.of == "gradients" ? " of the values that top-k sent" : "");
  }
  absl::StrAppendFormat(&text, "; at most %.2g%%, cosine at least %.2g", 100 * total.max_relative_error, total.min_cosine);
  return text;
}

void AddCompression(const Run& run, std::vector<KeyFigure>& figures) {
  const LinkTotal* worst = nullptr;
  int64_t compared = 0;
  for (const LinkTotal& link : run.summary->links) {
    if (link.compared_messages == 0) continue;
    ++compared;
    if (worst == nullptr || link.relative_error > worst->relative_error) worst = &link;
  }
  const bool planned = run.plan && Compresses(*run.plan);
  const CompressionTotal total = run.summary->compression.value_or(CompressionTotal{});
  if (!planned && worst == nullptr && !total.compared && total.backoffs == 0) return;
  KeyFigure figure{"compression", "", "", "", /*in_words=*/true};
  if (planned) {
    // The plan's codecs are not those that the run went on with.
    const char* const what = total.backoffs > 0 ? "the planned codecs were expected to cost " : "expected to cost ";
    figure.predicted = absl::StrCat(what, ExpectedCost(*run.plan));
    if (const double cost = run.plan->loss_cost; cost >= kNegligibleCost && cost < kMinCostSeenInOneRun)
      absl::StrAppend(&figure.predicted, "; other seeds alone differ by some 0.02, so one run may not show it");
  }
  std::vector<std::string> measured;
  if (total.compared && worst != nullptr) {
    measured.push_back(ErrorText(MeanErrors(run), total));
  } else if (total.compared) {
    measured.push_back(
        absl::StrFormat("messages arrived with up to %.2g%% error (cosine %.2g)", 100 * total.max_relative_error, total.min_cosine));
  } else if (worst != nullptr) {
    measured.push_back(absl::StrFormat("messages arrive with %.2g%% error (cosine %.2g)", 100 * worst->relative_error, worst->cosine));
    if (compared > 1) absl::StrAppend(&measured.back(), " on the worst link, ", worst->src, " > ", worst->dst);
  }
  if (total.backoffs > 0)
    measured.push_back(absl::StrCat("codecs were made less aggressive ", base::Pluralize(total.backoffs, "time"),
                                    ", so less was lost and more bytes crossed than planned (CompressionBackoff says where)"));
  figure.measured = absl::StrJoin(measured, "; ");
  figures.push_back(std::move(figure));
}

void AddMemory(const Run& run, std::vector<KeyFigure>& figures) {
  std::vector<const StageTotal*> stages;
  for (const StageTotal& stage : run.summary->stages) {
    if (stage.peak_memory_bytes > 0 || stage.predicted_memory_bytes > 0) stages.push_back(&stage);
  }
  if (stages.empty()) return;
  std::stable_sort(stages.begin(), stages.end(),
                   [](const StageTotal* a, const StageTotal* b) { return a->peak_memory_bytes > b->peak_memory_bytes; });
  const size_t all = stages.size();
  if (all > kMaxNamedDevices) stages.resize(1);
  std::vector<std::string> measured, predicted;
  for (const StageTotal* stage : stages) {
    const std::string on = all > 1 ? absl::StrCat(" on ", stage->device) : "";
    if (stage->peak_memory_bytes > 0) measured.push_back(MemoryBytes(static_cast<double>(stage->peak_memory_bytes)) + on);
    predicted.push_back(MemoryBytes(static_cast<double>(stage->predicted_memory_bytes)) + on);
  }
  std::vector<std::string> remarks;
  AddLastOfPlans(run, remarks);
  if (all > kMaxNamedDevices) {
    remarks.push_back(absl::StrCat("the most of ", all, " devices"));
  } else if (all == 1) {
    remarks.emplace_back("peak");
  }
  figures.push_back({"memory", absl::StrJoin(measured, ", "), absl::StrJoin(predicted, ", "), absl::StrJoin(remarks, "; ")});
}

}  // namespace

std::string InOneSentence(const KeyFigure& figure) {
  if (figure.in_words && figure.measured_first) return absl::StrCat(figure.measured, "; planned: ", figure.predicted);
  if (figure.in_words) {
    std::string text = figure.predicted;
    if (!figure.measured.empty()) absl::StrAppend(&text, text.empty() ? "" : "; ", figure.measured);
    return text;
  }
  std::string text = figure.measured;
  if (!figure.predicted.empty()) absl::StrAppend(&text, text.empty() ? "" : " measured, ", figure.predicted, " predicted");
  if (!figure.remark.empty()) absl::StrAppend(&text, text.empty() ? "" : " ", "(", figure.remark, ")");
  return text;
}

bool KnowsSites(const Run& run) {
  return std::any_of(run.site_of.begin(), run.site_of.end(),
                     [&](const auto& device) { return device.second != run.site_of.begin()->second; });
}

int64_t PlannedBytes(const Run& run) {
  int64_t bytes = 0;
  if (!run.plan) return bytes;
  for (const plan::Link& link : run.plan->links) bytes += Counts(run, link.src, link.dst) ? link.bytes : 0;
  for (const auto& [ends, chain] : ChainBytes(*run.plan)) bytes += Counts(run, ends.first, ends.second) ? chain : 0;
  return bytes;
}

MeasuredBytes BytesOfRun(const Run& run) {
  MeasuredBytes bytes;
  if (!run.summary) return bytes;
  for (const LinkTotal& link : run.summary->links) {
    if (!Counts(run, link.src, link.dst)) continue;
    bytes.all += link.bytes;
    bytes.evaluation += link.evaluation_bytes.value_or(0);
    bytes.evaluation_known = bytes.evaluation_known && (link.evaluation_bytes.has_value() || link.bytes == 0);
  }
  if (run.evaluations.empty()) bytes.evaluation_known = true;  // there was nothing to tell apart
  return bytes;
}

bool Compresses(const plan::Plan& plan) {
  return std::any_of(plan.links.begin(), plan.links.end(),
                     [](const plan::Link& link) { return !link.codec.empty() && link.codec != "fp32"; });
}

std::vector<KeyFigure> KeyFigures(const Run& run) {
  std::vector<KeyFigure> figures;
  if (!run.steps.empty()) {
    const std::string of_total = run.total_steps > 0 ? absl::StrCat(" of ", run.total_steps) : "";
    const char* const start = run.of_earlier_start ? "the last start that trained, whose figures these are" : "this start";
    figures.push_back({"steps", absl::StrCat(run.steps.back().step, of_total), "",
                       run.earlier_steps > 0 ? absl::StrCat(OwnSteps(run), " of them by ", start) : ""});
  }
  if (run.parameters > 0) figures.push_back({"parameters", WholeNumber(run.parameters), "", ""});
  AddLosses(run, figures);
  if (!run.summary) return figures;
  AddTimes(run, figures);
  AddTraffic(run, figures);
  const std::string planned = run.plan ? Limit(*run.plan) : "", measured = BusiestMeasured(run);
  if (!planned.empty() || !measured.empty()) {
    const bool otherwise = CameOtherwise(run) && !planned.empty() && !measured.empty();
    figures.push_back({.name = run.plan && !otherwise ? LimitName(*run.plan) : "busiest",
                       .measured = measured,
                       .predicted = planned,
                       .in_words = true,
                       .measured_first = otherwise});
  }
  AddCompression(run, figures);
  AddMemory(run, figures);
  return figures;
}

}  // namespace fusionllm::report
