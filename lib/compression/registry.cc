#include "lib/compression/registry.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "lib/compression/codecs/codecs.h"

namespace fusionllm::compression {
namespace {

constexpr size_t kCodecs = std::size(codecs::kAll);
constexpr size_t kNumbers = 256;  // that a byte may have

struct Registry {
  std::array<const Codec*, kCodecs> listed{};
  std::array<const Codec*, kNumbers> by_kind{};
  std::array<const DenseCodec*, kNumbers> by_layout{}, by_values{};

  Registry() {
    for (size_t i = 0; i < kCodecs; ++i) {
      const Codec& codec = codecs::kAll[i]();
      listed[i] = &codec;
      by_kind[static_cast<uint8_t>(codec.traits.kind)] = &codec;
      if (const DenseCodec* dense = codec.dense(); dense != nullptr) {
        by_layout[static_cast<uint8_t>(dense->layout)] = dense;
        if (codec.traits.values.has_value()) by_values[static_cast<uint8_t>(*codec.traits.values)] = dense;
      }
    }
  }
};

const Registry& AllCodecs() {
  static const Registry registry;
  return registry;
}

}  // namespace

absl::Status Codec::ParseParameters(absl::string_view text, std::optional<absl::string_view> parameters, CodecSpec* spec) const {
  return parameters.has_value() ? UnknownCodecError(text) : absl::OkStatus();
}

absl::Status Codec::CheckParameters(const CodecSpec& spec) const {
  if (spec.ratio == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("codec ", traits.name, " takes no ratio, but has ", spec.ratio));
}

std::span<const Codec* const> Codecs() { return std::span(AllCodecs().by_kind).first(kCodecs); }

std::span<const Codec* const> CodecsAsListed() { return AllCodecs().listed; }

const Codec& CodecOf(CodecKind kind) { return *AllCodecs().by_kind[static_cast<uint8_t>(kind)]; }

const Codec* FindCodec(absl::string_view name) {
  const std::span<const Codec* const> all = Codecs();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Codec* codec) { return codec->traits.name == name; });
  return found == all.end() ? nullptr : *found;
}

const DenseCodec* FindDenseCodec(Layout layout) { return AllCodecs().by_layout[static_cast<uint8_t>(layout)]; }

const DenseCodec* FindValueCodec(ValueKind values) { return AllCodecs().by_values[static_cast<uint8_t>(values)]; }

absl::Status UnknownCodecError(absl::string_view text) {
  std::string known;
  for (const Codec* codec : Codecs()) absl::StrAppend(&known, " ", codec->Usage());
  return absl::InvalidArgumentError(absl::StrCat("unknown codec '", text, "'; known:", known));
}

absl::Status ValuesNotFiniteError() {
  return absl::InvalidArgumentError("compressed tensor: a scale or value is infinite, NaN or out of range");
}

}  // namespace fusionllm::compression
