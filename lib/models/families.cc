#include "lib/models/families.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fusionllm::models {
namespace {

std::vector<std::string> NamesOfAll(const std::vector<const Family*>& families) {
  std::vector<std::string> names;
  for (const Family* family : families) names.push_back(family->name());
  return names;
}

template <class Condition>
std::vector<const Family*> Those(const Condition& condition) {
  std::vector<const Family*> families;
  for (const FamilyEntry& entry : kFamilies) {
    if (condition(entry.family())) families.push_back(&entry.family());
  }
  return families;
}

const FamilyEntry& EntryOf(FamilyName id) {
  return *std::find_if(std::begin(kFamilies), std::end(kFamilies), [id](const FamilyEntry& entry) { return entry.id == id; });
}

constexpr bool HasEach() {
  for (size_t i = 0; i < std::size(kFamilies); ++i) {
    if (kFamilies[i].id != static_cast<FamilyName>(i)) return false;
  }
  return true;
}
static_assert(HasEach(), "kFamilies has the families in the order of FamilyName");

}  // namespace

const Family& FamilyOf(FamilyName id) { return EntryOf(id).family(); }

std::string NameOf(FamilyName id) { return EntryOf(id).name; }

std::vector<const Family*> AllFamilies() {
  return Those([](const Family&) { return true; });
}

std::vector<const Family*> FamiliesOf(Samples samples) {
  return Those([samples](const Family& family) { return family.facts().samples == samples; });
}

std::vector<const Family*> FamiliesWithHuggingFaceFormat() {
  return Those([](const Family& family) { return family.hugging_face_format() != nullptr; });
}

std::vector<const Family*> OwnersOf(const std::string& setting) {
  return Those([&setting](const Family& family) {
    const std::vector<std::string>& settings = family.facts().settings;
    return std::find(settings.begin(), settings.end(), setting) != settings.end();
  });
}

std::string FamiliesText(const std::vector<const Family*>& families) {
  std::vector<std::string> names = NamesOfAll(families);
  if (names.size() == 1) return absl::StrCat("family ", names[0]);
  const std::string last = names.empty() ? "" : std::move(names.back());
  if (!names.empty()) names.pop_back();
  return absl::StrCat("families ", absl::StrJoin(names, ", "), " and ", last);
}

std::string FamilyList(const std::vector<const Family*>& families) { return absl::StrJoin(NamesOfAll(families), ", "); }

Samples SamplesOf(data::DatasetKind kind) { return data::IsOfTokens(kind) ? Samples::kTokens : Samples::kImages; }

TensorNameMap FindTensorNameMap(const std::function<bool(absl::string_view tensor)>& has) {
  for (const FamilyEntry& entry : kFamilies) {
    if (TensorNameMap renaming = entry.family().TensorNameMapFor(has); renaming != nullptr) return renaming;
  }
  return nullptr;
}

}  // namespace fusionllm::models
