#include "cli/run/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lib/base/pluralize.h"
#include "lib/report/loss_figures.h"
#include "lib/report/number_format.h"
#include "lib/report/plan_sentences.h"

namespace fusionllm::cli {
namespace {

constexpr size_t kRecentSteps = 20;

double RecentStepSeconds(const report::Run& run) {
  std::vector<double> seconds;
  for (size_t i = run.steps.size() > kRecentSteps ? run.steps.size() - kRecentSteps : 0; i < run.steps.size(); ++i) {
    seconds.push_back(run.steps[i].seconds);
  }
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
  return seconds[seconds.size() / 2];
}

// 3.0e-4, not 3.0e-04.
std::string Rate(double value) {
  std::string text = absl::StrFormat("%.1e", value);
  const size_t e = text.find('e');
  if (e != std::string::npos && e + 2 < text.size() && text[e + 2] == '0') text.erase(e + 2, 1);
  return text;
}

std::string EventSentence(const report::Event& event) {
  std::string text = event.step > 0 ? absl::StrCat("step ", event.step, ": ", event.reason) : event.reason;
  if (!event.message.empty()) absl::StrAppend(&text, ": ", event.message);
  return text;
}

// Two digits, and whole numbers as they are.
std::string Norm(double norm) { return norm >= 99.5 && norm < 1e6 ? absl::StrFormat("%.0f", norm) : absl::StrFormat("%.2g", norm); }

bool IsWarning(const report::Event& event) {
  for (const absl::string_view reason : {"ExecutorLost", "LinkDegraded", "Straggler", "CompressionBackoff", "NoTargetCounts"}) {
    if (event.reason == reason) return true;
  }
  return false;
}

}  // namespace

std::string StepLine(const report::Run& run, int64_t total_steps) {
  const report::StepPoint& last = run.steps.back();
  const double share = total_steps > 0 ? static_cast<double>(last.step) / static_cast<double>(total_steps) : 1;
  std::string line = absl::StrFormat("step %d/%d (%s) loss %s gnorm %s lr %s %s %s step %s", last.step, total_steps, report::Percent(share),
                                     report::HasLoss(last) ? absl::StrFormat("%.4g", last.loss) : "none", Norm(last.gradient_norm),
                                     Rate(last.learning_rate), run.unit == "tokens" ? "tok/s" : absl::StrCat(run.unit, "/s"),
                                     report::Count(last.tokens_per_second), report::StepSeconds(last.seconds));
  if (run.plan && run.plan->predicted_step_seconds > 0)
    absl::StrAppend(&line, " (plan ", report::StepSeconds(run.plan->predicted_step_seconds), ")");
  if (last.step < total_steps) {
    absl::StrAppend(&line, " ETA ", report::TimeSpan(RecentStepSeconds(run) * static_cast<double>(total_steps - last.step)));
  }
  return line;
}

std::string PlanLine(const plan::Plan& plan) {
  std::vector<std::string> pipelines;
  for (int replica = 0; replica < plan.replicas; ++replica) {
    std::vector<std::string> devices;
    for (const plan::Stage& stage : plan.stages) devices.push_back(report::DeviceOf(stage, replica));
    pipelines.push_back(absl::StrJoin(devices, " > "));
  }
  const auto stages = static_cast<int64_t>(plan.stages.size());
  std::string line = absl::StrCat("plan: ", plan.strategy, ", ", plan.replicas > 1 ? absl::StrCat(plan.replicas, " replicas of ") : "",
                                  base::Pluralize(stages, "stage"));
  if (stages > 0) absl::StrAppend(&line, " (", absl::StrJoin(pipelines, "; "), ")");
  absl::StrAppend(&line, ", ", base::Pluralize(plan.micro_batches, "micro-batch", "micro-batches"));
  if (plan.micro_batch_size > 0) absl::StrAppend(&line, " of ", plan.micro_batch_size);
  if (plan.replicas > 1) absl::StrAppend(&line, " (", absl::StrJoin(plan.micro_batches_by_replica, " + "), ")");
  if (plan.in_flight > 0) absl::StrAppend(&line, ", ", plan.in_flight, " in flight");
  absl::StrAppend(&line, ", predicted step ", report::StepSeconds(plan.predicted_step_seconds));
  return line;
}

std::vector<std::string> PlanLines(const plan::Plan& plan) {
  std::vector<std::string> lines;
  for (const std::string& sentence : report::PlanSentences(plan)) lines.push_back(absl::StrCat("plan: ", sentence));
  return lines;
}

ProgressStyle StyleOf(std::FILE* stream) {
  ProgressStyle style;
  const int fd = fileno(stream);
  const char* const term = std::getenv("TERM");
  const bool dumb = term == nullptr || absl::string_view(term) == "dumb";
  style.redraw = isatty(fd) == 1 && !dumb;
  const char* const no_colour = std::getenv("NO_COLOR");
  style.colour = style.redraw && (no_colour == nullptr || *no_colour == '\0');
  winsize size = {};
  if (style.redraw && ioctl(fd, TIOCGWINSZ, &size) == 0) style.columns = size.ws_col;
  return style;
}

Progress::Progress(std::FILE* out, ProgressStyle style, int64_t total_steps, std::string prefix, StepLines lines)
    : out_(out), style_(style), total_steps_(total_steps), prefix_(std::move(prefix)), lines_(std::move(lines)) {}

Progress::~Progress() {
  status_.clear();
  if (!unshown_.empty()) Sentence(unshown_);
  Clear();
  std::fflush(out_);
}

void Progress::Clear() {
  if (drawn_) std::fputs("\r\x1b[K", out_);
  drawn_ = false;
}

void Progress::Sentence(absl::string_view text, bool warning) {
  Clear();
  for (const absl::string_view given : absl::StrSplit(text, '\n')) {
    std::string line(given);
    // Messages may come from other machines: no control sequence of theirs reaches the terminal.
    std::replace_if(
        line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
    const bool yellow = warning && style_.colour;
    absl::FPrintF(out_, "%s%s%s%s\n", prefix_, yellow ? "\x1b[33m" : "", line, yellow ? "\x1b[0m" : "");
  }
  if (!status_.empty()) Status(status_);
  std::fflush(out_);
}

double Progress::Now() const {
  if (lines_.now_s) return lines_.now_s();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Progress::Phase(absl::string_view text) {
  if (style_.redraw) return Status(text);
  if (phase_ == text) return;
  phase_ = std::string(text);
  Sentence(absl::StrCat(text, " .."));
}

void Progress::Step(const report::Run& run) {
  const std::string line = StepLine(run, total_steps_);
  const int64_t step = run.steps.back().step;
  if (style_.redraw) {
    if (lines_.every > 0 && (step % lines_.every == 0 || step == total_steps_)) Sentence(line);
    return Status(line);
  }
  const double now = Now();
  const bool due = lines_.every > 0 ? step % lines_.every == 0 : now - shown_at_s_ >= lines_.interval_s;
  if (!due && any_step_ && step < total_steps_) {
    unshown_ = line;
    return;
  }
  any_step_ = true;
  shown_at_s_ = now;
  unshown_.clear();
  Sentence(line);
}

void Progress::Status(absl::string_view text) {
  status_ = std::string(text);
  if (!style_.redraw) return;
  Clear();
  std::string line = absl::StrCat(prefix_, status_);
  // A line that wraps could not be redrawn.
  if (style_.columns > 1 && line.size() >= static_cast<size_t>(style_.columns)) line.resize(static_cast<size_t>(style_.columns) - 1);
  absl::FPrintF(out_, "%s%s%s", style_.colour ? "\x1b[36m" : "", line, style_.colour ? "\x1b[0m" : "");
  std::fflush(out_);
  drawn_ = true;
}

void Progress::Show(LineType type, const report::Run& run) {
  switch (type) {
    case LineType::kStep:
      Step(run);
      break;
    case LineType::kPlan:
      Sentence(PlanLine(*run.plan));
      for (const std::string& line : PlanLines(*run.plan)) Sentence(line);
      for (const std::string& line : report::PlanWarnings(*run.plan)) Sentence(line, /*warning=*/true);
      Phase("executors build their stages");
      break;
    case LineType::kEvaluation: {
      const report::EvaluationPoint& point = run.evaluations.back();
      const std::string accuracy = point.accuracy.has_value() ? absl::StrCat(", accuracy ", report::Percent(*point.accuracy)) : "";
      const std::string why_none = report::WhyNoLoss(point);
      Sentence(absl::StrCat("step ", point.step, ": validation loss ", why_none.empty() ? absl::StrFormat("%.4g", point.loss) : why_none,
                            accuracy));
      break;
    }
    case LineType::kEvent: {
      const report::Event& event = run.events.back();
      Sentence(EventSentence(event), IsWarning(event));
      break;
    }
    case LineType::kTrace:
    case LineType::kSummary:
    case LineType::kError:
    case LineType::kOther:
      break;
  }
}

}  // namespace fusionllm::cli
