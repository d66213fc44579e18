// What a scalar without quotes is in YAML, as kubectl reads it (sigs.k8s.io/yaml, whose rules are YAML 1.1's with some of 1.2's), so that
// one file means the same to every reader. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace fusionllm::base {

struct YamlScalar {
  enum class Type {
    kText,
    kBool,       // also yes, no, on, off, y, n
    kInteger,    // also 010 and 0o10 (8), 0x10, 0b10, 1_000
    kFloat,      // also those that are whole: 1e+06, 1000000.0; and integers past 64 bits
    kNotFinite,  // .inf, .nan: JSON has none, so that kubectl refuses them
  };
  Type type = Type::kText;
  std::string text;   // of a bool true or false, of an integer its decimal digits, else as it is written
  double number = 0;  // of an integer and a float
};

// Decimal numbers as JSON and YAML write them; nothing else (no hexadecimal, no infinities, no spaces). They may be too large.
bool IsDecimalNumber(absl::string_view text);

// `plain` stands in no quotes and is none of YAML's words for null.
YamlScalar ResolveYamlScalar(absl::string_view plain);

// `scalar`, a text of well-formed UTF-8 as yaml-cpp read it, with what the escapes \N (U+0085) and \_ (U+00A0) mean in double quotes: it
// makes one byte of each, which is no UTF-8.
std::string FixYamlEscapes(absl::string_view scalar);

}  // namespace fusionllm::base
