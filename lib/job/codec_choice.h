// The fields of spec.compression that name codecs: by the names, and in the order, of lib/compression/registry.h.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "lib/compression/codec_kind.h"
#include "lib/job/schema.h"

namespace fusionllm::job {

// spec.compression.codec and limit. None: auto.
struct Codec {
  std::optional<compression::CodecKind> kind;
  bool operator==(const Codec&) const = default;
};
// spec.compression.topkValues: what kept values may travel as.
struct TopkValues {
  std::optional<compression::ValueKind> kind;
  bool operator==(const TopkValues&) const = default;
};
// spec.compression.tiedGradients: what gradients of tied parameters may travel as.
struct TiedGradients {
  std::optional<compression::CodecKind> kind;
  bool operator==(const TiedGradients&) const = default;
};

template <>
struct EnumNames<Codec> {
  static std::span<const std::pair<const char*, Codec>> Names();
};
template <>
struct EnumNames<TopkValues> {
  static std::span<const std::pair<const char*, TopkValues>> Names();
};
template <>
struct EnumNames<TiedGradients> {
  static std::span<const std::pair<const char*, TiedGradients>> Names();
};

// The levels of codec auto by name, the least aggressive first: "fp32, fp16, int8".
std::string CompressionLevels();

}  // namespace fusionllm::job
