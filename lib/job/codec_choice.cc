#include "lib/job/codec_choice.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/compression/registry.h"

namespace fusionllm::job {
namespace {

template <class Choice>
using ChoiceNames = std::vector<std::pair<const char*, Choice>>;

// Those of `codecs` that `kind_of` gives a value for, behind auto.
template <class Choice, class KindOf>
ChoiceNames<Choice> NamesWithAuto(std::span<const compression::Codec* const> codecs, const KindOf& kind_of) {
  ChoiceNames<Choice> names = {{"auto", Choice()}};
  for (const compression::Codec* codec : codecs) {
    if (const auto kind = kind_of(codec->traits); kind.has_value()) names.emplace_back(codec->traits.name, Choice{kind});
  }
  return names;
}

}  // namespace

std::span<const std::pair<const char*, Codec>> EnumNames<Codec>::Names() {
  static const auto& names = *new ChoiceNames<Codec>(NamesWithAuto<Codec>(
      compression::CodecsAsListed(), [](const compression::CodecTraits& traits) { return std::optional(traits.kind); }));
  return names;
}

std::span<const std::pair<const char*, TopkValues>> EnumNames<TopkValues>::Names() {
  static const auto& names = *new ChoiceNames<TopkValues>(
      NamesWithAuto<TopkValues>(compression::CodecsAsListed(), [](const compression::CodecTraits& traits) { return traits.values; }));
  return names;
}

std::span<const std::pair<const char*, TiedGradients>> EnumNames<TiedGradients>::Names() {
  static const auto& names =
      *new ChoiceNames<TiedGradients>(NamesWithAuto<TiedGradients>(compression::Codecs(), [](const compression::CodecTraits& traits) {
        return traits.tied_loss_increase.has_value() ? std::optional(traits.kind) : std::nullopt;
      }));
  return names;
}

std::string CompressionLevels() {
  std::string levels;
  for (const compression::Codec* codec : compression::Codecs()) {
    const bool level = codec->traits.kind == compression::CodecKind::kExact || codec->traits.automatic || codec->dense() == nullptr;
    if (level) absl::StrAppend(&levels, levels.empty() ? "" : ", ", codec->traits.name);
  }
  return levels;
}

}  // namespace fusionllm::job
