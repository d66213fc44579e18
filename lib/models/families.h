// The families that there are: the one list, over which everything that knows families goes. Adding one is an entry in each of the four
// parts below and a folder of its own.
#pragma once

#include <array>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/models/family.h"
#include "lib/models/gpt2/gpt2.h"
#include "lib/models/mlp/mlp.h"
#include "lib/models/resnet/resnet.h"

namespace fusionllm::models {

enum class FamilyName { kGpt2, kResnet, kMlp };

struct FamilyEntry {
  FamilyName id;
  const char* name;           // as jobs write it
  const Family& (*family)();  // made when it is first asked for
};

// In the order in which documents list them.
inline constexpr FamilyEntry kFamilies[] = {
    {FamilyName::kGpt2, "gpt2", Gpt2Family},
    {FamilyName::kResnet, "resnet", ResNetFamily},
    {FamilyName::kMlp, "mlp", MlpFamily},
};

// spec.model.config of a job: overrides of a preset. A job gives those of its family alone; of resolved sizes those of the family are all
// set.
struct ModelSettings : Gpt2Settings, ResNetSettings, MlpSettings {
  bool operator==(const ModelSettings&) const = default;
};

// The table of these fields, as lib/job/schema.h has it.
template <class V>
void Visit(V& v, ModelSettings& s) {
  Visit(v, static_cast<Gpt2Settings&>(s));
  Visit(v, static_cast<ResNetSettings&>(s));
  Visit(v, static_cast<MlpSettings&>(s));
}

// A model of a family with nothing left open: what a job would say to get it, whatever its data and training.
struct ModelSizes {
  std::optional<std::string> preset;  // absent: the settings say it all
  ModelSettings settings;
  bool operator==(const ModelSizes&) const = default;
};

// Names of the enumeration, for tables of fields.
constexpr std::array<std::pair<const char*, FamilyName>, std::size(kFamilies)> NamesOf(FamilyName) {
  std::array<std::pair<const char*, FamilyName>, std::size(kFamilies)> names = {};
  for (size_t i = 0; i < names.size(); ++i) names[i] = {kFamilies[i].name, kFamilies[i].id};
  return names;
}

const Family& FamilyOf(FamilyName id);
std::string NameOf(FamilyName id);
std::vector<const Family*> AllFamilies();
std::vector<const Family*> FamiliesOf(Samples samples);
std::vector<const Family*> FamiliesWithHuggingFaceFormat();
// To which a field of spec.model.config belongs.
std::vector<const Family*> OwnersOf(const std::string& setting);

// "family gpt2", "families gpt2 and llama".
std::string FamiliesText(const std::vector<const Family*>& families);
// The names, "gpt2, resnet, mlp".
std::string FamilyList(const std::vector<const Family*>& families);

// Whose samples are those of the data.
Samples SamplesOf(data::DatasetKind kind);

// Of a file that stores a model of some family under other names than its parameters have; null: of none.
TensorNameMap FindTensorNameMap(const std::function<bool(absl::string_view tensor)>& has);

}  // namespace fusionllm::models
