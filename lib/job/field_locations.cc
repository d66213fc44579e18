#include "lib/job/field_locations.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace fusionllm::job {
namespace {

// "spec.strategy.pins[0].device" of "spec.strategy.pins[0].device: .." and of "spec.strategy.pins[0].device is .."; empty: the line begins
// with no field.
absl::string_view FieldOf(absl::string_view line) {
  if (!absl::StartsWith(line, "spec.") && !absl::StartsWith(line, "metadata.")) return "";
  const absl::string_view field = line.substr(0, line.find_first_of(": "));
  const bool plain = field.size() < line.size() && absl::c_all_of(field, [](char c) {
                       return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("._[]-/", c);
                     });
  return plain ? field : "";
}

}  // namespace

FieldLocations::FieldLocations(absl::string_view file_name, Node root, std::span<const std::string> overrides)
    : file_name_(file_name), root_(std::move(root)), known_(true) {
  for (const std::string& text : overrides) overrides_.push_back(text.substr(0, text.find('=')));
}

std::string FieldLocations::LocatedLine(absl::string_view line) const {
  const absl::string_view field = FieldOf(line);
  if (field.empty()) return std::string(line);
  Problems place(file_name_);
  place.SetRoot(&root_);
  place.SetOverridePaths(overrides_);
  place.Add(field, "");
  return absl::StrCat(absl::StripSuffix(place.ToStatus().message(), ": "), line.substr(field.size()));
}

std::string FieldLocations::Located(absl::string_view message) const {
  if (!known_) return std::string(message);
  return absl::StrJoin(absl::StrSplit(message, '\n'), "\n",
                       [&](std::string* out, absl::string_view line) { absl::StrAppend(out, LocatedLine(line)); });
}

absl::Status FieldLocations::Located(const absl::Status& status) const {
  return status.ok() ? status : absl::Status(status.code(), Located(status.message()));
}

}  // namespace fusionllm::job
