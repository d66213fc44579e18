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

std::string MemoryText(const PlanFigures::Memory& memory) {
  const std::string used = MemoryBytes(static_cast<double>(memory.bytes));
  return memory.of_bytes > 0 ? absl::StrFormat("%s %s of %s", memory.device, used, MemoryBytes(static_cast<double>(memory.of_bytes)))
                             : absl::StrCat(memory.device, " ", used);
}

// Where depth takes much memory by choice, the price of less.
std::string FewerInFlightText(const PlanFigures& figures) {
  const PlanFigures::FewerInFlight& fewer = figures.fewer_in_flight;
  if (fewer.in_flight == 0 || figures.step_s <= 0) return "";
  return absl::StrFormat("; with spec.strategy.inFlight: %d the largest would be %s, and a step %s (%+.1f%%)", fewer.in_flight,
                         MemoryBytes(static_cast<double>(fewer.bytes)), StepSeconds(fewer.step_s),
                         100 * (fewer.step_s / figures.step_s - 1));
}

std::string MemorySentence(const PlanFigures& figures) {
  std::vector<PlanFigures::Memory> memory = figures.memory;
  std::erase_if(memory, [](const PlanFigures::Memory& device) { return device.bytes == 0; });  // unknown
  if (memory.empty()) return "";
  std::vector<std::string> texts;
  if (memory.size() > kMaxDevicesNamed) {
    std::stable_sort(memory.begin(), memory.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    return absl::StrFormat("memory of %d devices: from %s to %s%s", memory.size(), MemoryText(memory.back()), MemoryText(memory.front()),
                           FewerInFlightText(figures));
  }
  for (const PlanFigures::Memory& device : memory) texts.push_back(MemoryText(device));
  return absl::StrCat("memory: ", absl::StrJoin(texts, ", "), FewerInFlightText(figures));
}

std::string LossSentence(const PlanFigures& figures) {
  if (!figures.compressed) return "compression: none, so it costs no loss";
  const std::string source = figures.loss_cost_source.empty() ? "" : absl::StrCat(" (", figures.loss_cost_source, ")");
  if (figures.loss_cost <= 0) return absl::StrCat("compression: no loss is expected from its codecs", source);
  return absl::StrFormat("compression: expected to raise the loss by %.2g nats%s", figures.loss_cost, source);
}

}  // namespace

std::vector<std::string> PlanSentences(const PlanFigures& figures) {
  std::vector<std::string> sentences;
  std::vector<std::string> sizes;
  if (figures.parameters > 0) sizes.push_back(absl::StrCat(WholeNumber(figures.parameters), " parameters are trained"));
  if (figures.tokens_per_step > 0) sizes.push_back(absl::StrCat("a step sees ", WholeNumber(figures.tokens_per_step), " ", figures.unit));
  if (!sizes.empty()) sentences.push_back(absl::StrCat("size: ", absl::StrJoin(sizes, ", ")));
  if (figures.tokens_per_s > 0) {
    std::string line = absl::StrFormat("speed: %s %s/s", Count(figures.tokens_per_s), figures.unit);
    if (figures.steps > 0) {
      absl::StrAppend(&line, ", ", StepsText(figures.steps), " ", ElapsedTime(figures.step_s * static_cast<double>(figures.steps)),
                      " without evaluations and checkpoints");
    }
    sentences.push_back(std::move(line));
  }
  if (figures.site_bytes > 0) {
    std::string line = absl::StrFormat("between sites: %s a step", TrafficBytes(static_cast<double>(figures.site_bytes)));
    if (figures.steps > 0) {
      absl::StrAppend(&line, ", ", TrafficBytes(static_cast<double>(figures.site_bytes) * static_cast<double>(figures.steps)), " in all");
    }
    sentences.push_back(std::move(line));
  } else if (figures.tokens_per_s > 0) {
    sentences.emplace_back("between sites: nothing is sent");
  }
  if (!figures.bottleneck.empty()) sentences.push_back(absl::StrCat("limit: ", LimitPhrase(figures.bottleneck)));
  if (figures.tokens_per_s > 0) sentences.push_back(LossSentence(figures));
  if (std::string memory = MemorySentence(figures); !memory.empty()) sentences.push_back(std::move(memory));
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

std::vector<std::string> PlanWarnings(const PlanFigures& figures) {
  std::vector<std::string> lines;
  for (const PlanFigures::Warning& warning : figures.warnings) {
    lines.push_back(absl::StrCat("warning: ", warning.reason, ": ", warning.message));
  }
  return lines;
}

}  // namespace fusionllm::report
