#include "lib/report/plan_sentences.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lib/report/number_format.h"

namespace fusionllm::report {
namespace {

constexpr size_t kMaxDevicesNamed = 8;

std::string StepsText(int64_t steps) { return steps == 1 ? "1 step takes" : absl::StrCat(WholeNumber(steps), " steps take"); }

// Of the devices of a stage.
std::string MemoryText(const plan::Stage& stage) {
  const std::string devices = absl::StrJoin(stage.devices, ","), used = MemoryBytes(static_cast<double>(stage.memory_bytes));
  return stage.device_memory_bytes > 0
             ? absl::StrFormat("%s %s of %s", devices, used, MemoryBytes(static_cast<double>(stage.device_memory_bytes)))
             : absl::StrCat(devices, " ", used);
}

// Where depth takes much memory by choice, the price of less.
std::string FewerInFlightText(const plan::Plan& plan) {
  if (!plan.fewer_in_flight.has_value() || plan.fewer_in_flight->in_flight == 0 || plan.predicted_step_seconds <= 0) return "";
  const plan::FewerInFlight& fewer = *plan.fewer_in_flight;
  return absl::StrFormat("; with spec.strategy.inFlight: %d the largest would be %s, and a step %s (%+.1f%%)", fewer.in_flight,
                         MemoryBytes(static_cast<double>(fewer.memory_bytes)), StepSeconds(fewer.predicted_step_seconds),
                         100 * (fewer.predicted_step_seconds / plan.predicted_step_seconds - 1));
}

std::string MemorySentence(const plan::Plan& plan) {
  std::vector<plan::Stage> stages = plan.stages;
  std::erase_if(stages, [](const plan::Stage& stage) { return stage.memory_bytes == 0; });  // unknown
  if (stages.empty()) return "";
  std::vector<std::string> texts;
  if (stages.size() > kMaxDevicesNamed) {
    std::stable_sort(stages.begin(), stages.end(), [](const auto& a, const auto& b) { return a.memory_bytes > b.memory_bytes; });
    return absl::StrFormat("memory of %d devices: from %s to %s%s", stages.size(), MemoryText(stages.back()), MemoryText(stages.front()),
                           FewerInFlightText(plan));
  }
  for (const plan::Stage& stage : stages) texts.push_back(MemoryText(stage));
  return absl::StrCat("memory: ", absl::StrJoin(texts, ", "), FewerInFlightText(plan));
}

bool HasCodecs(const plan::Plan& plan) {
  const auto compresses = [](const auto& carrier) { return !carrier.codec.empty() && carrier.codec != "fp32"; };
  return std::any_of(plan.links.begin(), plan.links.end(), compresses) || std::any_of(plan.tied.begin(), plan.tied.end(), compresses);
}

std::string LossSentence(const plan::Plan& plan) {
  if (!HasCodecs(plan)) return "compression: none, so it costs no loss";
  const std::string source = plan.loss_cost_source.empty() ? "" : absl::StrCat(" (", plan.loss_cost_source, ")");
  if (plan.loss_cost <= 0) return absl::StrCat("compression: no loss is expected from its codecs", source);
  return absl::StrFormat("compression: expected to raise the loss by %.2g nats%s", plan.loss_cost, source);
}

}  // namespace

std::vector<std::string> PlanSentences(const plan::Plan& plan) {
  const std::string unit = plan.unit.empty() ? "tokens" : plan.unit;
  std::vector<std::string> sentences;
  std::vector<std::string> sizes;
  if (plan.parameters > 0) sizes.push_back(absl::StrCat(WholeNumber(plan.parameters), " parameters are trained"));
  if (plan.tokens_per_step > 0) sizes.push_back(absl::StrCat("a step sees ", WholeNumber(plan.tokens_per_step), " ", unit));
  if (!sizes.empty()) sentences.push_back(absl::StrCat("size: ", absl::StrJoin(sizes, ", ")));
  if (plan.tokens_per_second > 0) {
    std::string line = absl::StrFormat("speed: %s %s/s", Count(plan.tokens_per_second), unit);
    if (plan.steps > 0) {
      absl::StrAppend(&line, ", ", StepsText(plan.steps), " ", ElapsedTime(plan.TotalSeconds()), " without evaluations and checkpoints");
    }
    sentences.push_back(std::move(line));
  }
  if (plan.site_bytes > 0) {
    std::string line = absl::StrFormat("between sites: %s a step", TrafficBytes(static_cast<double>(plan.site_bytes)));
    if (plan.steps > 0) {
      absl::StrAppend(&line, ", ", TrafficBytes(static_cast<double>(plan.site_bytes) * static_cast<double>(plan.steps)), " in all");
    }
    sentences.push_back(std::move(line));
  } else if (plan.tokens_per_second > 0) {
    sentences.emplace_back("between sites: nothing is sent");
  }
  if (!plan.bottleneck.empty()) sentences.push_back(absl::StrCat("limit: ", LimitPhrase(plan.bottleneck)));
  if (plan.tokens_per_second > 0) sentences.push_back(LossSentence(plan));
  if (std::string memory = MemorySentence(plan); !memory.empty()) sentences.push_back(std::move(memory));
  return sentences;
}

std::string BoundSentence(const StepBounds& bounds) {
  if (bounds.is_optimal) return "lower bound: this plan itself; the search ruled out every faster one that spec.strategy allows";
  std::vector<std::string> parts;
  if (bounds.compute_s > 0) parts.push_back(absl::StrCat(StepSeconds(bounds.compute_s), " by compute alone"));
  if (bounds.link_s > 0) parts.push_back(absl::StrCat(StepSeconds(bounds.link_s), " by links alone"));
  if (parts.empty()) return "";
  const std::string text = absl::StrCat("lower bound: at least ", absl::StrJoin(parts, " and "));
  if (bounds.stages < 2) return text;
  return absl::StrCat(text, "; no plan goes below it and few come near: the ", StepSeconds(bounds.step_s),
                      " of this one also have the pipeline's fill and drain, and waits");
}

std::string LimitPhrase(absl::string_view bottleneck) {
  if (absl::ConsumePrefix(&bottleneck, "Nothing alone limits the step")) return absl::StrCat("nothing alone", bottleneck);
  (void)absl::ConsumePrefix(&bottleneck, "The step is limited by ");
  return std::string(bottleneck);
}

std::vector<std::string> PlanWarnings(const plan::Plan& plan) {
  std::vector<std::string> lines;
  for (const plan::Warning& warning : plan.warnings) {
    lines.push_back(absl::StrCat("warning: ", warning.reason, ": ", warning.message));
  }
  return lines;
}

}  // namespace fusionllm::report
