#include "operator/manager/removed_gates.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lib/base/yaml_scalar.h"

namespace fusionllm::op::manager {
namespace {

constexpr absl::string_view kRemovedGates[] = {"SchedulerAdvice", "MeasuredLinks", "DryRunTrials"};

std::string CheckGate(absl::string_view name, absl::string_view value) {
  if (std::find(std::begin(kRemovedGates), std::end(kRemovedGates), name) == std::end(kRemovedGates)) {
    return absl::StrCat("there is no feature gate \"", name, "\"; the gates were ", RemovedGateNames());
  }
  if (value == "true") return "";
  if (value == "false") return absl::StrCat("the gate ", name, " is gone: what it turned off is always on. Leave it out");
  return absl::StrCat("the gate ", name, " must be true or false, got ", value);
}

}  // namespace

std::string RemovedGateNames() { return absl::StrJoin(kRemovedGates, ", "); }

std::string CheckRemovedGates(const std::string& text) {
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> sides = absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (sides.size() != 2) return absl::StrCat("\"", part, "\" is not NAME=true; the gates were ", RemovedGateNames());
    const std::string wrong = CheckGate(absl::StripAsciiWhitespace(sides[0]), absl::StripAsciiWhitespace(sides[1]));
    if (!wrong.empty()) return wrong;
  }
  return "";
}

bool TakeRemovedGates(job::Node& root, job::Problems& problems) {
  const auto at = std::find(root.keys.begin(), root.keys.end(), "featureGates");
  if (at == root.keys.end()) return false;
  const auto item = root.items.begin() + (at - root.keys.begin());
  if (item->kind != job::Node::Kind::kMap && item->kind != job::Node::Kind::kNull) {
    problems.AddAtNode(*item, "featureGates", absl::StrCat("must be a map of gates, got ", job::Describe(*item)));
  }
  for (size_t i = 0; i < item->keys.size(); ++i) {
    const job::Node& value = item->items[i];
    const base::YamlScalar scalar = base::ResolveYamlScalar(value.text);
    const bool is_bool = value.kind == job::Node::Kind::kScalar && !value.quoted && scalar.type == base::YamlScalar::Type::kBool;
    const std::string wrong = CheckGate(item->keys[i], is_bool ? scalar.text : job::ToJson(value));
    if (!wrong.empty()) problems.AddAtNode(value, job::JoinPath("featureGates", item->keys[i]), wrong);
  }
  root.items.erase(item);
  root.keys.erase(at);
  return true;
}

}  // namespace fusionllm::op::manager
