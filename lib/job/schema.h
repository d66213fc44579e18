// The one description of what may stand in a job or topology file.
//
// fusion_job_fields.h and topology_fields.h name each field once: `v.Field("steps", training.steps, {.min = 0, .max = 1e9}, "doc")`.
// Visitors over that table do everything else: Reader (YAML in), Printer (YAML out), Describer (the table as data: the reference page,
// and what generates a CRD). Defaults are the member initialisers of the structs. lib/kubeapi describes its own types the same way.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/job/units.h"

namespace fusionllm::job {

inline constexpr absl::string_view kApiVersion = "fusionllm.io/v1alpha1";

// What a field's value must satisfy. For a list, min to max hold for each element.
struct Rule {
  bool required = false;
  bool name = false;  // text: letters, digits, '-', '_', '.'; at most 63, as it becomes part of file names and labels
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;        // min itself is not allowed
  bool below_max = false;        // max itself is not allowed
  bool zero_is_auto = false;     // the word auto stands for 0; a written 0 must still satisfy min
  bool default_depends = false;  // the default depends on another field's value: schemas state none
  bool one_or_many = false;      // a list that may be written as its only element
  size_t min_items = 0;
  size_t max_items = 1000;
  absl::string_view list_key = "";    // of a list of mappings: the field whose value no two elements share
  bool may_be_empty = false;          // text: empty is a value
  bool number_or_text = false;        // text that may be written as a number: 18 is "18"
  size_t max_length = 4096;           // of text, in characters (code points)
  bool kubernetes_only = false;       // kept, but without effect outside Kubernetes
  bool applies = true;                // false: another field's value rules this one out, giving it is an error
  absl::string_view belongs_to = "";  // what makes it apply: "optimizer adamw"
};

// A value of free shape, kept as JSON text on one line (which is YAML too); empty: absent. Always a mapping.
struct RawExtension {
  std::string json;
  bool operator==(const RawExtension&) const = default;
};

// Specialised next to each type whose values have names: `static std::span<const std::pair<const char*, E>> Names()`. An enumeration
// below this folder needs no specialisation: `constexpr auto NamesOf(E)` of its namespace returns an array of such pairs.
template <class E>
struct EnumNames;
template <class E>
requires requires { NamesOf(E{}); }
struct EnumNames<E> {
  static constexpr auto kNames = NamesOf(E{});
  static std::span<const std::pair<const char*, E>> Names() { return kNames; }
};

#define FUSIONLLM_JOB_ENUM(Type, ...)                                            \
  template <>                                                                    \
  struct EnumNames<Type> {                                                       \
    using E = Type;                                                              \
    static constexpr std::pair<const char*, Type> kNames[] = {__VA_ARGS__};      \
    static std::span<const std::pair<const char*, E>> Names() { return kNames; } \
  }

template <class T>
inline constexpr bool kIsEnum = requires {
  EnumNames<T>::Names();
};

template <class E>
requires kIsEnum<E> std::string ToString(E value) {
  for (const auto& [name, candidate] : EnumNames<E>::Names()) {
    if (candidate == value) return name;
  }
  return "?";
}

template <class E>
std::vector<std::string> EnumChoices() {
  std::vector<std::string> names;
  for (const auto& [name, value] : EnumNames<E>::Names()) names.push_back(name);
  return names;
}

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
inline constexpr bool kIsQuantity = std::is_same_v<T, Bandwidth> || std::is_same_v<T, ByteSize> || std::is_same_v<T, Duration>;
template <class T>
inline constexpr bool kIsScalar =
    std::is_arithmetic_v<T> || kIsEnum<T> || std::is_same_v<T, std::string> || std::is_same_v<T, absl::Time> || kIsQuantity<T>;

enum class FieldType { kBool, kInteger, kNumber, kText, kTime, kEnum, kBandwidth, kSize, kDuration, kObject, kList, kAny };

// One field, without its C++ type: what generators of documents and schemas read.
struct FieldSchema {
  std::string name;  // empty for the element of a list
  FieldType type = FieldType::kObject;
  Rule rule;
  bool optional = false;             // absence means something of its own: no default is filled in
  std::string constant;              // apiVersion and kind: the only value
  std::vector<std::string> choices;  // of kEnum
  std::string default_text;          // as YAML; empty when required or optional, and for objects
  std::string doc;
  std::vector<FieldSchema> children;  // of kObject; of kList the element alone
};

}  // namespace fusionllm::job
