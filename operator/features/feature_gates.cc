#include "operator/features/feature_gates.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace fusionllm::op {
namespace {

absl::Status Malformed(absl::string_view part) {
  return absl::InvalidArgumentError(absl::StrCat("\"", part, "\" is not NAME=true or NAME=false; the gates are ", FeatureGateNames()));
}

}  // namespace

absl::string_view Name(FeatureStage stage) {
  switch (stage) {
    case FeatureStage::kAlpha:
      return "ALPHA";
    case FeatureStage::kBeta:
      return "BETA";
    case FeatureStage::kGeneral:
      return "GA";
  }
  return "?";
}

absl::Status SetFeatureGates(absl::string_view text, FeatureGates& gates) {
  FeatureGates changed = gates;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> sides = absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (sides.size() != 2) return Malformed(part);
    const absl::string_view name = absl::StripAsciiWhitespace(sides[0]), value = absl::StripAsciiWhitespace(sides[1]);
    const auto gate =
        std::find_if(std::begin(kFeatureGates), std::end(kFeatureGates), [&](const auto& known) { return known.name == name; });
    if (gate == std::end(kFeatureGates)) {
      return absl::InvalidArgumentError(absl::StrCat("there is no feature gate \"", name, "\"; the gates are ", FeatureGateNames()));
    }
    if (value != "true" && value != "false") return Malformed(part);
    changed.*gate->on = value == "true";
  }
  gates = changed;
  return absl::OkStatus();
}

std::string FeatureGateNames() {
  return absl::StrJoin(kFeatureGates, ", ", [](std::string* out, const FeatureGate& gate) { absl::StrAppend(out, gate.name); });
}

std::string DescribeFeatureGates() {
  const FeatureGates defaults;
  return absl::StrJoin(kFeatureGates, "\n", [&](std::string* out, const FeatureGate& gate) {
    absl::StrAppend(out, gate.name, " (", Name(gate.stage), ", default ", defaults.*gate.on ? "true" : "false", "): ", gate.about);
  });
}

FeatureMetrics::FeatureMetrics(metrics::Registry& registry)
    : enabled_(registry.AddGauge({"feature_enabled", "1: the feature gate is on; 0: it is off.", {"name", "stage"}})) {}

void FeatureMetrics::Set(const FeatureGates& gates) const {
  for (const FeatureGate& gate : kFeatureGates) enabled_.Set(gates.*gate.on ? 1 : 0, {gate.name, std::string(Name(gate.stage))});
}

}  // namespace fusionllm::op
