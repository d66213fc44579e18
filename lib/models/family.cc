#include "lib/models/family.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/nearest_name.h"
#include "lib/models/families.h"

namespace fusionllm::models {

std::string Family::name() const { return NameOf(facts().id); }

absl::Status Family::ReadConfig(const nlohmann::json&, ConfigJson&) const {
  return absl::UnimplementedError(absl::StrCat("family ", name(), " has no config.json"));
}

std::string Family::FormatConfig(const ModelSizes&) const { return ""; }

size_t Family::PresetIndex(const ModelRequest& request, const Report& report) const {
  const std::vector<std::string>& presets = facts().presets;
  const std::string& wanted = request.preset.has_value() ? *request.preset : facts().default_preset;
  const auto found = std::find(presets.begin(), presets.end(), wanted);
  if (found != presets.end()) return static_cast<size_t>(found - presets.begin());
  const std::string near = base::NearestNameOrPart(wanted, presets);
  report({"spec.model.preset"}, absl::StrCat("must be one of ", absl::StrJoin(presets, ", "), " for ", name(), ", got \"", wanted, "\"",
                                             near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
  return 0;
}

void ReportTooManyParameters(double parameters, const Report& report) {
  constexpr double kMaxParameters = 1e12;
  if (parameters > kMaxParameters) report({"spec.model"}, "has more than 10^12 parameters, the limit");
}

}  // namespace fusionllm::models
